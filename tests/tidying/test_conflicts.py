"""Conflicts between key-value facts, and the user's decisions about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from openmemory.errors import ConflictError, Forbidden, Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.identity.principal import LOCAL, Scope
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.memories.state import State
from openmemory.services import Services
from openmemory.tidying import conflicts
from openmemory.tidying.conflicts import FactConflict
from openmemory.tidying.schemas import FactChoice, SeenVersion


async def add(services: Services, owner: Caller, *facts: tuple[str, str], namespace: str = "default") -> list[UUID]:
    """Adds one text after the other, each as an app."""
    added = []
    for app, text in facts:
        new = MemoryCreate(text, app=app, namespace=namespace)
        added.append((await services.memories.add(owner, new)).id)
    return added


def decision(conflict: FactConflict, kept: int) -> FactChoice:
    """Keeps one of the facts of a conflict."""
    versions = [SeenVersion(fact.memory.id, fact.memory.revision) for fact in conflict.facts]
    return FactChoice(conflict.key, versions[kept], versions)


async def texts(services: Services, owner: Caller, ids: Sequence[UUID]) -> list[tuple[str, State]]:
    records = [await services.memories.get(owner, each) for each in ids]
    return [(record.content, record.state) for record in records]


async def test_each_conflict_is_listed_once_with_its_facts(services: Services, owner: Caller) -> None:
    await add(services, owner, ("claude", "budget=40K | lead=Ada"), ("cursor", "Budget=50K"), ("zed", "lead=Bob | x=1"))
    await add(services, owner, ("claude", "budget=1"), ("cursor", "budget=1"), namespace="shop")
    await add(services, owner, ("claude", "a=1 | a=2 | b=1"), ("claude", "no facts: budget = 3"))
    found = await services.conflicts.list(owner)
    assert [(each.key, each.namespace) for each in found.items] == [("lead", "default"), ("budget", "default")]
    lead, budget = found.items
    assert [(fact.value, fact.alone, fact.memory.app_name) for fact in budget.facts] == [
        ("50K", True, "cursor"), ("40K", False, "claude"),
    ]  # fmt: skip
    assert [fact.value for fact in lead.facts] == ["Bob", "Ada"]
    second = await services.conflicts.list(owner, page=2, size=1)
    assert [each.key for each in second.items] == ["budget"]


async def test_keeping_a_fact_supersedes_the_others_and_is_undone(services: Services, owner: Caller) -> None:
    ids = await add(services, owner, ("claude", "budget=40K"), ("cursor", "budget=50K"), ("zed", "budget=60K"))
    [conflict] = (await services.conflicts.list(owner)).items
    decided = await services.conflicts.decide(owner, decision(conflict, 2))
    assert (decided.value, decided.superseded, decided.corrected) == ("40K", 2, 0)
    assert not (await services.conflicts.list(owner)).items
    for each in ids[1:]:
        record = await services.memories.get(owner, each)
        assert (record.state, record.superseded_by) == (State.ARCHIVED, ids[0])
    assert await services.bulk.undo(owner, decided.action) == (2, 0)
    record = await services.memories.get(owner, ids[1])
    assert (record.state, record.superseded_by, record.valid_until) == (State.ACTIVE, None, None)
    assert (await services.conflicts.list(owner)).total == 1


async def test_a_memory_that_says_more_is_corrected_and_comes_back(services: Services, owner: Caller) -> None:
    ids = await add(
        services,
        owner,
        ("claude", "budget=40K | lead=Ada"),
        ("cursor", "budget=50K | deadline=May"),
        ("zed", "lead=Ada | budget=60K"),
    )
    [conflict] = (await services.conflicts.list(owner)).items
    decided = await services.conflicts.decide(owner, decision(conflict, 2))
    assert (decided.superseded, decided.corrected) == (1, 1)
    assert await texts(services, owner, ids) == [
        ("budget=40K | lead=Ada", State.ACTIVE),
        ("budget=40K | deadline=May", State.ACTIVE),
        ("lead=Ada | budget=60K", State.ARCHIVED),
    ]
    assert await services.bulk.undo(owner, decided.action) == (2, 0)
    assert [state for _, state in await texts(services, owner, ids)] == ["active"] * 3
    history = await services.memories.history(owner, ids[1])
    assert [each.new_text for each in history.revisions] == [
        "budget=50K | deadline=May", "budget=40K | deadline=May", "budget=50K | deadline=May",
    ]  # fmt: skip


async def test_an_undo_leaves_what_was_changed_since(services: Services, owner: Caller) -> None:
    ids = await add(services, owner, ("claude", "budget=40K"), ("cursor", "budget=50K | deadline=May"))
    [conflict] = (await services.conflicts.list(owner)).items
    decided = await services.conflicts.decide(owner, decision(conflict, 1))
    await services.memories.update(owner, ids[1], MemoryUpdate("deadline=June"))
    assert await services.bulk.undo(owner, decided.action) == (0, 1)
    assert (await texts(services, owner, ids))[1] == ("deadline=June", "active")


async def test_what_changed_since_it_was_shown_is_not_decided(services: Services, owner: Caller) -> None:
    ids = await add(services, owner, ("claude", "budget=40K"), ("cursor", "budget=50K"))
    [conflict] = (await services.conflicts.list(owner)).items
    await services.memories.update(owner, ids[1], MemoryUpdate("budget=55K"))
    with pytest.raises(ConflictError, match="changed since"):
        await services.conflicts.decide(owner, decision(conflict, 1))
    [conflict] = (await services.conflicts.list(owner)).items
    await services.memories.delete(owner, ids[:1])
    with pytest.raises(NotFound):
        await services.conflicts.decide(owner, decision(conflict, 0))
    assert await texts(services, owner, ids) == [("budget=40K", "deleted"), ("budget=55K", "active")]


async def test_a_correction_that_would_make_a_duplicate_changes_nothing(services: Services, owner: Caller) -> None:
    ids = await add(
        services, owner, ("claude", "budget=40K"), ("cursor", "budget=50K | at=May"), ("cursor", "budget=40K | at=May")
    )
    [conflict] = (await services.conflicts.list(owner)).items
    kept = next(place for place, fact in enumerate(conflict.facts) if fact.memory.id == ids[0])
    with pytest.raises(ConflictError, match="says exactly this"):
        await services.conflicts.decide(owner, decision(conflict, kept))
    assert [state for _, state in await texts(services, owner, ids)] == ["active"] * 3


async def test_refusals_say_why(services: Services, owner: Caller) -> None:
    ids = await add(services, owner, ("claude", "budget=40K"), ("cursor", "budget=50K"), ("zed", "budget=50K"))
    [conflict] = (await services.conflicts.list(owner)).items
    wanted = decision(conflict, 2)
    app = await services.directory.caller(owner.user, "claude")
    stranger = await services.directory.caller(f"{owner.user}-else", None, owner=True)
    reader = replace(owner, principal=replace(LOCAL, scopes=frozenset({Scope.READ})))
    elsewhere = replace(owner, principal=replace(LOCAL, namespaces=("shop",)))
    for caller, error in ((app, Forbidden), (reader, Forbidden), (stranger, NotFound), (elsewhere, NotFound)):
        with pytest.raises(error):
            await services.conflicts.decide(caller, wanted)
    with pytest.raises(Invalid, match="other"):
        await services.conflicts.decide(owner, wanted._replace(others=[]))
    with pytest.raises(ConflictError, match="do not disagree"):
        await services.conflicts.decide(owner, wanted._replace(key="lead"))
    same = [SeenVersion(each, 1) for each in ids[1:]]
    with pytest.raises(ConflictError, match="do not disagree"):
        await services.conflicts.decide(owner, FactChoice("budget", same[0], same))
    assert not (await services.conflicts.list(elsewhere)).total
    assert not (await services.conflicts.list(stranger)).total


async def test_many_facts_of_one_key_are_shown_in_parts(
    services: Services, owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflicts, "MAX_MEMORIES", 3)
    await add(services, owner, *((f"app-{number}", f"mood={number}") for number in range(5)))
    [conflict] = (await services.conflicts.list(owner)).items
    assert ([fact.value for fact in conflict.facts], conflict.more) == (["4", "3", "2"], 2)
