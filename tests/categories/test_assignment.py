"""Categories that the job assigns: to what, what it leaves alone, what is told, and who may read because of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import TextClause, text

from openmemory.access.schemas import GrantCreate
from openmemory.categories import assignment, classifier, descriptions, requests
from openmemory.categories.assignment import CategoryAssignment
from openmemory.categories.schemas import Preview, Waiting
from openmemory.categories.taxonomy import NAMES
from openmemory.config.sections import CategorySettings
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import ConflictError, Forbidden, Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.index.sync.reconcile import alone
from openmemory.jobs.on_demand import OnDemand
from openmemory.jobs.schedule import FIRST_CATEGORIZATION, scheduled
from openmemory.memories.schemas import MemoryCreate, MemoryQuery, MemoryUpdate
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services

HEALTH = "I am allergic to penicillin and take pills for my blood pressure, my doctor says"
MONEY = "My mortgage and my savings: I invest 300 euros a month in index funds at the bank"
NOTHING = "ok, see above"


def assigning(services: Services) -> CategoryAssignment:
    return CategoryAssignment(
        services.database,
        services.directory,
        services.spaces,
        services.outbox_delivery,
        settings=CategorySettings(assign="local"),
    )


@pytest.fixture(scope="module")
def job(services: Services) -> CategoryAssignment:
    """One for all tests: each would have the model read two hundred phrases."""
    return assigning(services)


@pytest.fixture
def new_job(services: Services) -> CategoryAssignment:
    """One that has read no phrase yet."""
    return assigning(services)


Remember = Callable[..., Awaitable[UUID]]


@pytest.fixture
def remember(services: Services) -> Remember:
    """Adds a memory and waits until it has its vector."""

    async def add(caller: Caller, content: str, *categories: str, **more: str) -> UUID:
        added = await services.memories.add(caller, MemoryCreate(content, categories=categories, **more))
        await services.outbox_delivery.drain()
        return added.id

    return add


async def filed(services: Services, id_: UUID) -> dict[str, bool]:
    """The categories of a memory, and whether the service has assigned each."""
    query = """
        SELECT c.name, f.automatic FROM memory_categories AS f JOIN categories AS c ON c.id = f.category_id
        WHERE f.memory_id = :id
    """
    async with services.database.statement() as tx:
        return {row.name: row.automatic for row in await tx.execute(text(query), {"id": id_})}


async def mark(services: Services, id_: UUID) -> tuple[int, bool, str | None] | None:
    """The attempts of a memory's mark, whether it waits, and its error."""
    query = "SELECT attempts, due_at > now(), last_error FROM pending_categorizations WHERE memory_id = :id"
    async with services.database.statement() as tx:
        row = (await tx.execute(text(query), {"id": id_})).one_or_none()
    return None if row is None else (row[0], row[1], row[2])


async def may_read(services: Services, app: Caller, id_: UUID) -> bool:
    try:
        await services.memories.get(app, id_)
    except NotFound:
        return False
    return True


async def test_what_no_client_has_filed_is_filed_and_told(
    services: Services, owner: Caller, job: CategoryAssignment, remember: Remember
):
    health, money, nothing = [await remember(owner, each) for each in (HEALTH, MONEY, NOTHING)]
    given = await remember(owner, HEALTH + " too", "diary")
    assert await mark(services, health) == (0, False, None)
    assert await job.run() >= 2
    assert (await filed(services, health)).get("health") is True
    assert (await filed(services, money)).get("finance") is True
    assert await filed(services, nothing) == {}
    assert await filed(services, given) == {"diary": False}
    assert [await mark(services, each) for each in (health, money, nothing, given)] == [None] * 4
    found = await services.memories.list(owner, MemoryQuery(categories=("health",)))
    assert [item.id for item in found.items] == [health]
    query = """
        SELECT principal, door, detail FROM audit_events
        WHERE user_id = :user AND event = 'memory.update' AND detail ->> 'operation' = 'categories'
    """
    async with services.database.statement() as tx:
        told = (await tx.execute(text(query), {"user": owner.user_id})).all()
    assert {(row.principal, row.door) for row in told} == {("categories", "job")}
    assert {"health", "finance"} <= {name for row in told for name in row.detail["categories"]}
    # Once is enough.
    before = job.changed
    await job.run()
    assert job.changed == before


