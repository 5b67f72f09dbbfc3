"""What a terminal of 80 columns shows."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from openmemory.doors.cli.output import CommandAnswer, Table
from tests.warm import HOME

Run = Callable[..., subprocess.CompletedProcess[str]]
Screen = Callable[..., list[str]]

IDS = [str(UUID(int=(0x3F2A91C0 << 96) + number)) for number in (1, 2)]
TEXT = "We ship the webshop in May, after the last tests of the new payment service have passed."
ESCAPES = re.compile(r"\x1b\[[\d;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """The lines that an answer shows in a terminal of a width."""

    def shown(answer: CommandAnswer, width: int = 80) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(sys, "stdout", Terminal())
        answer.show(json=False)
        assert isinstance(sys.stdout, Terminal)
        lines = ESCAPES.sub("", sys.stdout.getvalue()).splitlines()
        assert max(map(len, lines)) <= width
        return lines

    return shown


def table(text: str = TEXT, **more: object) -> Table:
    rows = [("0.91", "0b6b1f5e-1c7d-4c39-8a51-7d0f4a2e9c11", "2026-11-20 10:11", "claude-code", text)]
    return Table(["score", "id", "created", "app", "memory"], rows, wide="memory", **more)  # type: ignore[arg-type]


def test_a_long_text_stands_on_lines_of_its_own_below_its_row(screen: Screen) -> None:
    assert screen(CommandAnswer({}, table())) == [
        "score  id        created           app",
        "0.91   0b6b1f5e  2026-11-20 10:11  claude-code",
        "  We ship the webshop in May, after the last tests of the new payment service",
        "  have passed.",
    ]


def test_a_text_that_fits_beside_its_row_stands_there(screen: Screen) -> None:
    assert screen(CommandAnswer({}, table("Tea, no milk.")))[1].endswith("claude-code  Tea, no milk.")
    assert len(screen(CommandAnswer({}, table()), width=160)) == 2


def test_details_stand_with_their_names_below_the_text(screen: Screen) -> None:
    with_details = Table(
        ["id", "ranking", "words", "late", "memory"],
        [(IDS[0], "0.512", "0.100", "-", TEXT)],
        wide="memory",
        details=("ranking", "words", "late"),
    )
    lines = screen(CommandAnswer({}, with_details), width=160)
    assert lines == ["id", "3f2a91c0", f"  {TEXT}", "  ranking 0.512  words 0.100"]


def test_columns_that_do_not_fit_stand_below_with_their_names(screen: Screen) -> None:
    names = [f"column {number}" for number in range(12)]
    lines = screen(CommandAnswer({}, Table([*names, "text"], [(*names, TEXT)], wide="text")))
    assert " ".join(lines).count("column 11") == 2
    assert lines[2].startswith("  We ship")


def test_ids_have_as_many_characters_as_tell_the_rows_apart(screen: Screen) -> None:
    two = Table(["id", "text"], [(id_, "x") for id_ in IDS], wide="text")
    assert [line.split()[0] for line in screen(CommandAnswer({}, two))[1:]] == IDS
    ones = [f"3f2a91c0-{digit}b7a-4c53-9e0d-2a8f1b3c4d5e" for digit in "45"]
    lines = screen(CommandAnswer({}, Table(["id", "text"], [(id_, "x") for id_ in ones], wide="text")))
    assert [line.split()[0] for line in lines[1:]] == ["3f2a91c0-4", "3f2a91c0-5"]


def test_wide_characters_are_not_pushed_out_of_the_terminal(screen: Screen) -> None:
    lines = screen(CommandAnswer({}, table("漢字" * 60)))
    assert "".join(lines[2:]).replace(" ", "") == "漢字" * 60


def test_a_note_belongs_to_the_answer_in_every_form(screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    answer = CommandAnswer({"results": []}, table(), notes=["Words alone."], asides=["Keep it."])
    answer.show(json=False)
    printed, errors = capsys.readouterr()
    assert printed.splitlines()[1:] == ["# Words alone."]
    assert "0b6b1f5e-1c7d-4c39-8a51-7d0f4a2e9c11" in printed
    assert errors == "Keep it.\n"
    answer.show(json=True)
    printed, errors = capsys.readouterr()
    assert (json.loads(printed)["notes"], errors) == (["Words alone.", "Keep it."], "")
    assert screen(answer)[-1] == "Words alone."


def on_a_terminal(served: Path, *arguments: str) -> str:
    """What a command prints in a real terminal of 80 columns."""
    ours, theirs = pty.openpty()
    try:
        told = subprocess.Popen(
            [sys.executable, "-m", "openmemory", *arguments],
            stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
            env=os.environ | {"OPENMEMORY_DATA_DIR": str(served), "COLUMNS": "80"}, cwd=HOME,
        )  # fmt: skip
    finally:
        os.close(theirs)
    printed = b""
    try:
        while piece := os.read(ours, 65_536):
            printed += piece
    except OSError:  # the other side is closed
        pass
    finally:
        os.close(ours)
        told.wait(60)
    return ESCAPES.sub("", printed.decode()).replace("\r\n", "\n")


def test_the_example_of_the_readme_shows_its_memory_and_why_it_was_found(om: Run, user: str, served: Path) -> None:
    added = om("add", "We", "ship", "the", "webshop", "in", "May.", "--namespace", "webshop", "--user", user, "--json")
    id_ = json.loads(added.stdout)["id"]
    shown = on_a_terminal(
        served, "search", "when", "do", "we", "ship?", "--namespace", "webshop", "--explain", "--user",
        user,
    )  # fmt: skip
    head, row, text, why, *_ = shown.splitlines()
    assert head.split() == ["score", "id", "created", "app"]
    assert row.split()[1] == id_[:8]
    assert text == "  We ship the webshop in May."
    assert why.startswith("  ranking ")
    assert max(map(len, shown.splitlines())) <= 80
    assert "\nEmbedded as: " in shown
    assert json.loads(om("get", row.split()[1], "--user", user, "--json").stdout)["id"] == id_


@pytest.mark.slow
def test_a_time_in_words_narrows_what_is_listed_and_found(om: Run, user: str) -> None:
    for text, when in (("old news", "3 days ago"), ("fresh news", "yesterday")):
        assert om("add", *text.split(), "--created-at", when, "--user", user).returncode == 0
    for command in (["list"], ["search", "news"]):
        since = om(*command, "--since", "yesterday", "--user", user).stdout
        assert ("old news" in since, "fresh news" in since) == (False, True)
        until = om(*command, "--until", "2 days ago", "--user", user).stdout
        assert ("old news" in until, "fresh news" in until) == (True, False)
    refused = om("list", "--since", "someday", "--user", user)
    assert refused.returncode == 2
    assert "Invalid value for '--since': 'someday' is not a time" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["search", "x", "--limit", "0"], "openmemory: --limit: "),
        (["list", "--namespace", " "], "openmemory: --namespace: "),
        (["search", "x", "--thread", " "], "openmemory: --thread: "),
        (["update", "6f1c2d9e", "x", "--ttl-days", "3", "--expires-at", "2090-01-31"], "--expires-at"),
        (["threads", "show", "x", "--namespace", " "], "openmemory: --namespace: "),
        (["related", "6f1"], "openmemory: ID: "),
    ],
)
def test_an_error_names_the_option_that_was_given(om: Run, arguments: list[str], words: str) -> None:
    told = om(*arguments)
    assert told.returncode == 2, told.stderr
    assert words in told.stderr
    assert "ttl_days" not in told.stderr
