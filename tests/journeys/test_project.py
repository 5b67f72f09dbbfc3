"""A real MCP client over standard input and output in a Git repository: the project is known, and so is its memory."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.bridging import assistant
from tests.journeys.service import Service

pytestmark = pytest.mark.journey

QUESTION = {"query": "which port has the database, and who chose the delays?", "budget": 700}


@pytest.mark.slow
@pytest.mark.usefixtures("address")
async def test_a_new_process_gets_the_same_pack(
    served: Service, new_user: str, repository: Path, eventually: Any
) -> None:
    async with assistant(served, new_user, repository / "src") as call:
        state = {"goal": "Deliver every entry", "port": 6432}
        await call("mem_checkpoint", reason="The port has changed.", state_json=state)
        first = (await call("mem_add_memory", title="Zoe chose the delays of retries.")).split()[1]
        second = (await call("mem_add_memory", title="port=5432")).split()[1]
        await call("mem_link_memories", from_id=first, rel="explains", to_id=second)
        assert "acme/shop" in await call("project_list")

        async def ready() -> bool:
            return "vectors: ready" in await call("project_status", project_id="acme/shop")

        await eventually(ready)
        pack = await call("mem_get_context", **QUESTION)
    assert pack.startswith("OpenMemory, project acme/shop:")
    assert '{"goal":"Deliver every entry","port":6432}' in pack
    assert "port=5432 (overruled by the state)" in pack
    async with assistant(served, new_user, repository) as call:
        assert "State of the project (revision 1)" in await call("mem_get_initial_context")
        assert await call("mem_get_context", **QUESTION) == pack
        elsewhere = await call("mem_get_context", **QUESTION, repo="other")
    assert "6432" not in elsewhere
    async with assistant(served, new_user, repository, "mempack") as call:
        answer = json.loads(await call("mem_get_context", **QUESTION))
        assert (answer["repo"]["repo_id"], answer["state"]["port"]) == ("acme/shop", 6432)


@pytest.mark.usefixtures("address")
async def test_the_memory_of_a_dropped_commit_leaves_packs(served: Service, new_user: str, repository: Path) -> None:
    commit(repository, "one")
    asked = {"query": "which worker has the queue?", "budget": 900}
    async with assistant(served, new_user, repository) as call:
        await call("mem_add_memory", title="The queue has one worker.")
        kept = head_of(repository)
        commit(repository, "two")
        await call("mem_add_memory", title="Mails of the queue leave by port 587.")
        dropped = head_of(repository)
        assert "port 587" in await call("mem_get_context", **asked)

        reset(repository, kept)
        commit(repository, "another two")
        pack, _, left_out = (await call("mem_get_context", **asked)).partition("Left out:")
        assert "one worker" in pack
        assert "port 587" not in pack
        assert "its commit is not in the history" in left_out
        assert "its commit is not in the history" in await call("mem_explain", query=asked["query"])
        whole = await call("mem_get_context", include_orphans=True, **asked)
        assert "port 587" in whole
        assert "Left out" not in whole

        reset(repository, dropped)
        assert "port 587" in await call("mem_get_context", **asked)


def commit(folder: Path, message: str) -> None:
    me = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *me, "commit", "-q", "--allow-empty", "-m", message], cwd=folder, check=True)


def reset(folder: Path, to: str) -> None:
    subprocess.run(["git", "reset", "-q", "--hard", to], cwd=folder, check=True)


def head_of(folder: Path) -> str:
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return found.stdout.strip()