async def test_a_new_text_is_looked_at_again(
    services: Services, owner: Caller, job: CategoryAssignment, remember: Remember
):
    id_ = await remember(owner, HEALTH)
    await job.run()
    await services.memories.update(owner, id_, MemoryUpdate(text=MONEY))
    await services.outbox_delivery.drain()
    assert await mark(services, id_) == (0, False, None)
    await job.run()
    assert "finance" in await filed(services, id_)
    assert "health" not in await filed(services, id_)


async def test_what_a_client_says_is_the_last_word(
    services: Services, owner: Caller, job: CategoryAssignment, remember: Remember
):
    emptied, confirmed = await remember(owner, HEALTH), await remember(owner, HEALTH + " again")
    await job.run()
    await services.memories.update(owner, emptied, MemoryUpdate(categories=()))
    await services.memories.update(owner, confirmed, MemoryUpdate(categories=("health",)))
    assert await filed(services, confirmed) == {"health": False}
    assert (await job.request(owner, again=True)).waiting == 0
    await services.memories.update(owner, emptied, MemoryUpdate(text=MONEY))
    await services.outbox_delivery.drain()
    await job.run()
    assert await filed(services, emptied) == {}
    assert await filed(services, confirmed) == {"health": False}


async def test_an_app_that_names_a_guess_again_does_not_make_it_given(
    services: Services, owner: Caller, app_caller: Caller, job: CategoryAssignment, remember: Remember
):
    id_ = await remember(app_caller, HEALTH)
    await job.run()
    names = tuple(await filed(services, id_))
    await services.memories.update(app_caller, id_, MemoryUpdate(categories=(*names, "diary")))
    assert await filed(services, id_) == dict.fromkeys(names, True) | {"diary": False}


async def test_a_guess_never_lets_an_app_in_and_may_keep_it_out(
    services: Services, owner: Caller, app_caller: Caller, job: CategoryAssignment, remember: Remember
):
    guessed, given = await remember(owner, HEALTH), await remember(owner, HEALTH + " today", "health")
    await job.run()
    assert (await filed(services, guessed))["health"]
    rule = await services.grants.create(
        owner, GrantCreate(effect="allow", app=app_caller.app, object_type="category", object="health")
    )
    assert await may_read(services, app_caller, given)
    assert not await may_read(services, app_caller, guessed)
    hits = await services.search.search(app_caller, SearchQuery("allergic to penicillin"))
    assert [hit.id for hit in hits.results] == [given]
    why = await services.grants.explain(owner, app_caller.app, guessed)
    assert not why.allowed
    # What its user confirms is no guess any more.
    await services.memories.update(owner, guessed, MemoryUpdate(categories=("health",)))
    assert await may_read(services, app_caller, guessed)
    await services.grants.revoke(owner, rule.id)


async def test_a_deny_holds_for_guesses_and_they_are_never_taken_away(
    services: Services, owner: Caller, app_caller: Caller, job: CategoryAssignment, remember: Remember
):
    id_ = await remember(app_caller, HEALTH)
    await services.grants.create(
        owner, GrantCreate(effect="deny", app=app_caller.app, object_type="category", object="health")
    )
    assert await may_read(services, app_caller, id_)
    await job.run()
    assert not await may_read(services, app_caller, id_)
    assert (await services.search.search(app_caller, SearchQuery("penicillin"))).results == []
    await services.memories.update(owner, id_, MemoryUpdate(text=MONEY))
    await services.outbox_delivery.drain()
    await job.run()
    assert {"health", "finance"} <= (await filed(services, id_)).keys()
    assert not await may_read(services, app_caller, id_)


