"""The commands for categories, against a running service."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_memories_are_filed_and_their_categories_listed(om: Run, user: str) -> None:
    health = "I am allergic to penicillin and take pills for my blood pressure, my doctor says"
    assert om("add", health, "--user", user).returncode == 0
    done = om("categories", "assign", "--again", "--user", user, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["waiting"], report["failed"]) == (0, 0)
    assert om("categories", "assign", "--user", user).stdout == "0 memories looked at, 0 wait, 0 failed so far.\n"
    listed = [line.split("\t") for line in om("categories", "list", "--user", user).stdout.splitlines()]
    assert [line[0] for line in listed] == ["health"]
    assert listed[0][1].startswith("Body and mind")
