"""Rules about an app hold for the texts that it wrote, whichever app added the memory that holds them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text

from openmemory.access.schemas import GrantCreate
from openmemory.errors import NotFound
from openmemory.identity.caller import Caller
from openmemory.memories import changes
from openmemory.memories.models import Memory
from openmemory.memories.schemas import MemoryCreate, MemoryQuery, MemoryUpdate
from openmemory.projects.schemas import NewCheckpoint, NewValue
from openmemory.schema.migrate import configuration
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services


class Apps:
    """A user, their apps, and what the app `reader` may read."""

    def __init__(self, services: Services, owner: Caller, first: Caller, second: Caller, reader: Caller) -> None:
        self.services, self.owner = services, owner
        self.first, self.second, self.reader = first, second, reader

    async def rule(self, effect: str, about: Caller, app: str | None = "reader") -> None:
        new = {"effect": effect, "app": app, "object_type": "app", "object": about.app}
        await self.services.grants.create(self.owner, GrantCreate.model_validate(new))

    async def rewritten(self, **change: Any) -> Any:
        """A memory that the first app added and the second changed."""
        added = await self.services.memories.add(self.first, MemoryCreate("The alpaca likes grass."))
        change = change or {"text": "The alpaca likes secret hay."}
        await self.services.memories.update(self.second, added.id, MemoryUpdate(**change))
        await self.services.outbox_delivery.drain()
        return added.id

    async def reads(self, id_: Any, reader: Caller | None = None) -> bool:
        """Whether the reader gets a memory through any door: all of them agree."""
        reader = reader or self.reader
        listed = await self.services.memories.list(reader, MemoryQuery())
        found = await self.services.search.search(reader, SearchQuery("what does the alpaca like"))
        try:
            await self.services.memories.get(reader, id_)
        except NotFound:
            got = False
        else:
            got = True
        explained = await self.services.grants.explain(self.owner, reader.app, id_)
        everywhere = {got, id_ in {one.id for one in listed.items}, id_ in {one.id for one in found.results}}
        if reader.default == "user":
            everywhere.add(explained.allowed)
        assert len(everywhere) == 1, everywhere
        return got


@pytest.fixture
async def apps(services: Services, new_user: str) -> Apps:
    callers = [await services.directory.caller(new_user, name) for name in ("first", "second", "reader")]
    return Apps(services, await services.directory.caller(new_user, None, owner=True), *callers)


@pytest.mark.slow
@pytest.mark.parametrize("subject", ["reader", None])
@pytest.mark.parametrize("change", [{"text": "The alpaca likes hay."}, {"metadata": {"note": "hay"}}])
@pytest.mark.parametrize("denied", ["first", "second"])
async def test_a_rule_against_an_app_hides_every_memory_that_it_had_a_part_in(apps, subject, change, denied):
    id_ = await apps.rewritten(**change)
    assert await apps.reads(id_)
    await apps.rule("deny", getattr(apps, denied), subject)
    assert not await apps.reads(id_)


async def test_a_rule_against_an_app_hides_its_state_and_its_values(apps, services):
    await services.states.checkpoint(apps.first, NewCheckpoint({"a": 1}, "begun", "web"))
    await services.states.checkpoint(apps.second, NewCheckpoint({"a": "secret"}, "went on", "web"))
    await services.values.set(apps.first, NewValue("topic", "key", "plain", "web"))
    await services.values.set(apps.second, NewValue("topic", "key", "secret", "web"))
    assert (await services.states.read(apps.reader, "web")).app_name == "second"
    assert (await services.values.get(apps.reader, "topic", "key", ["web"])).app_name == "second"
    await apps.rule("deny", apps.second)
    with pytest.raises(NotFound):
        await services.states.read(apps.reader, "web")
    with pytest.raises(NotFound):
        await services.values.get(apps.reader, "topic", "key", ["web"])
    assert (await services.values.list(apps.reader, namespaces=["web"])).items == []


async def test_an_app_that_may_read_one_app_does_not_read_the_text_of_another_in_its_memory(apps):
    id_ = await apps.rewritten()
    await apps.rule("allow", apps.first)
    assert not await apps.reads(id_)
    await apps.rule("allow", apps.second)
    assert await apps.reads(id_)


async def test_under_own_app_a_memory_is_of_the_app_that_wrote_its_text(apps):
    id_ = await apps.rewritten()
    assert not await apps.reads(id_, replace(apps.first, default="own_app"))
    assert await apps.reads(id_, replace(apps.second, default="own_app"))


async def test_a_text_that_the_user_corrected_stays_readable_for_the_app_that_added_it(apps, services):
    id_ = await apps.rewritten()
    await services.memories.update(apps.owner, id_, MemoryUpdate("The alpaca likes carrots."))
    await services.outbox_delivery.drain()
    assert await apps.reads(id_, replace(apps.first, default="own_app"))
    assert not await apps.reads(id_, replace(apps.second, default="own_app"))
    await apps.rule("allow", apps.first)
    assert await apps.reads(id_)
    await apps.rule("deny", apps.owner)
    assert not await apps.reads(id_)


async def test_memories_show_the_app_that_added_them_and_the_app_of_the_text(apps, services):
    id_ = await apps.rewritten()
    record = await services.memories.get(apps.reader, id_)
    assert (record.app_name, record.text_app_name) == ("first", "second")
    [found] = (await services.search.search(apps.reader, SearchQuery("what does the alpaca like"))).results
    assert found.app_name == "second"


async def test_an_app_does_not_see_a_former_text_of_an_app_that_is_hidden_from_it_now(apps, services):
    id_ = await apps.rewritten()
    before = datetime.now(UTC)
    await services.memories.update(apps.reader, id_, MemoryUpdate(metadata={"mark": "m"}))
    await services.memories.update(apps.reader, id_, MemoryUpdate("The alpaca likes straw."))
    old = [one.old_text for one in (await services.memories.history(apps.reader, id_)).revisions]
    assert "The alpaca likes secret hay." in old
    as_it_was = SearchQuery("what does the alpaca like", as_of=before)
    assert [one.memory for one in (await services.search.search(apps.reader, as_it_was)).results]
    await apps.rule("deny", apps.second)
    assert await apps.reads(id_)
    assert "secret" not in str(await services.memories.history(apps.reader, id_))
    assert (await services.search.search(apps.reader, as_it_was)).results == []


async def test_a_text_that_is_restored_is_again_of_the_app_that_wrote_it(apps, services):
    id_ = await apps.rewritten()
    await services.memories.update(apps.first, id_, MemoryUpdate("The alpaca likes oats."))
    async with services.database.transaction() as tx:
        change = MemoryUpdate("The alpaca likes secret hay.")
        await changes.update_text(tx, apps.owner, Memory.id == id_, change, lambda *_: (), restored_revision=2)
    assert (await services.memories.get(apps.owner, id_)).text_app_name == "second"
    await services.outbox_delivery.drain()
    await apps.rule("deny", apps.second)
    assert not await apps.reads(id_)


async def test_the_migration_finds_the_writers_in_the_revisions(apps, services):
    id_ = await apps.rewritten(text="The alpaca likes hay.")
    await services.memories.update(apps.reader, id_, MemoryUpdate(metadata={"mark": "m"}))
    corrected = (await services.memories.add(apps.first, MemoryCreate("The llama likes hay."))).id
    await services.memories.update(apps.owner, corrected, MemoryUpdate("The llama likes oats."))
    script = ScriptDirectory.from_config(configuration("postgresql://localhost/none")).get_revision(
        "2026_11_27_writers"
    )
    columns = text("SELECT text_app_id, metadata_app_id, text_by_user FROM memories WHERE id = :id")
    clear = text("UPDATE memories SET text_app_id = NULL, metadata_app_id = NULL, text_by_user = false WHERE id = :id")
    for memory, writers in (
        (id_, (apps.second.app_id, apps.reader.app_id, False)),
        (corrected, (apps.owner.app_id, None, True)),
    ):
        async with services.database.transaction() as tx:
            assert (await tx.execute(columns, {"id": memory})).one() == writers
            await tx.execute(clear, {"id": memory})
            await tx.execute(text(script.module.FILL))
            assert (await tx.execute(columns, {"id": memory})).one() == writers