async def test_own_categories_that_are_described_are_assigned_to_their_user_alone(
    services: Services, owner: Caller, new_user: str, job: CategoryAssignment, remember: Remember
):
    name = f"bees of {new_user}"
    descriptions = "INSERT INTO categories (name, description) VALUES (:name, :about)"
    about = "Keeping bees: hives, honey, swarms, queens and the garden of the beekeeper."
    async with services.database.transaction() as tx:
        await tx.execute(text(descriptions), {"name": name, "about": about})
    other = await services.directory.caller(f"{new_user}-other", None, owner=True)
    await remember(owner, "The first hive stands under the apple tree", name)
    mine = await remember(owner, "The bees swarmed and the new hive has a young queen and much honey")
    theirs = await remember(other, "The bees swarmed and the new hive has a young queen and much honey")
    await job.run()
    assert name in await filed(services, mine)
    assert name not in await filed(services, theirs)


BEES = "Keeping bees: hives, honey, swarms, queens and the garden of the beekeeper."
SWARM = "The bees swarmed and the new hive has a young queen and much honey"


async def test_what_a_user_describes_is_assigned_without_any_filing_by_hand(
    services: Services, owner: Caller, new_user: str, job: CategoryAssignment, remember: Remember
):
    swarm, money = await remember(owner, SWARM), await remember(owner, MONEY)
    await job.run()
    before = await filed(services, swarm)
    await services.descriptions.describe(owner, f"bees of {new_user}", BEES)
    assert await filed(services, swarm) == before
    await job.run()
    assert await filed(services, swarm) == {f"bees of {new_user}": True}
    assert await filed(services, money) == {"finance": True}
    await services.descriptions.forget(owner, f"bees of {new_user}")
    await job.run()
    assert await filed(services, swarm) == before


async def test_what_clients_filed_stays_when_a_description_goes(
    services: Services, owner: Caller, new_user: str, job: CategoryAssignment, remember: Remember
):
    name = f"bees of {new_user}"
    await services.descriptions.describe(owner, name, BEES)
    given, guessed = await remember(owner, SWARM, name), await remember(owner, SWARM + " again")
    await job.run()
    assert [await filed(services, each) for each in (given, guessed)] == [{name: False}, {name: True}]
    await services.descriptions.forget(owner, name)
    await job.run()
    assert await filed(services, given) == {name: False}
    assert name not in await filed(services, guessed)


async def test_two_users_mean_their_own_by_one_name(
    services: Services, owner: Caller, new_user: str, job: CategoryAssignment, remember: Remember
):
    name, other = f"bank of {new_user}", await services.directory.caller(f"{new_user}-other", None, owner=True)
    river = "Sitting on the bank of the river: fishing, boats, water, reeds and where the banks are flooded."
    await services.descriptions.describe(owner, name, river)
    await services.descriptions.describe(other, name, BEES)
    fishing = "The river flooded its bank where I go fishing from the boat"
    ids = {
        (caller.user, content): await remember(caller, content)
        for caller in (owner, other)
        for content in (fishing, SWARM)
    }
    await job.run()
    under = {key for key, id_ in ids.items() if name in await filed(services, id_)}
    assert under == {(owner.user, fishing), (other.user, SWARM)}
    for caller, about in ((owner, river), (other, BEES)):
        [mine] = [each for each in (await services.descriptions.list(caller)).categories if each.name == name]
        assert (mine.description, mine.described_by) == (about, "user")
    await services.descriptions.forget(owner, name)
    await job.run()
    assert name not in await filed(services, ids[owner.user, fishing])
    assert name in await filed(services, ids[other.user, SWARM])


async def test_one_of_the_twenty_in_the_users_own_words_is_theirs_alone(
    services: Services, owner: Caller, new_user: str, job: CategoryAssignment, remember: Remember
):
    other = await services.directory.caller(f"{new_user}-other", None, owner=True)
    await services.descriptions.describe(owner, "health", BEES)
    mine, theirs = [(await remember(caller, SWARM), await remember(caller, HEALTH)) for caller in (owner, other)]
    await job.run()
    assert [await filed(services, each) for each in mine] == [{"health": True}, {}]
    assert "health" not in await filed(services, theirs[0])
    assert await filed(services, theirs[1]) == {"health": True}


