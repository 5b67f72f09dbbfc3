from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.embedded.folder import running_service

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
        [sys.executable, "-m", "app", "mcp", "--client", "claude", "--user", "bob", "--data-dir", str(folder)],
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
