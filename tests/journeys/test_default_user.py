"""Every door of a service means the same user where none is named, whatever the account or the command's settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import warm
from tests.clusters import furnish
from tests.journeys.service import short_parent, starting

OPENING = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "zed", "version": "1"}},
}  # fmt: skip


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, Path]]:
    with short_parent() as parent, starting(furnish(parent / "data")) as start:
        yield start(OPENMEMORY_ACCESS_DEFAULT_USER="dora").ready(), parent / "data"


@pytest.fixture
def om(address: tuple[str, Path]) -> Callable[..., Any]:
    """Runs a command where the account and the settings name other users."""

    def run(*arguments: str, stdin: str | None = None) -> str:
        told = warm.run(
            *arguments, stdin=stdin, OPENMEMORY_DATA_DIR=str(address[1]), USER="erik",
            OPENMEMORY_ACCESS_DEFAULT_USER="frida",
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        return str(told.stdout)

    return run


def test_what_one_door_adds_for_nobody_in_particular_every_door_finds(
    address: tuple[str, Path], om: Callable[..., Any]
) -> None:
    url, _ = address
    httpx.post(f"{url}/api/v1/memories", json={"text": "by REST", "infer": False}).raise_for_status()
    om("add", "by a command")
    for more in ([], ["--client", "claude"]):
        words = f"by a bridge {' '.join(more)}".strip()
        lines = om("mcp", *more, stdin=f"{json.dumps(OPENING)}\n{json.dumps(call('add_memories', text=words))}\n")
        assert '"isError":false' in lines
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    httpx.post(f"{url}/mcp", json=call("add_memories", text="by MCP"), headers=headers).raise_for_status()
    expected = {
        "by REST": "openmemory", "by a command": "openmemory", "by a bridge": "zed",
        "by a bridge --client claude": "claude", "by MCP": "openmemory",
    }  # fmt: skip
    assert {one["content"]: one["app_name"] for one in json.loads(om("list", "--json"))["items"]} == expected
    found = httpx.get(f"{url}/api/v1/memories", params={"user_id": "dora"}).json()["items"]
    assert {one["content"] for one in found} == expected.keys()
    for user in ("erik", "frida", "default_user"):
        export = {"user_id": user, "export": True}
        assert httpx.get(f"{url}/api/v1/memories", params=export).status_code == 404, "no door makes them"
    assert "dora" in om("export")


@pytest.mark.slow
def test_a_user_that_is_named_is_meant(om: Callable[..., Any]) -> None:
    om("add", "of somebody else", "--user", "gina")
    assert [one["content"] for one in json.loads(om("list", "--user", "gina", "--json"))["items"]] == [
        "of somebody else"
    ]