async def test_the_users_own_words_go_before_those_for_everybody(
    services: Services, owner: Caller, new_user: str, job: CategoryAssignment, remember: Remember
):
    name = f"things of {new_user}"
    async with services.database.transaction() as tx:
        await tx.execute(
            text("INSERT INTO categories (name, description) VALUES (:name, 'Old steam engines and their boilers.')"),
            {"name": name},
        )
    await remember(owner, "The boiler of the steam engine is out of order", name)
    assert (await services.descriptions.list(owner)).categories[0].described_by == "everybody"
    await services.descriptions.describe(owner, name, BEES)
    engine, swarm = await remember(owner, "An old steam engine with a new boiler"), await remember(owner, SWARM)
    await job.run()
    assert name not in await filed(services, engine)
    assert name in await filed(services, swarm)
    assert [each.name for each in (await services.descriptions.list(owner)).categories].count(name) == 1


async def test_what_is_ordered_is_told_and_done_though_its_process_ends(
    services: Services,
    owner: Caller,
    new_user: str,
    job: CategoryAssignment,
    remember: Remember,
    monkeypatch: pytest.MonkeyPatch,
):
    ids = [await remember(owner, f"{SWARM} {number}") for number in range(5)]
    given = await remember(owner, SWARM + " today", "diary")
    await job.run()
    assert await job.waiting(owner) == Waiting(waiting=0, failed=0)
    await services.descriptions.describe(owner, f"bees of {new_user}", BEES)
    assert await job.waiting(owner) == Waiting(waiting=5, failed=0)
    assert (await job.preview(owner)).total == 5
    monkeypatch.setattr(requests, "PAGE", 2)
    with monkeypatch.context() as patch:
        patch.setattr(requests, "_DELETE_REQUEST", text("SELECT 1 / 0"))
        await job.run()
    assert await job.waiting(owner) == Waiting(waiting=5, failed=0)
    await job.run()
    assert await job.waiting(owner) == Waiting(waiting=0, failed=0)
    assert [list(await filed(services, each)) for each in ids] == [[f"bees of {new_user}"]] * 5
    assert await filed(services, given) == {"diary": False}
    await services.descriptions.describe(owner, f"bees of {new_user}", f" {BEES} ")
    assert await job.waiting(owner) == Waiting(waiting=0, failed=0)


async def test_an_order_that_comes_while_one_is_taken_up_stays(
    services: Services, owner: Caller, job: CategoryAssignment, remember: Remember
):
    async def orders() -> list[Any]:
        async with services.database.statement() as tx:
            mine = text("SELECT * FROM reclassification_requests WHERE user_id = :user")
            return list((await tx.execute(mine, {"user": owner.user_id})).all())

    await remember(owner, SWARM)
    await job.request(owner, again=True)
    [old] = await orders()
    await job.request(owner, again=True)
    await requests._queue(services.database, old)
    assert len(await orders()) == 1
    await job.run()
    assert await orders() == []


async def test_without_a_model_all_waits_and_is_done_later(
    services: Services,
    owner: Caller,
    new_job: CategoryAssignment,
    remember: Remember,
    monkeypatch: pytest.MonkeyPatch,
):
    id_ = await remember(owner, HEALTH)

    async def away(texts: object) -> object:
        raise EmbedderUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(services.spaces.serving.embedder, "documents", away)
        assert await new_job.run() == 0
    assert await mark(services, id_) == (0, False, None)
    assert await new_job.run() >= 1


async def test_a_failure_leaves_the_memory_and_is_tried_again(
    services: Services,
    owner: Caller,
    job: CategoryAssignment,
    remember: Remember,
    monkeypatch: pytest.MonkeyPatch,
    caplog,
):
    id_ = await remember(owner, HEALTH)
    with monkeypatch.context() as patch:
        patch.setattr(classifier, "choose", lambda *_, **__: 1 / 0)
        assert await job.run() == 0
    assert "could not be assigned" in caplog.text
    assert await mark(services, id_) == (1, True, "ZeroDivisionError: division by zero")
    assert await filed(services, id_) == {}
    async with services.database.transaction() as tx:
        await tx.execute(text("UPDATE pending_categorizations SET due_at = now() WHERE memory_id = :id"), {"id": id_})
    assert await job.run() >= 1
    assert "health" in await filed(services, id_)


