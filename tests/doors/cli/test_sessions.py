"""`openmemory sessions` saves, lists, searches and shows sessions."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.slow
def test_the_life_of_a_session(om: Run, user: str, tmp_path: Path) -> None:
    def sessions(*arguments: str, code: int = 0) -> str:
        told = om("sessions", *arguments, "--user", user)
        assert told.returncode == code, told.stderr
        return told.stdout.strip() if code == 0 else told.stderr.strip()

    notes = tmp_path / "notes.md"
    notes.write_text("## Why\n\nRestarts take\x1b[31m three seconds.\n")
    save = ("save", "12", "Retries", "--summary", "Entries are tried again.", "--file", str(notes))
    assert sessions(*save) == "Session 12 added: 2 passages."
    assert sessions(*save) == "Session 12 is unchanged: 2 passages."
    assert sessions("search", "how long does a restart take?", "-n", "1").split("\t")[1:3] == ["12", "Retries > Why"]
    assert sessions("list").split("\t")[::4] == ["12", "Retries"]
    shown = sessions("show", "12").splitlines()
    assert shown[0].startswith("12. Retries (")
    assert shown[1:] == ["", "Entries are tried again.", "", "## Why", "", "Restarts take [31m three seconds."]
    assert om("threads", "delete", "session-12", "--user", user).returncode == 0
    assert sessions("list") == "# There are no sessions."
    assert "Session not found" in sessions("show", "12", code=1)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "must be text in UTF-8" in sessions("save", "1", "x", "--file", str(tmp_path / "binary"), code=2)
    assert "No such file" in sessions("save", "1", "x", "--file", str(tmp_path / "none"), code=2)


def test_a_session_of_another_app_is_replaced_and_named(om: Run, user: str) -> None:
    save = ("sessions", "save", "3", "--user", user)
    assert om(*save, "Retries", "--app", "claude").stdout.strip() == "Session 3 added: 1 passage."
    replaced = "Session 3 updated: 1 passage.\n# It replaces the session of claude."
    assert om(*save, "Timeouts", "--app", "cursor").stdout.strip() == replaced
    assert [line.split("\t")[2:] for line in om("sessions", "list", "--user", user).stdout.splitlines()] == [
        ["cursor", "default", "Timeouts"]
    ]
