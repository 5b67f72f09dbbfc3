"""The warning: what will expire or be archived, when and why, and nothing that the user may not see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from openmemory.errors import Forbidden, Invalid
from openmemory.identity.caller import Caller
from openmemory.memories.lifecycle.schemas import PolicyCreate, UpcomingPage, UpcomingQuery
from openmemory.memories.schemas import Expiry, MemoryUpdate
from openmemory.memories.state import State
from openmemory.services import Services
from tests.memories.lifecycle.lives import ended, made


async def upcoming(services: Services, owner: Caller, within_days: int = 7, **more: Any) -> UpcomingPage:
    return await services.upcoming.list(owner, UpcomingQuery(within_days, **more))


def told(page: UpcomingPage) -> list[tuple[str, str, bool]]:
    return [(item.content, item.action, item.policy_id is not None) for item in page.items]


def near(moment: datetime, days: float) -> bool:
    return abs(moment - datetime.now(UTC) - timedelta(days=days)) < timedelta(minutes=5)


async def test_everything_is_told_once_soonest_first_with_when_and_why(services: Services, owner: Caller) -> None:
    cursor = await services.directory.caller(owner.user, "cursor")
    await made(services, owner, "Idle for 26 days.", days=26)
    await made(services, cursor, "Of cursor, 58 days old.", days=58)
    await made(services, owner, "Of the webshop, 88 days old.", days=88, namespace="webshop")
    await made(services, owner, "Of an errand, 9 days old.", days=9, categories=("errands",))
    await made(services, owner, "For five days.", ttl_days=5)
    await made(services, owner, "For eight days.", ttl_days=8)
    await made(services, owner, "Young.", days=1)
    archives = await services.policies.create(owner, PolicyCreate(criteria_type="user", days_to_archive=30))
    for new in (
        PolicyCreate(criteria_type="app", criteria_name="cursor", days_to_expire=59),
        PolicyCreate(criteria_type="namespace", criteria_name="webshop", days_to_archive=90),
        PolicyCreate(criteria_type="category", criteria_name="errands", days_to_expire=15),
    ):
        await services.policies.create(owner, new)
    page = await upcoming(services, owner)
    # What is due already and waits for the job comes first.
    assert told(page) == [
        ("Of the webshop, 88 days old.", "archive", True),
        ("Of cursor, 58 days old.", "archive", True),
        ("Idle for 26 days.", "archive", True),
        ("For five days.", "expire", False),
        ("Of an errand, 9 days old.", "expire", True),
    ]
    assert page.total == 5
    [idle] = [item for item in page.items if item.content == "Idle for 26 days."]
    assert (idle.policy_id, idle.app_name, idle.namespace, near(idle.at, 4)) == (
        archives.id, "openmemory", "default", True,
    )  # fmt: skip
    [errand, ttl] = [item for item in page.items if item.action == "expire"][::-1]
    assert near(errand.at, 6)
    assert near(ttl.at, 5)
    assert told(await upcoming(services, owner, 8))[-1] == ("For eight days.", "expire", False)
    assert (await upcoming(services, owner, 0)).total == 2
    # The job does what was told, and nothing else.
    await services.archiving.run()
    assert (await upcoming(services, owner, 0)).total == 0
    assert [item.content for item in (await upcoming(services, owner)).items] == [
        "Idle for 26 days.", "For five days.", "Of an errand, 9 days old.",
    ]  # fmt: skip


async def test_pages_hold_every_memory_once(services: Services, owner: Caller) -> None:
    for number in range(5):
        await made(services, owner, f"Thing {number}.", days=25 + number)
    await services.policies.create(owner, PolicyCreate(criteria_type="user", days_to_archive=30))
    pages = [await upcoming(services, owner, page=page, size=2) for page in (1, 2, 3, 4)]
    assert [len(page.items) for page in pages] == [2, 2, 1, 0]
    assert [item.content for page in pages for item in page.items] == [f"Thing {number}." for number in (4, 3, 2, 1, 0)]
    assert {page.total for page in pages} == {5}


async def test_who_has_nothing_is_told_nothing(services: Services, owner: Caller) -> None:
    await made(services, owner, "A thing.", days=400)
    assert (await upcoming(services, owner, 36_500)).model_dump() == {"items": [], "total": 0, "page": 1, "size": 50}


async def test_what_is_put_away_or_has_expired_is_not_told(services: Services, owner: Caller) -> None:
    for put_away in (State.PAUSED, State.ARCHIVED, State.DELETED):
        id_ = await made(services, owner, f"A thing to be {put_away}.", ttl_days=3)
        await services.memories.change_state(owner, [id_], put_away)
    await ended(services, await made(services, owner, "A thing of the past."), -1)
    assert (await upcoming(services, owner)).total == 0


async def test_an_end_of_its_own_goes_before_a_policy_by_which_it_would_expire(
    services: Services, owner: Caller
) -> None:
    id_ = await made(services, owner, "A thing.", days=29)
    await services.policies.create(owner, PolicyCreate(criteria_type="user", days_to_expire=30))
    assert (await upcoming(services, owner)).total == 1
    await services.memories.update(owner, id_, MemoryUpdate(expiry=Expiry(ttl_days=100)))
    assert (await upcoming(services, owner)).total == 0


async def test_what_was_brought_back_has_its_days_again(services: Services, owner: Caller) -> None:
    id_ = await made(services, owner, "A thing.", days=29)
    await services.policies.create(owner, PolicyCreate(criteria_type="user", days_to_expire=30))
    await services.memories.change_state(owner, [id_], State.ARCHIVED)
    await services.memories.restore(owner, [id_])
    assert (await upcoming(services, owner)).total == 0
    [item] = (await upcoming(services, owner, 31)).items
    assert near(item.at, 30)


async def test_nothing_of_others_is_told(services: Services, owner: Caller) -> None:
    neighbour = await services.directory.caller(f"{owner.user}-neighbour", None, owner=True)
    await made(services, neighbour, "Mine alone.", ttl_days=1, categories=("errands",), namespace="webshop")
    await made(services, neighbour, "Mine too.", days=400, categories=("errands",), namespace="webshop")
    await made(services, owner, "A thing.", categories=("errands",))
    for new in (
        PolicyCreate(criteria_type="user", days_to_archive=1),
        PolicyCreate(criteria_type="category", criteria_name="errands", days_to_expire=1),
        PolicyCreate(criteria_type="namespace", criteria_name="webshop", days_to_expire=1),
    ):
        await services.policies.create(owner, new)
    page = await upcoming(services, owner)
    assert [item.content for item in page.items] == ["A thing."]
    assert (await upcoming(services, neighbour)).total == 1


async def test_only_the_user_is_told_which_is_no_access_of_an_app(
    services: Services, owner: Caller, app_caller: Caller
) -> None:
    id_ = await made(services, owner, "A thing.", ttl_days=1)
    with pytest.raises(Forbidden):
        await upcoming(services, app_caller)
    await upcoming(services, owner)
    logs = (await services.memories.access_log(owner, id_)).logs
    assert logs == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (UpcomingQuery(-1), "within_days"),
        (UpcomingQuery(36_501), "within_days"),
        (UpcomingQuery(page=0), "page"),
        (UpcomingQuery(size=101), "size"),
    ],
)
async def test_what_cannot_be_asked_is_refused_by_its_field(
    services: Services, owner: Caller, query: UpcomingQuery, field: str
) -> None:
    with pytest.raises(Invalid, match=field):
        await services.upcoming.list(owner, query)