async def test_what_has_no_vector_of_the_model_waits(
    services: Services, owner: Caller, job: CategoryAssignment, remember: Remember
):
    id_ = await remember(owner, HEALTH)
    async with services.database.transaction() as tx:
        await tx.execute(text("DELETE FROM embeddings WHERE id = :id"), {"id": id_})
    await job.run()
    attempts, waits, error = await mark(services, id_) or (0, False, None)
    assert (attempts, waits) == (1, True)
    assert "no vector" in (error or "")


async def test_a_memory_that_somebody_writes_is_passed_over_and_nobody_waits(
    services: Services, owner: Caller, job: CategoryAssignment, remember: Remember
):
    busy, free = await remember(owner, HEALTH), await remember(owner, MONEY)
    async with services.database.transaction() as tx:
        await tx.execute(text("SELECT FROM memories WHERE id = :id FOR NO KEY UPDATE"), {"id": busy})
        await job.run()
        assert await filed(services, busy) == {}
    assert "finance" in await filed(services, free)
    await job.run()
    assert "health" in await filed(services, busy)


async def test_one_process_files_and_none_where_it_is_off(
    services: Services, owner: Caller, job: CategoryAssignment, remember: Remember
):
    id_ = await remember(owner, HEALTH)
    async with alone(services.database, assignment.LOCK):
        assert await job.run() == 0
    assert await services.categorization.run() == 0  # off in the settings of the tests
    assert await filed(services, id_) == {}
    assert await job.run() >= 1


async def test_only_the_user_has_their_memories_filed(
    services: Services, owner: Caller, app_caller: Caller, job: CategoryAssignment, remember: Remember
):
    id_ = await remember(owner, HEALTH)
    assert await job.waiting(owner) == Waiting(waiting=1, failed=0)
    await job.run()
    assert await job.request(owner, again=False) == Waiting(waiting=0, failed=0)
    assert await job.request(owner, again=True) == Waiting(waiting=1, failed=0)
    before = await filed(services, id_)
    await job.run()
    assert await filed(services, id_) == before
    for refused in (job.request(app_caller, again=True), job.waiting(app_caller)):
        with pytest.raises(Forbidden):
            await refused
    with pytest.raises(ConflictError, match="assigns no categories"):
        await services.categorization.request(owner, again=True)


async def test_what_would_be_filed_is_told_and_nothing_written(
    services: Services, owner: Caller, app_caller: Caller, job: CategoryAssignment, remember: Remember
):
    health, money = await remember(owner, HEALTH), await remember(owner, MONEY)
    given, deleted = await remember(owner, HEALTH + ", again", "mine"), await remember(owner, "My doctor is away.")
    await services.memories.delete(owner, [deleted])
    waiting = await job.waiting(owner)
    found = await job.preview(owner)
    told = [(item.memory_id, [each.name for each in item.categories], item.now, item.ready) for item in found.items]
    assert told == [(money, ["finance"], [], True), (health, ["health"], [], True)]
    assert found.total == 2
    assert all(0.5 <= each.confidence <= 1 for item in found.items for each in item.categories)
    assert [await filed(services, id_) for id_ in (health, money)] == [{}, {}]
    assert await job.waiting(owner) == waiting
    assert await services.categorization.preview(owner) == found  # also where nothing is assigned
    await job.run()
    assert set(await filed(services, health)) == {"health"}
    assert await job.preview(owner) == Preview(items=[], total=0)
    one = await job.preview(owner, again=True, limit=1)
    assert ([item.now for item in one.items], one.total) == ([["finance"]], 2)
    assert given not in [item.memory_id for item in (await job.preview(owner, again=True)).items]
    with pytest.raises(Forbidden):
        await job.preview(app_caller)
    with pytest.raises(Invalid, match="limit"):
        await job.preview(owner, limit=501)


async def test_a_preview_tells_what_has_no_vector_yet(
    services: Services, owner: Caller, job: CategoryAssignment, remember: Remember
):
    id_ = await remember(owner, HEALTH)
    async with services.database.transaction() as tx:
        await tx.execute(text("DELETE FROM embeddings WHERE id = :id"), {"id": id_})
    [item] = (await job.preview(owner)).items
    assert (item.memory_id, item.ready, item.categories) == (id_, False, [])
    await job.run()  # which has it wait, so that other tests do not meet it


