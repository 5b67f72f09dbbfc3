from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openmemory.embedded.folder import running_service
from tests.journeys.service import starting

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_an_assistant_that_starts_it_gets_a_service_and_nothing_but_the_protocol(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    """In a folder that holds settings of somebody else, as a repository that was cloned may."""
    (tmp_path / "openmemory.toml").write_text('[database]\nurl = "postgresql://127.0.0.1:9/of-somebody-else"\n')
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENMEMORY_")}
    messages: list[dict[str, Any]] = [
        {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "add_memories", "arguments": {"text": "Kept over stdio"}}},
    ]
    told = subprocess.run(
        [sys.executable, "-m", "openmemory", "mcp", "--client", "claude", "--user", "bob", "--data-dir", str(folder)],
        check=False,
        input="".join(json.dumps({"jsonrpc": "2.0"} | message) + "\n" for message in messages),
        capture_output=True,
        text=True,
        timeout=100,
        env=environment | {"OPENMEMORY_PORT": "0"},
        cwd=tmp_path,
    )
    where = {"OPENMEMORY_DATA_DIR": str(folder)}
    try:
        assert told.returncode == 0, told.stderr
        assert [json.loads(line)["id"] for line in told.stdout.splitlines()] == [1, 2]
        assert running_service(folder) is not None
        [item] = json.loads(run("list", "--user", "bob", "--json", **where).stdout)["items"]
        assert (item["content"], item["app_name"]) == ("Kept over stdio", "claude")
    finally:
        assert run("stop", **where).returncode == 0


OPENING: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def test_it_speaks_for_a_service_elsewhere_and_starts_none(run: Run, served: Path, folder: Path) -> None:
    info = running_service(served)
    assert info is not None
    call = {"name": "add_memories", "arguments": {"text": "Kept over a bridge to elsewhere \ud83d"}}
    lines = [OPENING, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}]
    told = run(
        "mcp", "--url", f"{info.url}/", "--data-dir", str(folder), stdin="".join(json.dumps(it) + "\n" for it in lines)
    )
    opened, added = map(json.loads, told.stdout.splitlines())
    assert opened["result"]["protocolVersion"] == "2025-11-25", told.stderr
    assert added["result"]["content"][0]["text"].startswith("ADD ")
    items = json.loads(run("list", "--json", "--data-dir", str(served)).stdout)["items"]
    [app] = [it["app_name"] for it in items if it["content"] == "Kept over a bridge to elsewhere \ufffd"]
    assert app == OPENING["params"]["clientInfo"]["name"]
    assert not folder.exists()
    wrong = run("mcp", "--url", "localhost:8765", stdin="")
    assert (wrong.returncode, wrong.stderr) == (
        2, "openmemory: --url: 'localhost:8765' must begin with http:// or https://\n"
    )  # fmt: skip


@pytest.mark.slow
def test_a_service_elsewhere_that_wants_a_key_says_where_to_put_it(run: Run, folder: Path) -> None:
    key = run("keys", "create", "claude", "--user", "bob", "--data-dir", str(folder)).stdout.strip()
    with starting(folder) as start:
        url = start(OPENMEMORY_ACCESS_REQUIRE="always").ready()
        without = run("mcp", "--url", url, stdin=json.dumps(OPENING) + "\n")
        assert "Set OPENMEMORY_API_KEY to a key of that service" in json.loads(without.stdout)["error"]["message"]
        told = run("mcp", "--url", url, stdin=json.dumps(OPENING) + "\n", OPENMEMORY_API_KEY=key)
        assert "result" in json.loads(told.stdout)
