"""The answer to an added text names what it may change, and a text can name what it supersedes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from openmemory.access.schemas import GrantCreate
from openmemory.capture.schemas import Added, CaptureCreate
from openmemory.dedup import near_changes
from openmemory.embeddings.port import EmbedderUnavailable, TextEmbedding
from openmemory.errors import NotFound
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Scope
from openmemory.memories.schemas import Event, MemoryCreate, MemoryQuery
from openmemory.memories.state import State
from openmemory.services import Services

OLD, NEW = "I live in Hamburg.", "I moved to Leipzig last week."


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not make the answers late."""
    monkeypatch.setattr(near_changes, "BUDGET", 20.0)


async def add(services: Services, caller: Caller, said: str, *supersedes: UUID, **fields: object) -> Added:
    new = CaptureCreate(MemoryCreate(said, **fields), supersedes=supersedes)  # type: ignore[arg-type]
    added = await services.adding.add(caller, new, infer=False)
    await services.outbox_delivery.drain()
    return added


async def test_the_answer_names_what_the_text_may_change(services: Services, app_caller: Caller, owner: Caller):
    old = await add(services, app_caller, OLD)
    await add(services, app_caller, "The webshop sells tea.")
    assert old.near == []
    added = await add(services, app_caller, NEW)
    assert [(one.id, one.memory, one.replaced) for one in added.near] == [(old.id, OLD, True)]
    assert old.id is not None
    log = await services.memories.access_log(owner, old.id)
    assert {"part": "near"} in [entry.metadata_ for entry in log.logs]


async def test_nothing_is_named_that_the_caller_may_not_read(services: Services, app_caller: Caller, owner: Caller):
    secret = await add(services, owner, OLD)
    await services.grants.create(
        owner, GrantCreate(effect="deny", app="claude", object_type="memory", object=str(secret.id))
    )
    assert (await add(services, app_caller, NEW)).near == []
    blind = replace(app_caller, principal=replace(app_caller.principal, scopes=frozenset({Scope.WRITE})))
    await add(services, app_caller, "I work at Acme.")
    assert (await add(services, blind, "I work at Globex now.")).near == []


async def test_what_somebody_else_said_is_not_named(services: Services, app_caller: Caller):
    await add(services, app_caller, OLD, metadata={"role": "assistant"})
    assert (await add(services, app_caller, NEW, metadata={"role": "user"})).near == []
    assert (await add(services, app_caller, "I moved to Dresden last week.", metadata={"role": "assistant"})).near


async def test_what_is_late_is_left_out(services: Services, app_caller: Caller, monkeypatch: pytest.MonkeyPatch):
    await add(services, app_caller, OLD)
    monkeypatch.setattr(near_changes, "BUDGET", 0.0)
    added = await add(services, app_caller, NEW)
    assert (added.event, added.near) == (Event.ADD, [])


async def test_without_the_model_words_are_compared(
    services: Services, app_caller: Caller, monkeypatch: pytest.MonkeyPatch
):
    old = await add(services, app_caller, "The database port is 5433.")

    async def fail(*_: object) -> None:
        raise EmbedderUnavailable("it is away")

    monkeypatch.setattr(type(services.spaces.serving), "document", fail)
    # The look-up by words asks the index, which knows the older one.
    added = await add(services, app_caller, "The database port is 5434.")
    assert [one.id for one in added.near] == [old.id]


async def test_a_slow_model_is_not_waited_for(services: Services, app_caller: Caller, monkeypatch: pytest.MonkeyPatch):
    old = await add(services, app_caller, "The database port is 5433.")
    until_the_end = asyncio.Event()

    async def wait(*_: object) -> None:
        await until_the_end.wait()

    monkeypatch.setattr(near_changes, "BUDGET", 2.0)
    monkeypatch.setattr(type(services.spaces.serving), "document", wait)
    added = await add(services, app_caller, "The database port is 5434.")
    assert [one.id for one in added.near] == [old.id]


async def test_the_look_up_and_the_delivery_share_an_embedding(
    services: Services, app_caller: Caller, monkeypatch: pytest.MonkeyPatch
):
    await add(services, app_caller, OLD)
    model, asked = services.spaces.serving.embedder.inner, list[str]()
    embed = model.documents

    async def documents(texts: Sequence[str]) -> list[TextEmbedding]:
        asked.extend(texts)
        return await embed(texts)

    monkeypatch.setattr(model, "documents", documents)
    monkeypatch.setattr(model, "query", None)  # nothing is embedded as a question
    assert (await add(services, app_caller, NEW)).near
    assert asked == [NEW]


async def test_many_at_once_are_stored_though_few_are_compared(services: Services, app_caller: Caller):
    added = await asyncio.gather(*(add(services, app_caller, f"I live in town {n} now.") for n in range(12)))
    assert {one.event for one in added} == {Event.ADD}


async def test_a_text_supersedes_what_it_names(services: Services, app_caller: Caller, owner: Caller):
    old = await add(services, app_caller, OLD)
    assert old.id is not None
    added = await add(services, app_caller, NEW, old.id)
    assert (added.event, added.previous_memory) == (Event.SUPERSEDE, OLD)
    record = await services.memories.get(owner, old.id)
    assert (record.state, record.superseded_by) == (State.ARCHIVED, added.id)
    assert [each.content for each in (await services.memories.list(app_caller, MemoryQuery())).items] == [NEW]


async def test_an_identical_text_supersedes_too(services: Services, app_caller: Caller, owner: Caller):
    old, new = await add(services, app_caller, OLD), await add(services, app_caller, NEW)
    assert old.id is not None
    again = await add(services, app_caller, NEW, old.id)
    assert (again.id, again.event) == (new.id, Event.NONE)
    assert (await services.memories.get(owner, old.id)).superseded_by == new.id


async def test_nothing_is_stored_if_one_is_unknown(services: Services, app_caller: Caller):
    old = await add(services, app_caller, OLD)
    assert old.id is not None
    with pytest.raises(NotFound):
        await add(services, app_caller, NEW, old.id, uuid4())
    assert [each.content for each in (await services.memories.list(app_caller, MemoryQuery())).items] == [OLD]


async def test_an_app_supersedes_only_what_it_may_read(services: Services, app_caller: Caller, owner: Caller):
    secret = await add(services, owner, OLD)
    assert secret.id is not None
    await services.grants.create(
        owner, GrantCreate(effect="deny", app="claude", object_type="memory", object=str(secret.id))
    )
    with pytest.raises(NotFound):
        await add(services, app_caller, NEW, secret.id)
    assert (await services.memories.get(owner, secret.id)).state is State.ACTIVE
