"""Commands reach the same product with and without a running service."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from openmemory.embedded.folder import running_service

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_without_a_service_a_command_opens_the_stores_itself_and_closes_them(run: Run, folder: Path) -> None:
    where = ("--data-dir", str(folder))
    added = run("add", "Sailing is a hobby of mine", *where)
    assert (added.returncode, added.stderr) == (0, "")
    assert running_service(folder) is None
    [hit] = json.loads(run("search", "what do I do in my free time", *where, "--json").stdout)["results"]
    assert hit["memory"] == "Sailing is a hobby of mine"
    assert hit["parts"]["dense"] is not None
