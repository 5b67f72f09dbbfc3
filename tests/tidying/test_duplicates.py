"""Pairs of near duplicates, and the user's decisions about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from openmemory.config.sections import DedupSettings
from openmemory.dedup import near_duplicates
from openmemory.errors import ConflictError, Forbidden, Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.identity.principal import LOCAL, Scope
from openmemory.index.port import IndexUnavailable
from openmemory.memories.schemas import Event, MemoryCreate, MemoryUpdate
from openmemory.memories.state import State
from openmemory.services import Services
from openmemory.tidying import duplicates
from openmemory.tidying.duplicates import DuplicatePage, DuplicatePair, DuplicatePairs
from openmemory.tidying.schemas import SeenVersion
from tests.adding import add_verbatim, adding_with

OLD, NEW = "Alice is allergic to peanuts.", "Alice has a peanut allergy."
MORE = "Alice is allergic to peanuts and shellfish."
OTHER = "Alice keeps bees."


async def add(services: Services, owner: Caller, *texts: str, **more: Any) -> list[UUID]:
    """Adds texts one after the other, and waits until the index knows them."""
    ids = [(await services.memories.add(owner, MemoryCreate(each, **more))).id for each in texts]
    await services.outbox_delivery.drain()
    return ids


def texts(page: DuplicatePage) -> list[tuple[str, str]]:
    return [(pair.newer.content, pair.older.content) for pair in page.pairs]


def seen(pair: DuplicatePair) -> tuple[SeenVersion, SeenVersion]:
    """The newer and the older memory of a pair."""
    newer, older = pair.newer, pair.older
    return SeenVersion(newer.id, newer.revision), SeenVersion(older.id, older.revision)


async def test_each_pair_is_listed_once_newest_first(services: Services, owner: Caller) -> None:
    await add(services, owner, OLD, "Bob lives in Lisbon.", OTHER, NEW, "Bob is living in Lisbon.", MORE)
    page = await services.duplicates.page(owner)
    assert texts(page) == [
        (MORE, OLD), ("Bob is living in Lisbon.", "Bob lives in Lisbon."), (NEW, OLD),
    ]  # fmt: skip
    assert [pair.says_more for pair in page.pairs] == [True, False, False]
    assert all(0.75 <= pair.similarity <= 1 for pair in page.pairs)
    assert (page.looked_at, page.next, page.note) == (6, None, None)


async def test_the_page_and_added_texts_are_judged_alike(services: Services, owner: Caller) -> None:
    stored = ["Alice lives in Porto.", "Alice works as a nurse.", "The backup runs at 3 am.", "Bob does not eat meat."]
    new = ["Alice is living in Porto.", "Alice works as a doctor.", "The backup runs at 4 am.", "Bob eats meat."]
    await add(services, owner, *stored)
    asking = adding_with(services, near_duplicates="ask")
    told = set()
    for each in new:
        added = await add_verbatim(asking, owner, MemoryCreate(each))
        assert added.event is Event.ADD
        told |= {(each, other.memory) for other in added.possible_duplicates or ()}
        await services.outbox_delivery.drain()
    assert set(texts(await services.duplicates.page(owner))) == told
    assert ("Alice is living in Porto.", "Alice lives in Porto.") in told


async def test_only_comparable_memories_are_paired(services: Services, owner: Caller) -> None:
    await add(services, owner, OLD)
    await add(services, owner, NEW, namespace="shop")
    await add(services, owner, NEW, kind="note")
    await add(services, owner, NEW, key="allergies")
    await add(services, owner, NEW, ttl_days=3)
    [paused] = await add(services, owner, NEW, app="zed")
    await services.memories.change_state(owner, [paused], State.PAUSED)
    assert not (await services.duplicates.page(owner)).pairs
    await services.memories.restore(owner, [paused])
    assert not (await services.duplicates.page(owner)).pairs  # its vector is not there yet
    await services.outbox_delivery.drain()
    assert texts(await services.duplicates.page(owner)) == [(NEW, OLD)]
    elsewhere = replace(owner, principal=replace(LOCAL, namespaces=("shop",)))
    assert not (await services.duplicates.page(elsewhere)).pairs


async def test_pages_follow_each_other_and_are_bounded(
    services: Services, owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = ("Ada", "Ben", "Cleo", "Dora", "Emil")
    await add(services, owner, *(f"{name} is allergic to peanuts." for name in people))
    await add(services, owner, *(f"{name} has a peanut allergy." for name in people))
    whole = await services.duplicates.page(owner)
    assert len(whole.pairs) == 5
    monkeypatch.setattr(duplicates, "PAIRS", 2)
    monkeypatch.setattr(duplicates, "STRETCH", 3)
    monkeypatch.setattr(duplicates, "STRETCHES", 2)
    found, compared, page = [], [], await services.duplicates.page(owner)
    while True:
        found += texts(page)
        compared.append(page.looked_at)
        if page.next is None:
            break
        page = await services.duplicates.page(owner, page.next)
    assert found == texts(whole)
    assert sum(compared) == 10
    assert compared[:2] == [2, 2]
    assert max(compared) <= 6


@pytest.mark.parametrize("place", [0, 1])
async def test_merging_supersedes_one_and_is_undone(services: Services, owner: Caller, place: int) -> None:
    await add(services, owner, OLD, NEW)
    [pair] = (await services.duplicates.page(owner)).pairs
    versions = seen(pair)
    kept, other = versions[place], versions[1 - place]
    action = await services.duplicates.merge(owner, kept, other)
    record = await services.memories.get(owner, other.id)
    assert (record.state, record.superseded_by) == (State.ARCHIVED, kept.id)
    assert (await services.memories.get(owner, kept.id)).state is State.ACTIVE
    assert not (await services.duplicates.page(owner)).pairs
    await services.bulk.undo(owner, action)
    record = await services.memories.get(owner, other.id)
    assert (record.state, record.superseded_by, record.valid_until) == (State.ACTIVE, None, None)
    await services.outbox_delivery.drain()
    assert texts(await services.duplicates.page(owner)) == [(NEW, OLD)]


async def test_a_kept_pair_does_not_come_back_until_that_is_undone(services: Services, owner: Caller) -> None:
    ids = await add(services, owner, OLD, NEW, MORE)
    [_, pair] = (await services.duplicates.page(owner)).pairs
    await services.duplicates.keep(owner, *seen(pair))
    await services.duplicates.keep(owner, *seen(pair))
    assert texts(await services.duplicates.page(owner)) == [(MORE, OLD)]
    await services.duplicates.list_again(owner, pair.older.id, pair.newer.id)
    assert len((await services.duplicates.page(owner)).pairs) == 2
    with pytest.raises(NotFound, match="nothing to undo"):
        await services.duplicates.list_again(owner, pair.older.id, pair.newer.id)
    await services.duplicates.keep(owner, *seen(pair))
    await services.memories.erase(owner, ids[:1])
    async with services.database.statement() as tx:
        left = await tx.scalar(text("SELECT count(*) FROM kept_pairs WHERE :id IN (first, second)"), {"id": ids[1]})
    assert left == 0


async def test_what_changed_since_it_was_shown_is_not_merged(services: Services, owner: Caller) -> None:
    ids = await add(services, owner, OLD, NEW)
    [pair] = (await services.duplicates.page(owner)).pairs
    await services.memories.update(owner, ids[0], MemoryUpdate(OTHER))
    for decide in (services.duplicates.merge, services.duplicates.keep):
        with pytest.raises(ConflictError, match="changed since"):
            await decide(owner, *seen(pair))
    await services.memories.delete(owner, ids[1:])
    with pytest.raises(NotFound):
        await services.duplicates.merge(owner, *seen(pair))


async def test_refusals_say_why(services: Services, owner: Caller) -> None:
    await add(services, owner, OLD, NEW)
    [pair] = (await services.duplicates.page(owner)).pairs
    newer, older = seen(pair)
    app = await services.directory.caller(owner.user, "claude")
    stranger = await services.directory.caller(f"{owner.user}-else", None, owner=True)
    reader = replace(owner, principal=replace(LOCAL, scopes=frozenset({Scope.READ})))
    elsewhere = replace(owner, principal=replace(LOCAL, namespaces=("shop",)))
    await services.duplicates.keep(owner, newer, older)
    refused = ((app, Forbidden), (reader, Forbidden), (stranger, NotFound), (elsewhere, NotFound))
    for caller, error in refused:
        for decide in (services.duplicates.merge, services.duplicates.keep):
            with pytest.raises(error):
                await decide(caller, newer, older)
        with pytest.raises(error):
            await services.duplicates.list_again(caller, newer.id, older.id)
    with pytest.raises(Forbidden):
        await services.duplicates.page(app)
    with pytest.raises(Invalid, match="another memory"):
        await services.duplicates.merge(owner, newer, newer)


async def test_an_outage_or_an_unknown_model_is_a_note(
    services: Services, owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(services, owner, OLD, NEW)

    async def away(*_: object) -> None:
        raise IndexUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(services.index, "search", away)
        page = await services.duplicates.page(owner)
    assert (page.pairs, page.note) == ([], near_duplicates.NO_INDEX)
    monkeypatch.setattr(near_duplicates, "MIN_SIMILARITY", {})
    pairs = DuplicatePairs(
        services.database, services.spaces, services.outbox_delivery,
        settings=DedupSettings(), written=services.memories.written,
    )  # fmt: skip
    assert (await pairs.page(owner)).note == near_duplicates.NO_THRESHOLD


@pytest.mark.slow
async def test_a_text_without_a_stored_vector_is_embedded(services: Services, owner: Caller) -> None:
    ids = await add(services, owner, OLD, NEW)
    async with services.database.transaction() as tx:
        await tx.execute(text("DELETE FROM embeddings WHERE id = ANY(:ids)"), {"ids": ids})
    assert texts(await services.duplicates.page(owner)) == [(NEW, OLD)]
