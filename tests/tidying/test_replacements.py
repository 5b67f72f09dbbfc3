"""The pairs of memories of which the newer may replace the older, and the user's decisions about them."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from openmemory.errors import ConflictError, Forbidden, Invalid
from openmemory.identity.caller import Caller
from openmemory.identity.principal import LOCAL
from openmemory.memories.schemas import MemoryCreate
from openmemory.memories.state import State
from openmemory.services import Services
from openmemory.tidying.schemas import SeenVersion

OLD, NEW = "I live in Hamburg.", "I moved to Leipzig last week."


async def told(services: Services, caller: Caller, *texts: str, **fields: object) -> list[UUID]:
    """Memories of these texts, in the index."""
    ids = [(await services.memories.add(caller, MemoryCreate(said, **fields))).id for said in texts]  # type: ignore[arg-type]
    await services.outbox_delivery.drain()
    return ids


async def pairs(services: Services, owner: Caller) -> list[tuple[str, str, bool]]:
    page = await services.replacements.list(owner)
    assert page.total == len(page.items)
    return [(pair.newer.content, pair.older.content, pair.replaces) for pair in page.items]


@pytest.mark.slow
async def test_pairs_are_listed_newest_first(services: Services, owner: Caller):
    await told(services, owner, OLD, "The webshop sells tea.", NEW, "I work at Acme.", "I started at Globex on Monday.")
    assert [pair for pair in await pairs(services, owner) if pair[2]] == [
        ("I started at Globex on Monday.", "I work at Acme.", True),
        (NEW, OLD, True),
    ]
    every = (await services.replacements.list(owner)).items
    assert every[0].because
    page = await services.replacements.list(owner, page=2, size=1)
    assert ([*page.items], page.total) == ([every[1]], len(every))


async def test_the_older_one_is_replaced_and_that_is_undone(services: Services, owner: Caller):
    old, new = await told(services, owner, OLD, NEW)
    action = await services.duplicates.merge(owner, SeenVersion(new, 1), SeenVersion(old, 1))
    record = await services.memories.get(owner, old)
    assert (record.state, record.superseded_by) == (State.ARCHIVED, new)
    assert await pairs(services, owner) == []
    await services.bulk.undo(owner, action)
    assert (await services.memories.get(owner, old)).state is State.ACTIVE


@pytest.mark.parametrize("decision", ["both", "different"])
async def test_a_decided_pair_does_not_come_back(services: Services, owner: Caller, decision):
    old, new = await told(services, owner, OLD, NEW)
    await services.duplicates.keep(owner, SeenVersion(new, None), SeenVersion(old, None), decision=decision)
    assert await pairs(services, owner) == []
    await services.duplicates.list_again(owner, new, old)
    assert await pairs(services, owner) == [(NEW, OLD, True)]


async def test_a_memory_that_changed_since_is_not_decided_about(services: Services, owner: Caller):
    old, new = await told(services, owner, OLD, NEW)
    with pytest.raises(ConflictError):
        await services.duplicates.merge(owner, SeenVersion(new, 2), SeenVersion(old, 1))


async def test_apps_and_wrong_pages_are_refused(services: Services, owner: Caller, app_caller: Caller):
    with pytest.raises(Forbidden):
        await services.replacements.list(app_caller)
    with pytest.raises(Invalid):
        await services.replacements.list(owner, size=1_000)


@pytest.mark.slow
async def test_a_credential_for_some_namespaces_sees_their_pairs_only(services: Services, owner: Caller):
    await told(services, owner, OLD, NEW, namespace="home")
    await told(services, owner, "I work at Acme.", "I started at Globex on Monday.", namespace="work")
    bounded = replace(owner, principal=replace(LOCAL, user=owner.user, namespaces=frozenset({"home"})))
    assert await pairs(services, bounded) == [(NEW, OLD, True)]
