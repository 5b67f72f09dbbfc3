"""`openmemory links`: the operations of links as commands."""

from __future__ import annotations

import json

from tests.cli.conftest import Run


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
