"""One afternoon in a repository: whatever two assistants, commands and hooks write is in one project, and every door
finds it there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import warm
from tests.doors.cli.test_hook import AMPLE, hook
from tests.journeys.bridging import assistant
from tests.journeys.service import Service

pytestmark = pytest.mark.journey

PROJECT = "acme/shop"
TOOLSETS = "context,notes,projects,sessions,threads,files,documents"
HINT = "Project of this folder: acme/shop"

Om = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def om(served: Service, new_user: str, repository: Path) -> Om:
    """Runs a command in the repository, or in another folder."""

    def run(*arguments: str, folder: Path = repository, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = warm.run(*arguments, "--user", new_user, cwd=folder, OPENMEMORY_DATA_DIR=served.folder)
        assert done.returncode == code, done.stderr
        return done

    return run


@pytest.fixture
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of another project."""
    folder = tmp_path_factory.mktemp("elsewhere") / "kitchen"
    folder.mkdir()
    return folder


async def test_an_afternoon_is_in_one_project(
    served: Service, new_user: str, repository: Path, other: Path, om: Om, address: str, tmp_path_factory: Any
) -> None:
    src, notes = repository / "src", repository / "notes.md"
    notes.write_text("# Lift\n\nThe lift of the warehouse carries nine people.\n")
    (src / "delays.py").write_text("def retry_delay():\n    return 4\n")
    where = {"user_id": new_user, "namespace": PROJECT}

    # The commands write.
    for written in (
        ("add", "The queue has one worker."),
        ("sessions", "save", "77", "Timeouts", "--summary", "Every call waits two seconds."),
        ("documents", "add", str(notes)),
        ("threads", "log", "standup", "Zoe reviews the outbox."),
        ("values", "set", "stack", "database", "PostgreSQL 17"),
        ("state", "save", "The goal is set.", "--state", '{"goal": "Deliver every entry"}'),
    ):
        assert HINT in om(*written, folder=src).stderr
    om("ingest")
    assert HINT not in om("add", "Alice lives in Porto.", "--about", "person").stderr
    om("add", "The oven is hot.", folder=other)

    # Two assistants write.
    async with (
        assistant(served, new_user, src, TOOLSETS) as claude,
        assistant(served, new_user, repository, TOOLSETS, app="cursor") as cursor,
    ):
        assert "[acme/shop]" in await claude("add_memories", text="We deploy on Tuesdays.", infer=False)
        nuts = await claude("add_memories", text="I am allergic to nuts.", infer=False, about="person")
        assert "[of no project]" in nuts
        assert "[acme/shop]" in await cursor("mem_add_memory", title="Retries wait a minute.")
        await cursor("session_create", project_id=".", session_num=78, title="Retries", summary="Three tries.")
        assert " [acme/shop]." in await cursor("log_messages", thread_id="chat", messages=[{"content": "Hello, Bo."}])

        # A hook writes.
        transcript = tmp_path_factory.mktemp("session") / "session.jsonl"
        said = {"type": "user", "isSidechain": False, "message": {"role": "user", "content": "The cache is cold."}}
        transcript.write_text(json.dumps(said | {"uuid": "u"}) + "\n")
        given = json.dumps({"cwd": str(src), "transcript_path": str(transcript), "session_id": "s"}).encode()
        told = hook(
            *("session-end", "--log", "--client", "claude", "--user", new_user, "--url", address, "--verbose", AMPLE),
            stdin=given, XDG_CACHE_HOME=str(transcript.parent), OPENMEMORY_DATA_DIR=served.folder,
        )  # fmt: skip
        assert told == (0, "", "")

        # Everything is in one project: REST lists it.
        async with httpx.AsyncClient(base_url=address) as http:

            async def listed(path: str, field: str) -> set[Any]:
                answer = (await http.get(f"/api/v1/{path}", params=where)).raise_for_status().json()
                return {one[field] for one in answer["items"]}

            texts = {"The queue has one worker.", "We deploy on Tuesdays.", "Retries wait a minute."}
            assert texts <= await listed("memories", "content")
            assert await listed("sessions", "number") == {77, 78}
            assert await listed("files", "path") == {"notes.md", "src/delays.py"}
            assert await listed("documents", "name") == {"notes.md"}
            assert {"standup", "chat", "session-77", "session-78"} < await listed("threads", "thread_id")
            assert len(await listed("threads", "thread_id")) == 5
            assert await listed("values", "value") == {"PostgreSQL 17"}
            known = (await http.get("/api/v1/projects", params={"user_id": new_user})).json()["projects"]
            assert {one["namespace"] for one in known} == {PROJECT, "default", "kitchen"}
            assert next(one["memories"] for one in known if one["namespace"] == "default") == 2

        # Both assistants find what the commands, the hook and the other one wrote.
        for call in (claude, cursor):
            assert "one worker" in await call("search_memory", query="how many workers has the queue?")
            assert "Tuesdays" in await call("search_memory", query="when do we deploy?")
            assert "nuts" in await call("search_memory", query="what is the user allergic to?")
            assert "oven" not in await call("list_memories")
            assert "oven" in await call("list_memories", namespace="*")
            assert "Timeouts" in await call("session_get", project_id=".", session_num=77)
            assert "Retries" in await call("session_get", project_id=str(repository), session_num=78)
            assert "Hello, Bo." in await call("read_thread", thread_id="chat")
            assert "cache is cold" in await call("search_messages", query="what is cold?")
            assert "nine people" in await call("read_document", name="notes.md")
            assert "retry_delay" in await call("search_files", query="retry delay")
            assert "PostgreSQL 17" in await call("memory_get", project_id=str(src), topic="stack", key="database")
            pack = await call("mem_get_context", query="when do we deploy?", repo=".")
            assert "Deliver every entry" in pack
            assert "Tuesdays" in pack
            assert "nuts" in await call("mem_get_context", query="what is the user allergic to?")

    # The commands find what the assistants wrote, and the project and the person are read together.
    assert "Tuesdays" in om("search", "when do we deploy?").stdout
    assert "nuts" in om("search", "what is Alice allergic to?", folder=src).stdout
    memories = om("list", folder=src)
    assert "Retries wait" in memories.stdout
    assert "Porto" in memories.stdout
    assert "oven" not in memories.stdout
    assert f"{HINT}, with what is of no project. --all-projects reads all." in memories.stderr
    assert "oven" in om("list", "--all-projects").stdout
    assert "Retries" in om("sessions", "show", "78").stdout
    assert "Hello, Bo." in om("threads", "show", "chat").stdout
    assert "The cache is cold." in om("threads", "search", "what is cold?").stdout
    assert "nine people" in om("documents", "search", "lift").stdout
    assert "retry_delay" in om("files", "search", "retry delay").stdout
    assert len(om("sources").stdout.splitlines()) == 8
    assert om("values", "get", "stack", "database").stdout.strip() == "PostgreSQL 17"

    # In another folder, only what is about the person is found.
    assert "Session not found" in om("sessions", "show", "78", folder=other, code=1).stderr
    assert "nuts" in om("list", folder=other).stdout
    assert "Tuesdays" not in om("list", folder=other).stdout
    assert "Tuesdays" in om("list", "--namespace", str(src), folder=other).stdout
    async with assistant(served, new_user, other, TOOLSETS) as call:
        assert "Tuesdays" not in await call("list_memories")
        assert "nuts" in await call("list_memories")

    # A session begins with both.
    brief = hook(
        *("session-start", "--client", "cursor", "--user", new_user, "--url", address, "--verbose", AMPLE),
        stdin=json.dumps({"cwd": str(src)}).encode(), OPENMEMORY_DATA_DIR=served.folder,
    )  # fmt: skip
    assert "Tuesdays" in brief.out
    assert "nuts" in brief.out
    assert "oven" not in brief.out
