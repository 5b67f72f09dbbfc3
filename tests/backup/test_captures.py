"""Captures go with an archive: what waits is not lost, and what was done can still be undone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from openmemory.capture.schemas import CaptureCreate, CaptureView, Turn
from openmemory.capture.status import Status
from openmemory.config.settings import Settings
from openmemory.identity.caller import Caller
from openmemory.memories.idempotency import IdempotentRequest
from openmemory.memories.schemas import MemoryCreate, MemoryQuery
from openmemory.memories.state import State
from openmemory.services import Services, open_services
from tests.backup.archives import Upstream, bring_in, compressed, export, lines_of, members, new_id, send, zipped
from tests.backup.conftest import client_of
from tests.capture.conftest import does, numbers, operation
from tests.clusters import furnish
from tests.llm.server import Answer, LlmServer, says

CAPTURES, STEPS = "captures.jsonl.gz", "capture_steps.jsonl.gz"
OLD = ("Alice lives in Lisbon.", "Alice has a cat.", "Alice likes snow.")


async def said(services: Services, model: LlmServer, user: str) -> tuple[Caller, CaptureView]:
    """Something was said of which every sort of change was made, and one refused."""
    claude = await services.directory.caller(user, "claude")
    for each in OLD:
        await services.memories.add(claude, MemoryCreate(text=each, categories=(f"about {user}",)))

    def decide(asked: dict[str, Any]) -> Any:
        shown = numbers(asked)
        lisbon, cat, snow = (shown[each] for each in OLD)
        return says(
            {
                "operations": [
                    operation("ADD", text="Alice skates."),
                    operation("UPDATE", id=cat, text="Alice has a cat, Mia."),
                    operation("SUPERSEDE", id=lisbon, text="Alice lives in Porto."),
                    operation("DELETE", id=snow),
                    operation("NONE", text="Hello!", reason="junk"),
                ]
            }
        )

    model.script = decide
    new = CaptureCreate(MemoryCreate(text="I moved to Porto. " + " ".join(OLD)), wait=True)
    outcome = await services.captures.add(claude, new)
    assert (outcome.status, len(outcome.results), len(outcome.refused)) == (Status.DONE, 4, 1)
    return claude, await services.captures.get(await services.directory.existing(user), outcome.capture_id)


async def texts(services: Services, user: str) -> list[str]:
    owner = await services.directory.existing(user)
    return sorted(item.content for item in (await services.memories.list(owner, MemoryQuery())).items)


def elsewhere(folder: Path, user: str, **settings: Any) -> Any:
    """Another service, on a data folder of its own."""
    given = {"data_dir": str(furnish(folder)), "port": 0, "access": {"default_user": user}} | settings
    return open_services(Settings.model_validate(given))


@pytest.mark.slow
async def test_what_was_done_is_undone_in_another_service(
    inferring: Services, model: LlmServer, new_user: str, short_folder: Path
) -> None:
    _, view = await said(inferring, model, new_user)
    async with client_of(inferring) as client:
        archive = await export(client, new_user)

    async def move() -> None:
        async with elsewhere(short_folder / f"undo-{new_user}", new_user) as fresh, client_of(fresh) as client:
            report = await bring_in(client, new_user, archive)
            assert (report["captures"], report["left_out"]) == (1, [])
            owner = await fresh.directory.existing(new_user)
            there = await fresh.captures.get(owner, view.capture_id)
            assert there.model_dump(exclude={"app_id"}) == view.model_dump(exclude={"app_id"})
            assert lines_of(await export(client, new_user), STEPS) == lines_of(archive, STEPS)
            assert sorted(await texts(fresh, new_user)) == sorted(
                ["Alice has a cat, Mia.", "Alice lives in Porto.", "Alice skates."]
            )
            await fresh.captures.undo(owner, view.capture_id)
            assert await texts(fresh, new_user) == sorted(OLD)
            [home] = [
                item
                for item in (await fresh.memories.list(owner, MemoryQuery(text="Lisbon"))).items
                if item.state is State.ACTIVE
            ]
            assert (home.superseded_by, home.valid_until, home.categories) == (None, None, [f"about {new_user}"])

    await asyncio.create_task(move())


async def test_what_was_done_is_undone_where_memories_got_other_ids(
    inferring: Services, model: LlmServer, new_user: str
) -> None:
    _, view = await said(inferring, model, new_user)
    other = f"{new_user}-other"
    owner = await inferring.directory.caller(other, None, owner=True)
    async with client_of(inferring) as client:
        archive = await export(client, new_user)
        report = await bring_in(client, other, archive)
        assert (report["captures"], report["memories"]["renamed"], report["left_out"]) == (1, 5, [])
        again = await bring_in(client, other, archive)
        assert (again["captures"], again["left_out"]) == (0, [])
    [theirs] = (await inferring.captures.list(owner)).items
    assert theirs.capture_id != view.capture_id
    ids = {result.id for result in theirs.results}
    assert ids.isdisjoint(result.id for result in view.results)
    await inferring.captures.undo(owner, theirs.capture_id)
    assert await texts(inferring, other) == sorted(OLD)
    assert await texts(inferring, new_user) == sorted(
        ["Alice has a cat, Mia.", "Alice lives in Porto.", "Alice skates."]
    )


async def test_a_text_that_was_read_late_is_undone_where_memories_got_other_ids(
    inferring: Services, model: LlmServer, new_user: str, eventually: Any
) -> None:
    claude = await inferring.directory.caller(new_user, "claude")
    model.script = lambda _: Answer("This model's maximum context length is 64 tokens.", status=400)
    outcome = await inferring.captures.add(claude, CaptureCreate(MemoryCreate(text="I skate."), wait=True))
    assert (outcome.status, [each.memory for each in outcome.results]) == (Status.FAILED, ["I skate."])
    model.script = does(operation("ADD", text="Alice skates."))
    await inferring.captures.add(claude, CaptureCreate(MemoryCreate(text="I skate."), wait=True))

    async def read() -> bool:
        return (await inferring.captures.outcome(claude, outcome.capture_id)).status is Status.DONE

    await eventually(read)
    other = f"{new_user}-other"
    owner = await inferring.directory.caller(other, None, owner=True)
    async with client_of(inferring) as client:
        report = await bring_in(client, other, await export(client, new_user))
    assert (report["captures"], report["left_out"]) == (1, [])
    [theirs] = (await inferring.captures.list(owner)).items
    assert await texts(inferring, other) == ["Alice skates."]
    await inferring.captures.undo(owner, theirs.capture_id)
    found = await inferring.memories.list(owner, MemoryQuery(states=(State.DELETED,)))
    assert sorted(each.content for each in found.items) == ["Alice skates.", "I skate."]


async def test_what_is_here_already_stays_as_it_is(inferring: Services, model: LlmServer, new_user: str) -> None:
    claude, view = await said(inferring, model, new_user)
    async with client_of(inferring) as client:
        archive = await export(client, new_user)
        await inferring.captures.undo(claude, view.capture_id)
        assert (await bring_in(client, new_user, archive))["captures"] == 0
    assert (await inferring.captures.get(claude, view.capture_id)).status is Status.UNDONE


@pytest.mark.slow
@pytest.mark.parametrize("status", [Status.PENDING, Status.WORKING])
async def test_what_waited_is_made_memories_of_in_another_service(
    services: Services, api: httpx.AsyncClient, new_user: str, short_folder: Path, llm_server: LlmServer,
    model: LlmServer, status: Status, eventually: Any,
) -> None:  # fmt: skip
    claude = await services.directory.caller(new_user, "claude")
    turns = (Turn("user", "I moved to Porto."), Turn("assistant", "Noted."))
    like = MemoryCreate(text="", namespace="home", metadata={"source": "chat"}, ttl_days=30)
    outcome = await services.captures.add(claude, CaptureCreate(like, turns, wait=False))
    async with services.database.statement() as tx:
        # As a process left it that was killed at its third attempt.
        await tx.execute(
            text(
                """
                UPDATE captures SET status = :status, attempts = 3, due_at = now() + interval '1 hour', bad_answers = 1,
                    holder = CASE WHEN :held THEN gen_random_uuid() END WHERE id = :id
                """
            ),
            {"status": status, "id": outcome.capture_id, "held": status is Status.WORKING},
        )
    archive = await export(api, new_user)
    [line] = lines_of(archive, CAPTURES)
    assert (line["status"], line["attempts"], line["bad_answers"]) == ("pending", 3, 1)
    assert line.keys().isdisjoint({"holder", "due_at", "principal"})
    model.script = does(operation("ADD", text="Alice lives in Porto."))
    llm = {
        "provider": "openai", "model": "m", "api_key": "test-key-0123456789", "base_url": llm_server.url, "timeout": 20,
    }  # fmt: skip

    async def move() -> None:
        async with (
            elsewhere(short_folder / f"{status}-{new_user}", new_user, llm=llm) as fresh,
            client_of(fresh) as client,
        ):
            assert (await bring_in(client, new_user, archive))["captures"] == 1
            owner = await fresh.directory.existing(new_user)

            async def done() -> bool:
                return (await fresh.captures.get(owner, outcome.capture_id)).status is Status.DONE

            await eventually(done, within=60)
            view = await fresh.captures.get(owner, outcome.capture_id)
            assert (view.attempts, view.app_name, view.namespace) == (4, "claude", "home")
            [memory] = (await fresh.memories.list(owner, MemoryQuery())).items
            assert (memory.content, memory.namespace, memory.metadata_) == (
                "Alice lives in Porto.", "home", {"source": "chat"},
            )  # fmt: skip
            assert memory.expires_at is not None

    await asyncio.create_task(move())
    async with services.database.transaction() as tx:  # here it would be tried again, without a language model
        await tx.execute(text("DELETE FROM captures WHERE id = :id"), {"id": outcome.capture_id})


async def test_a_part_of_an_export_has_no_captures(services: Services, api: httpx.AsyncClient, new_user: str) -> None:
    claude = await services.directory.caller(new_user, "claude")
    await services.captures.add(claude, CaptureCreate(MemoryCreate(text="I skate."), wait=False))
    assert len(lines_of(await export(api, new_user), CAPTURES)) == 1
    assert lines_of(await export(api, new_user, app_id=str(claude.app_id)), CAPTURES) == []


# What others have written.

CAPTURE: dict[str, Any] = {
    "id": new_id(), "app_id": None, "status": "done", "input": {"text": "I skate."}, "options": {"namespace": "home"},
    "namespaces": None, "scopes": ["read", "write"], "idempotency_key": "k", "attempts": 1,
    "created_at": "2026-05-01T10:00:00+00:00",
}  # fmt: skip


class Archive:
    """An archive with one memory, one capture, and one operation about both."""

    def __init__(self) -> None:
        self.base = Upstream()
        self.memory = self.base.memory("Alice skates.", revision=2)
        self.capture = CAPTURE | {"id": new_id()}
        before = {"content": "Alice swims.", "revision": 1, "state": "active", "metadata": {}, "categories": []}
        self.operation = {
            "event": "UPDATE", "id": self.memory, "memory": "Alice skates.", "revision": 2,
            "previous_memory": "Alice swims.", "before": before,
        }  # fmt: skip

    @property
    def step(self) -> dict[str, Any]:
        return {"capture_id": self.capture["id"], "number": 1, "operation": self.operation}

    def zip(self, captures: list[Any], steps: list[Any]) -> bytes:
        return zipped(members(self.base.zip()) | {CAPTURES: compressed(captures), STEPS: compressed(steps)})


def changed(path: str, value: Any) -> Callable[[Archive], bytes]:
    """The archive with one value of its capture, or of its step, replaced; `...` removes it."""

    def make(archive: Archive) -> bytes:
        lines = json.loads(json.dumps({"capture": archive.capture, "step": archive.step}))
        *parents, last = path.split(".")
        inside = lines
        for name in parents:
            inside = inside[name]
        if value is ...:
            del inside[last]
        else:
            inside[last] = value
        return archive.zip([lines["capture"]], [lines["step"]])

    return make


WRONG: dict[str, tuple[Callable[[Archive], bytes], str]] = {
    "no id": (changed("capture.id", ...), "captures.jsonl.gz, line 1.id: is missing; it must be a UUID"),
    "a status of its own": (changed("capture.status", "sleeping"), "line 1.status: must be one of pending, working"),
    "no input": (changed("capture.input", ...), "line 1.input: must be an object, not null"),
    "nothing said": (changed("capture.input", {}), "line 1.input: must have either text or messages"),
    "both said": (
        changed("capture.input", {"text": "a", "messages": []}), "line 1.input: must have either text or messages"),
    "a text that is none": (changed("capture.input", {"text": 5}), "line 1.input.text: must be a string"),
    "no messages": (changed("capture.input", {"messages": []}), "input.messages: must be a list of one message"),
    "a message that is none": (
        changed("capture.input", {"messages": ["hi"]}), "input.messages[0]: must be an object, not a string"),
    "another role": (
        changed("capture.input", {"messages": [{"role": "god", "content": "x"}]}),
        "input.messages[0].role: must be one of user, assistant, system",
    ),
    "no options": (changed("capture.options", []), "line 1.options: must be an object, not a list"),
    "categories that are none": (
        changed("capture.options", {"categories": [1]}), "options.categories: must be a list of strings"),
    "days that are none": (changed("capture.options", {"ttl_days": 0}), "options.ttl_days: must be from 1 to 36,500"),
    "a scope of its own": (changed("capture.scopes", ["root"]), "line 1.scopes: must be a list of read, write, admin"),
    "too many namespaces": (
        changed("capture.namespaces", ["n"] * 1_001),
        "line 1.namespaces: must have at most 1,000 entries",
    ),
    "attempts below none": (changed("capture.attempts", -1), "line 1.attempts: must be from 0"),
    "no capture": (changed("step.capture_id", ...), "capture_steps.jsonl.gz, line 1.capture_id: is missing"),
    "step 0": (changed("step.number", 0), "line 1.number: must be from 1 to 1,000"),
    "neither done nor refused": (changed("step.operation", ...), "line 1: must have one of operation and refused"),
    "both done and refused": (changed("step.refused", {"reason": "x"}), "must have one of operation and refused"),
    "another event": (changed("step.operation.event", "EAT"), "operation.event: must be one of ADD, UPDATE, SUPERSEDE"),
    "no memory": (changed("step.operation.id", "x"), "operation.id: must be a UUID"),
    "no text": (changed("step.operation.memory", ...), "operation.memory: is missing; it must be a string"),
    "no revision": (changed("step.operation.revision", ...), "operation.revision: is missing; it must be a whole"),
    "nothing to go back to": (
        changed("step.operation.before", ...), "operation.before: is missing; it must be there, so that it can be und"),
    "a text before that is none": (
        changed("step.operation.before.content", 5), "operation.before.content: must be a string, not a number"),
    "a state before that is none": (
        changed("step.operation.before.state", "gone"), "operation.before.state: must be one of active"),
    "superseded by what is no id": (
        changed("step.operation.before.superseded_by", "x"), "operation.before.superseded_by: must be a UUID"),
    "one capture twice": (
        lambda archive: archive.zip([archive.capture, archive.capture], []),
        "captures.jsonl.gz, line 2.id: must be unique; captures.jsonl.gz, line 1 has the same",
    ),
    "one step twice": (
        lambda archive: archive.zip([archive.capture], [archive.step, archive.step]),
        "capture_steps.jsonl.gz, line 2.number: must be unique; capture_steps.jsonl.gz, line 1 has the same",
    ),
    "one capture twice, far apart": (
        lambda archive: archive.zip(
            [archive.capture, *(CAPTURE | {"id": new_id()} for _ in range(9_000)), archive.capture], []),
        "captures.jsonl.gz, line 9002.id: must be unique; captures.jsonl.gz, line 1 has the same",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
async def test_what_cannot_be_a_capture_changes_nothing(
    api: httpx.AsyncClient, user: str, counts: Any, name: str
) -> None:
    make, words = WRONG[name]
    before = await counts()
    answer = await send(api, user, make(Archive()))
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_archive"), answer.text
    assert words in answer.json()["detail"]
    assert await counts() == before


SECRET = "AKIA" + "IOSFODNN7" + "EXAMPL3"

REFUSED: dict[str, tuple[Callable[[Archive], bytes], str]] = {
    "a blank text": (changed("capture.input", {"text": " "}), "text: must not be empty or blank"),
    "a secret that was said": (changed("capture.input", {"text": f"It is {SECRET}."}), "text: looks like it holds"),
    "too many messages": (
        changed("capture.input", {"messages": [{"role": "user", "content": "x"}] * 201}), "messages: has 201 entries"),
    "a long message": (
        changed("capture.input", {"messages": [{"role": "user", "content": "x" * 16_001}]}),
        "messages[0].content: has 16,001 characters",
    ),
    "two ends": (
        changed("capture.options", {"ttl_days": 1, "expires_at": "2030-01-01T00:00:00Z"}),
        "ttl_days: must be left out where expires_at is given",
    ),
    "seconds that ran backwards": (changed("capture.seconds", -1.5), "seconds: must not be negative"),
    "a namespace that is none": (changed("capture.namespaces", [" "]), "namespaces: must not be empty or blank"),
    "a secret that was remembered": (changed("step.operation.memory", SECRET), "text: looks like it holds"),
    "a secret to go back to": (changed("step.operation.before.content", SECRET), "text: looks like it holds"),
    "a secret in metadata": (
        changed("step.operation.before.metadata", {"x": SECRET}), "metadata.x: looks like"),
    "large metadata to go back to": (
        changed("step.operation.before.metadata", {"x": "y" * 20_000}), "metadata: has 20,008 bytes"),
    "a memory that is not there": (
        changed("step.operation.id", new_id()), "is about a memory that did not come in"),
    "a memory followed that is not there": (
        changed("step.operation.superseded_id", new_id()), "is about a memory that did not come in"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
async def test_what_may_not_be_kept_is_left_out_and_told(api: httpx.AsyncClient, user: str, name: str) -> None:
    make, words = REFUSED[name]
    archive = Archive()
    report = await bring_in(api, user, make(archive))
    assert (report["captures"], report["memories"]["added"]) == (0, 1)
    [left_out] = report["left_out"]
    assert (left_out["kind"], left_out["id"]) == ("capture", archive.capture["id"])
    assert left_out["reason"].startswith(words)
    assert lines_of(await export(api, user), CAPTURES) == []


async def test_a_memory_of_somebody_else_is_no_part_of_a_capture(
    services: Services, api: httpx.AsyncClient, user: str, app_caller: Caller
) -> None:
    theirs = await services.directory.caller(f"{user}-neighbour", "claude")
    memory = await services.memories.add(theirs, MemoryCreate(text="My own."))
    archive = Archive()
    report = await bring_in(api, user, changed("step.operation.id", str(memory.id))(archive))
    assert report["captures"] == 0
    assert [each["reason"] for each in report["left_out"]] == ["is about a memory that did not come in"]


async def test_steps_of_no_capture_are_told(api: httpx.AsyncClient, user: str) -> None:
    archive = Archive()
    report = await bring_in(api, user, archive.zip([], [archive.step]))
    [left_out] = report["left_out"]
    assert (left_out["kind"], left_out["id"]) == ("capture", archive.capture["id"])
    assert left_out["reason"] == "is in capture_steps.jsonl.gz, but not in captures.jsonl.gz"


async def test_it_goes_on_with_no_more_rights_than_who_brings_it_in_has(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    archive = Archive()
    rights = {"scopes": ["read", "write", "admin"], "namespaces": ["home"], "principal": {"id": "settings"}}
    capture = archive.capture | rights | {"status": "working", "holder": new_id(), "due_at": "2999-01-01T00:00:00Z"}
    assert (await bring_in(api, user, archive.zip([capture], [])))["captures"] == 1
    async with services.database.statement() as tx:
        found = await tx.execute(text("SELECT * FROM captures WHERE id = CAST(:id AS uuid)"), {"id": capture["id"]})
        row = found.one()
    assert (row.principal["id"], row.principal["name"]) == ("local", "this machine")
    assert (row.principal["namespaces"], row.principal["scopes"]) == (["home"], ["read", "write"])
    assert (row.status in ("pending", "working"), row.due_at.year < 2999, row.finished_at) == (True, True, None)
    assert str(row.holder) != capture["holder"]


async def test_keys_of_requests_stay_with_the_service_that_they_were_given_to(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    app = await services.directory.caller(user, "openmemory")
    for once in (IdempotentRequest("k", "a"), IdempotentRequest("l", "b")):
        await services.captures.add(app, CaptureCreate(MemoryCreate(text=once.key), wait=False, once=once))
    archive = Archive()  # of an older version, with the key of its capture
    archive.capture["app_id"] = archive.base.app_id
    assert (await bring_in(api, user, archive.zip([archive.capture], [])))["captures"] == 1
    lines = lines_of(await export(api, user), CAPTURES)
    assert len(lines) == 3
    assert [line for line in lines if "idempotency_key" in line] == []
