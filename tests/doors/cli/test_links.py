"""`openmemory links` and `supersede`, and the commits that memories belong to."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.doors.cli.conftest import Run


@pytest.mark.slow
def test_memories_are_linked_listed_and_unlinked(om: Run, user: str) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        told = om(*arguments, "--user", user)
        assert told.returncode == code, told.stderr
        return told.stdout.strip() if code == 0 else told.stderr.strip()

    cause, fix = (
        json.loads(run("add", text, "--json"))["id"] for text in ("The queue loses messages.", "We use an outbox.")
    )
    assert run("links", "list", cause) == "# It has no links."
    assert run("links", "add", fix[:8], "fixes", cause) == f"{fix} fixes {cause}: linked."
    assert run("links", "add", fix, "fixes", cause) == f"{fix} fixes {cause}: linked already."
    assert run("links", "list", fix).split("\t")[:2] == ["fixes", cause]
    relation, other, _, text = run("links", "list", cause).split("\t")
    assert (relation, other, text) == ("fixes (from it)", fix, "We use an outbox.")
    assert "cycle" in run("links", "add", cause, "fixes", fix, code=1)
    assert run("links", "remove", fix, "fixes", cause) == "The link is gone."
    assert "Link not found" in run("links", "remove", fix, "fixes", cause, code=1)


def test_a_memory_is_superseded_and_made_active_again(om: Run, user: str) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        told = om(*arguments, "--user", user)
        assert told.returncode == code, told.stderr
        return told.stdout.strip() if code == 0 else told.stderr.strip()

    old, new = (json.loads(run("add", text, "--json"))["id"] for text in ("We deploy on Mondays.", "Tuesdays it is."))
    said, undo = run("supersede", old[:8], new).splitlines()
    assert said == "1 memory superseded."
    archived = json.loads(run("get", old, "--json"))
    assert (archived["state"], archived["superseded_by"]) == ("archived", new)
    assert run(*undo.split("`")[1].split()[1:])
    assert json.loads(run("get", old, "--json"))["state"] == "active"
    assert "BY: must be another memory" in run("supersede", old, old, code=2)


def test_the_commits_of_memories_are_compared_with_the_folder(om: Run, user: str, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def run(*arguments: str, code: int = 0) -> str:
        told = om(*arguments, "--user", user, cwd=folder)
        assert told.returncode == code, told.stderr
        return told.stdout.strip() if code == 0 else told.stderr.strip()

    git("init", "-q")
    assert "must be the project of this folder" in run("projects", "anchors", code=2)
    git("commit", "-q", "--allow-empty", "-m", "one")
    assert run("projects", "anchors") == "# No memory of this project belongs to a commit."
    there, gone = git("rev-parse", "HEAD"), "b" * 40
    for commit in (there, gone):
        run("add", f"Built at {commit[:4]}.", "--metadata", json.dumps({"commit": commit}))
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in run("projects", "anchors").splitlines()}
    assert rows == {there: ["1", "in the history"], gone: ["1", "not in the history"]}
