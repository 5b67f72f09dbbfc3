"""What expires by itself or by a policy: put away by the job, with all that belongs to it, and brought back by hand."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select, text

from openmemory.errors import Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.index.sync.reconcile import alone
from openmemory.memories.lifecycle import archiving
from openmemory.memories.lifecycle.schemas import PolicyCreate
from openmemory.memories.models import Memory
from openmemory.memories.schemas import Expiry, MemoryCreate, MemoryQuery, MemoryUpdate
from openmemory.memories.state import State
from openmemory.services import Services
from tests.memories.lifecycle.lives import aged, ended, made, state


def policy(criteria_type: Any = "user", name: str | None = None, *, days: int = 30) -> PolicyCreate:
    return PolicyCreate(criteria_type=criteria_type, criteria_name=name, days_to_expire=days)


async def reasons(services: Services, owner: Caller, id_: UUID) -> list[tuple[State, str | None]]:
    history = await services.memories.history(owner, id_)
    return [(change.new_state, change.reason) for change in history.states]


async def events(services: Services, user: UUID, event: str) -> list[Any]:
    async with services.database.statement() as tx:
        found = await tx.execute(
            text("SELECT * FROM audit_events WHERE user_id = :user AND event = :event ORDER BY id"),
            {"user": user, "event": event},
        )
        return list(found)


async def test_what_has_expired_is_put_away_with_history_and_log(
    services: Services, owner: Caller, eventually: Any
) -> None:
    gone, stays = await made(services, owner, "The lift is broken."), await made(services, owner, "I live in Oslo.")
    await ended(services, gone, -1)
    await ended(services, stays, 1)
    await services.archiving.run()
    assert (await state(services, gone), await state(services, stays)) == ("archived", "active")
    [event] = await events(services, owner.user_id, "memory.expire")
    assert (event.objects, event.principal, event.door) == ([gone], "expiry", "job")

    async def has_left_the_index() -> bool:  # the worker in the background may have taken its entry before
        await services.outbox_delivery.drain()
        return gone not in {entry.id async for page in services.index.entries() for entry in page}

    await eventually(has_left_the_index)
    with pytest.raises(NotFound):
        await services.memories.get(owner, gone)
    # Once more there is nothing to do.
    await services.archiving.run()
    assert len(await events(services, owner.user_id, "memory.expire")) == 1
    assert await services.memories.restore(owner, [gone]) == 1
    assert await reasons(services, owner, gone) == [
        (State.ACTIVE, None), (State.ARCHIVED, "expired"), (State.ACTIVE, None),
    ]  # fmt: skip
    assert (await services.memories.get(owner, gone)).expires_at is None


async def test_what_has_expired_and_waits_for_the_job_is_brought_back_too(services: Services, owner: Caller) -> None:
    id_ = await made(services, owner, "The lift is broken.")
    await ended(services, id_, -1)
    assert await services.memories.restore(owner, [id_]) == 1
    assert (await services.memories.get(owner, id_)).expires_at is None
    await services.archiving.run()
    assert await state(services, id_) == "active"


async def test_an_end_to_come_stays_when_a_memory_is_brought_back(services: Services, owner: Caller) -> None:
    id_ = await made(services, owner, "The lift is broken.", ttl_days=9)
    await services.memories.change_state(owner, [id_], State.PAUSED)
    await services.memories.restore(owner, [id_])
    assert (await services.memories.get(owner, id_)).expires_at is not None


async def test_its_text_may_be_remembered_again(services: Services, owner: Caller) -> None:
    first = await made(services, owner, "The lift is broken.")
    await ended(services, first, -1)
    second = (await services.memories.add(owner, MemoryCreate(text="The lift is broken."))).id
    assert second != first
    assert (await state(services, first), await state(services, second)) == ("archived", "active")


@pytest.mark.parametrize(
    ("criterion", "hit"),
    [
        (("app", "cursor"), "cursor"),
        (("namespace", "webshop"), "webshop"),
        (("category", "errands"), "errands"),
        (("user", None), "everything"),
    ],
)
async def test_a_policy_lets_expire_what_it_names_of_one_user(
    services: Services, owner: Caller, criterion: tuple[str, str | None], hit: str
) -> None:
    cursor = await services.directory.caller(owner.user, "cursor")
    rows = {
        "cursor": await made(services, cursor, "Of cursor.", days=40),
        "webshop": await made(services, owner, "Of the webshop.", days=40, namespace="webshop"),
        "errands": await made(services, owner, "Of an errand.", days=40, categories=("errands",)),
        "nothing": await made(services, owner, "Of nothing.", days=40),
    }
    young = await made(services, cursor, "Young.", days=29, namespace="webshop", categories=("errands",))
    neighbour = await services.directory.caller(f"{owner.user}-neighbour", None, owner=True)
    theirs = await made(services, neighbour, "Of others.", days=40, namespace="webshop", categories=("errands",))
    await services.policies.create(owner, policy(*criterion))
    await services.archiving.run()
    put_away = {name for name, id_ in rows.items() if await state(services, id_) == "archived"}
    assert put_away == (set(rows) if hit == "everything" else {hit})
    assert (await state(services, young), await state(services, theirs)) == ("active", "active")


async def test_changes_do_not_keep_a_memory_from_expiring_and_bringing_it_back_does(
    services: Services, owner: Caller
) -> None:
    id_ = await made(services, owner, "A thing.", days=31)
    await services.memories.update(owner, id_, MemoryUpdate(text="Another thing."))
    made_policy = await services.policies.create(owner, policy())
    await services.archiving.run()
    assert await state(services, id_) == "archived"
    with pytest.raises(NotFound):
        await services.memories.get(owner, id_)
    [event] = await events(services, owner.user_id, "memory.expire")
    assert (event.principal, event.detail) == (
        f"policy:{made_policy.id}", {"policy": str(made_policy.id), "days_to_expire": 30},
    )  # fmt: skip
    await services.memories.restore(owner, [id_])
    await services.archiving.run()
    assert await state(services, id_) == "active"
    await aged(services, id_, 29)
    await services.archiving.run()
    assert await state(services, id_) == "active"
    await aged(services, id_, 2)
    await services.archiving.run()
    assert await state(services, id_) == "archived"


async def test_an_end_of_its_own_goes_before_a_policy(services: Services, owner: Caller) -> None:
    id_ = await made(services, owner, "A thing.", days=400)
    await services.memories.update(owner, id_, MemoryUpdate(expiry=Expiry(ttl_days=10)))
    await services.policies.create(owner, policy())
    await services.archiving.run()
    assert await state(services, id_) == "active"


async def test_what_expired_by_a_policy_stays_so_when_that_ends(services: Services, owner: Caller) -> None:
    id_ = await made(services, owner, "A thing.", days=31)
    one = await services.policies.create(owner, policy())
    await services.archiving.run()
    await services.policies.remove(owner, one.id)
    await services.archiving.run()
    assert await state(services, id_) == "archived"
    with pytest.raises(NotFound):
        await services.memories.get(owner, id_)


@pytest.mark.parametrize("put_away", [State.PAUSED, State.ARCHIVED, State.DELETED])
async def test_a_policy_is_about_what_is_active(services: Services, owner: Caller, put_away: State) -> None:
    id_ = await made(services, owner, "A thing.")
    await services.memories.change_state(owner, [id_], put_away)
    await aged(services, id_, 400)
    await services.policies.create(owner, policy())
    await services.archiving.run()
    record = await services.memories.get(owner, id_)
    assert (record.state, record.expires_at) == (put_away, None)


async def test_one_thing_may_be_archived_by_one_policy_and_expire_by_another(services: Services, owner: Caller) -> None:
    archives = PolicyCreate(criteria_type="user", days_to_archive=10)
    first, second = await services.policies.create(owner, archives), await services.policies.create(owner, policy())
    assert first.id != second.id
    assert (first.days_to_archive, first.days_to_expire) == (10, None)
    assert (second.days_to_archive, second.days_to_expire) == (None, 30)
    changed = await services.policies.create(owner, policy(days=60))
    assert (changed.id, changed.days_to_expire) == (second.id, 60)
    assert [one.id for one in await services.policies.list(owner)] == [first.id, second.id]


@pytest.mark.parametrize(
    ("days", "words"),
    [
        ({}, "days_to_archive: must be given, or days_to_expire"),
        (
            {"days_to_archive": 3, "days_to_expire": 3},
            "days_to_expire: must be left out where days_to_archive",
        ),
        ({"days_to_expire": 0}, "days_to_expire"),
        ({"days_to_expire": 36_501}, "days_to_expire"),
    ],
)
def test_a_policy_does_one_thing(days: dict[str, int], words: str) -> None:
    with pytest.raises((ValueError, Invalid), match=words):
        PolicyCreate(criteria_type="user", **days).check()  # type: ignore[arg-type]  # what a client sends


async def test_many_expire_batch_by_batch_and_go_on_after_an_interruption(
    services: Services, owner: Caller, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    ids = [await made(services, owner, f"Thing number {number}.", days=31) for number in range(7)]
    for id_ in ids[:4]:
        await ended(services, id_, -1)
    await services.policies.create(owner, policy())
    monkeypatch.setattr(archiving, "BATCH", 2)
    async with services.database.transaction() as tx:
        # What somebody is writing at the moment holds nobody up, and has its turn at the next run.
        await tx.execute(select(Memory.id).where(Memory.id == ids[0]).with_for_update())
        running = asyncio.create_task(services.archiving.run())

        async def some() -> bool:
            return await state(services, ids[1]) == "archived"

        await eventually(some)
        running.cancel()
        await asyncio.wait([running])
        assert await services.archiving.run() <= 6
        assert await state(services, ids[0]) == "active"
        assert {await state(services, id_) for id_ in ids[1:]} == {"archived"}
    await services.archiving.run()
    assert await state(services, ids[0]) == "archived"
    counts = [event.count for event in await events(services, owner.user_id, "memory.expire")]
    assert sum(counts) == 7
    assert max(counts) <= 2


async def test_one_replica_puts_away_at_a_time(services: Services, owner: Caller) -> None:
    id_ = await made(services, owner, "A thing.")
    await ended(services, id_, -1)
    async with alone(services.database, archiving.LOCK):
        assert await services.archiving.run() == 0
    assert await state(services, id_) == "active"
    await services.archiving.run()
    assert await state(services, id_) == "archived"


async def test_it_counts_as_active_no_more(services: Services, owner: Caller) -> None:
    id_ = await made(services, owner, "A thing.")
    await made(services, owner, "Another thing.")
    await ended(services, id_, -1)
    await services.archiving.run()
    assert (await services.memories.list(owner, MemoryQuery())).total == 1
    everything = MemoryQuery(states=tuple(State))
    assert [item.content for item in (await services.memories.list(owner, everything)).items] == ["Another thing."]
