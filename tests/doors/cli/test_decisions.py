"""`openmemory conflicts`, `duplicates`, `review`, `undo` and `activity`."""

from __future__ import annotations

import json

import pytest

from tests.doors.cli.conftest import Run


@pytest.mark.slow
def test_the_user_decides_and_undoes_in_a_terminal(om: Run, user: str) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        told = om(*arguments, "--user", user)
        assert told.returncode == code, told.stderr
        return told.stdout.strip() if code == 0 else told.stderr.strip()

    one = json.loads(run("add", "port=1", "--json"))["id"]
    assert run("conflicts", "list") == "# No facts disagree."
    assert run("duplicates", "list").endswith("None of these memories say nearly the same.")
    two = json.loads(run("add", "port=2|host=db", "--kind", "note", "--json"))["id"]
    rows = [line.split("\t")[:4] for line in run("conflicts", "list").splitlines()]
    assert sorted(rows) == [["port", "default", "1", one], ["port", "default", "2", two]]
    said, undo = run("conflicts", "decide", "port", two, one).splitlines()
    assert said == "Kept port = 2: 1 superseded, 0 corrected."
    action = undo.split("`")[1].removeprefix("openmemory ").split()
    assert run(*action) == "1 memory restored."
    assert "'newer', 'older' or 'both'" in run("duplicates", "decide", two, one, "none", code=2)
    kept, undo = run("duplicates", "decide", two, one, "newer").splitlines()
    assert kept == "Kept the newer memory."
    assert run("list").split("\t")[-1] == "port=2|host=db"
    assert run("activity", "list").splitlines()[-1].split("\t")[1] == "memory.add"
    assert run("activity", "days").split("\t")[1:3] == ["openmemory", "2"]


def test_what_may_be_replaced_is_reviewed_and_undone(om: Run, user: str) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        told = om("review", *arguments, "--user", user)
        assert told.returncode == code, told.stderr
        return told.stdout.strip() if code == 0 else told.stderr.strip()

    assert run() == "# Nothing is to be decided."
    older, newer = (
        json.loads(om("add", said, "--json", "--user", user).stdout)["id"]
        for said in ("I live in Hamburg.", "I moved to Leipzig last week.")
    )
    rows = [line.split("\t") for line in run().splitlines()]
    assert [(row[0], row[2]) for row in rows] == [(newer, "replaces"), (older, "")]
    assert "OLDER: must be given" in run(newer, code=2)
    assert "--replace: or --keep-both" in run(newer, older, code=2)
    said, undo = run(newer, older, "--replace").splitlines()
    assert "supersed" in said.lower() or "replace" in said.lower()
    assert run() == "# Nothing is to be decided."
    assert om(*undo.split("`")[1].removeprefix("openmemory ").split(), "--user", user).returncode == 0
    assert len(run().splitlines()) == 2


@pytest.mark.slow
def test_many_memories_are_changed_and_earlier_times_shown(om: Run, user: str) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        told = om(*arguments, "--user", user)
        assert told.returncode == code, told.stderr
        return told.stdout.strip() if code == 0 else told.stderr.strip()

    one = json.loads(run("add", "tea for the shop", "--namespace", "shop", "--json"))["id"]
    run("add", "coffee")
    assert "--yes: must be given" in run("change", "--everything", "--namespace", "shop", "--to", "archived", code=2)
    lines = run("change", "--everything", "--namespace", "shop", "--to", "archived", "--yes").splitlines()
    assert lines[0] == "1 memory changed."
    undo = lines[1].partition("openmemory ")[2].split()
    assert run("list").split("\t")[-1] == "coffee"
    assert run(*undo) == "1 memory restored."
    assert run("change", one[:8], "--to", "paused").splitlines()[0] == "1 memory changed."
    assert run("timeline", "memories", "--at", "yesterday") == "# There is nothing."
    [now] = run("timeline", "memories", "--at", "today").splitlines()
    assert now.split("\t")[2:] == ["openmemory", "active", "coffee"]
    assert run("timeline", "changes", "--since", "today").splitlines()[0].split("\t")[1] == "paused"
    assert run("change", one[:8], "--to", "erased", "--yes").splitlines()[0] == "1 memory erased."
