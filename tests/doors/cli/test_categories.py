"""The commands for categories, against a running service."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_memories_are_filed_and_their_categories_listed(om: Run, user: str) -> None:
    health = "I am allergic to penicillin and take pills for my blood pressure, my doctor says"
    assert om("add", health, "--user", user).returncode == 0
    tried = om("categories", "assign", "--dry-run", "--again", "--user", user)
    assert tried.returncode == 0, tried.stderr
    assert tried.stdout.endswith("\n# 1 of 1 memory; nothing was assigned.\n")
    line, _ = tried.stdout.splitlines()
    assert line.endswith(health)
    assert json.loads(om("categories", "assign", "--dry-run", "--again", "--user", user, "--json").stdout)["total"] == 1
    done = om("categories", "assign", "--again", "--user", user, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["waiting"], report["failed"]) == (0, 0)
    assert om("categories", "assign", "--user", user).stdout == "0 memories checked, 0 waiting, 0 failed so far.\n"
    listed = [line.split("\t") for line in om("categories", "list", "--user", user).stdout.splitlines()]
    assert [line[0] for line in listed] == ["health"]
    assert listed[0][1].startswith("Body and mind")


@pytest.mark.slow
def test_categories_are_described_listed_and_forgotten(om: Run, user: str) -> None:
    bees, name = "Keeping bees: hives, honey, swarms, queens and the garden of the beekeeper.", f"bees/{user} 50 %"
    swarm = "The bees swarmed and the new hive has a young queen and much honey"
    assert om("add", swarm, "--user", user).returncode == 0
    made = om("categories", "describe", name, bees, "--user", user, "--json")
    assert made.returncode == 0, made.stderr
    assert {key: json.loads(made.stdout)[key] for key in ("name", "description")} == {"name": name, "description": bees}
    assert om("categories", "describe", name, bees, "--user", user).stdout == f"{name}: {bees}\n"
    done = om("categories", "assign", "--user", user, "--json")
    assert json.loads(done.stdout)["waiting"] == 0
    listed = om("categories", "list", "--user", user)
    assert [line.split("\t") for line in listed.stdout.splitlines()] == [[name, bees, "user"]]
    [row] = json.loads(om("categories", "list", "--user", user, "--json").stdout)["categories"]
    assert (row["name"], row["described_by"]) == (name, "user")
    found = om("list", "--user", user, "--json")
    assert found.returncode == 0, found.stderr
    assert name in found.stdout
    assert om("categories", "forget", name, "--user", user).stdout == f"Deleted the description of {name}.\n"
    assert json.loads(om("categories", "describe", "..", "Dots.", "--user", user, "--json").stdout)["name"] == ".."
    assert json.loads(om("categories", "forget", "..", "--user", user, "--json").stdout) == {"forgotten": ".."}
    missing = om("categories", "forget", name, "--user", user)
    assert missing.returncode == 1
    assert "does not describe" in missing.stderr
    assert "TEXT: must" in om("categories", "describe", name, " ", "--user", user).stderr