@pytest.mark.parametrize("statement", [assignment._WHOSE, assignment._WAITING, requests.QUEUE_PAGE, descriptions._OWN])
async def test_what_waits_is_found_by_an_index(services: Services, owner: Caller, statement: TextClause):
    values = {
        "limit": 200, "user": owner.user_id, **requests._FIRST._asdict(), "users": [owner.user_id],
        "known": list(NAMES), "most": descriptions.OWN,
    }  # fmt: skip
    async with services.database.transaction() as tx:
        await tx.execute(text("SET LOCAL enable_seqscan = off"))
        bound = {name: values[name] for name in statement.compile().params}
        explained = text(f"EXPLAIN {statement.text}").bindparams(*statement._bindparams.values())
        plan = "\n".join(await tx.scalars(explained, bound))
    assert "Seq Scan" not in plan, plan


MANY = 50_000
PART = 10_000
_FILL = text(
    """
    WITH new AS (
        INSERT INTO memories (user_id, app_id, content, hash)
        SELECT :user, :app, 'thing number ' || n, md5(n::text || :salt)
        FROM generate_series(CAST(:first AS integer), :last) AS n RETURNING id, hash
    )
    INSERT INTO embeddings (kind, id, model, text_hash, vector, chunking)
    SELECT 'memory', new.id, e.model, new.hash, e.vector, e.chunking
    FROM new CROSS JOIN (SELECT model, vector, chunking FROM embeddings WHERE id = :like LIMIT 1) AS e
    """
)


async def test_what_is_ordered_is_looked_at_at_once(
    services: Services,
    owner: Caller,
    job: CategoryAssignment,
    remember: Remember,
    eventually: Callable[..., Awaitable[None]],
) -> None:
    id_ = await remember(owner, HEALTH)

    async def is_filed() -> bool:
        return await filed(services, id_) == {"health": True}

    async with scheduled(replace(services, categorization=job)):
        await job.request(owner, again=True)
        await eventually(is_filed, within=FIRST_CATEGORIZATION - 5)  # when its turn has not come yet
    assert job.start is None


async def test_what_is_ordered_while_others_are_filed_is_looked_at_right_after_them(
    owner: Caller, job: CategoryAssignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    looked_again = asyncio.Event()

    async def some() -> int:
        nonlocal looks
        looks += 1
        if looks == 1:
            await job.request(owner, again=False)
        else:
            looked_again.set()
        return 0

    monkeypatch.setattr(job, "_some", some)
    runs = OnDemand(job.run, "categorize")
    monkeypatch.setattr(job, "start", runs.ask)
    try:
        await job.request(owner, again=False)
        async with asyncio.timeout(15):
            await looked_again.wait()
    finally:
        await runs.close()
    assert looks == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("in_bulk")
async def test_many_waiting_memories_are_found_by_an_index(
    services: Services,
    owner: Caller,
    job: CategoryAssignment,
    remember: Remember,
):
    like = await remember(owner, HEALTH)
    values = {"user": owner.user_id, "app": owner.app_id, "like": like, "salt": str(like)}
    for first in range(1, MANY + 1, PART):
        async with services.database.transaction() as tx:
            await tx.execute(text("SET LOCAL statement_timeout = '300s'"))
            await tx.execute(_FILL, values | {"first": first, "last": first + PART - 1})
    async with services.database.transaction() as tx:
        await tx.execute(text("ANALYZE memories, embeddings, pending_categorizations"))
        bound = {"model": services.spaces.serving.model, "limit": 200, "users": [owner.user_id]}
        plan = "\n".join(await tx.scalars(text(f"EXPLAIN {assignment._DUE.text}"), bound))
        assert "idx_pending_categorizations_due" in plan, plan
        assert "Seq Scan on memories" not in plan, plan
        assert "Seq Scan on embeddings" not in plan, plan
    before = job.changed
    seen = await job._some()
    assert job.changed - before == seen > 0
