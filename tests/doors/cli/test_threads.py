"""The commands about conversations, against a running service."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

SAID = [
    {"role": "Caroline", "content": "I went to the adoption agency on Tuesday.", "id": "m-1"},
    {"role": "Melanie", "content": "I finally picked up that book.", "id": "m-2"},
]


@pytest.mark.slow
def test_a_conversation_is_logged_found_shown_and_put_away(om: Run, user: str) -> None:
    def do(*arguments: str, stdin: str | None = None, code: int = 0) -> str:
        told = om("threads", *arguments, "--user", user, stdin=stdin)
        assert told.returncode == code, told.stderr
        return told.stdout

    lines = "\n".join(map(json.dumps, SAID))
    assert do("log", "chat 1", "-", "--title", "Weekend", stdin=lines) == "Stored 2 of 2 messages.\n"
    assert do("log", "chat 1", "-", stdin=lines) == "Stored 0 of 2 messages.\n# 2 were there already.\n"
    assert do("log", "chat 1", "Good night", "--role", "Ada") == "Stored 1 of 1 messages.\n"
    [listed] = do("list").splitlines()
    assert listed.split("\t")[0] == "chat 1"
    assert listed.split("\t")[-2:] == ["3", "Weekend"]
    shown = [line.split("\t") for line in do("show", "chat 1").splitlines()]
    assert [(row[0], row[2], row[3]) for row in shown] == [
        ("1", "Caroline", SAID[0]["content"]), ("2", "Melanie", SAID[1]["content"]), ("3", "Ada", "Good night"),
    ]  # fmt: skip
    found = do("search", "who was at the agency?").splitlines()[0].split("\t")
    assert (found[1], found[4]) == ("chat 1#1", SAID[0]["content"])
    assert do("close", "chat 1", "--summary", "Nothing new") == "Closed 1 conversation.\n"
    assert do("delete", "chat 1") == "Deleted 3 messages.\n"
    assert do("list") == "# There are no conversations.\n"
    do("show", "chat 1", code=1)
    assert do("restore", "chat 1") == "Restored 3 messages.\n"
    assert do("erase", "chat 1", "--yes") == "Erased 3 messages.\n"
    do("restore", "chat 1", code=1)


def test_a_conversation_is_changed_as_an_app_with_its_rules(om: Run, user: str) -> None:
    log = ("threads", "log", "chat", "Hello", "--user", user, "--app")
    assert om(*log, "claude").returncode == om(*log, "cursor").returncode == 0
    assert om("grants", "add", "deny", "app", "claude", "--app", "cursor", "--user", user).returncode == 0
    as_cursor = ("chat", "--user", user, "--app", "cursor")
    assert om("threads", "delete", *as_cursor).stdout == "Deleted 1 messages.\n"
    assert [line.split("\t")[2] for line in om("threads", "list", "--user", user).stdout.splitlines()] == ["claude"]
    for change in (["restore"], ["erase", "--yes"]):
        refused = om("threads", *change, *as_cursor)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "only the user" in refused.stderr.lower()


def test_what_is_refused_is_told_and_the_rest_is_stored(om: Run, user: str) -> None:
    lines = '{"content": "Hello"}\n\n{"content": " "}\n{"text": "x"}\n'
    told = om("threads", "log", "chat", "-", "--user", user, stdin=lines)
    assert (told.returncode, told.stdout) == (1, "Stored 1 of 3 messages.\n")
    assert "Message 2 was not stored: content: must not be empty or blank" in told.stderr
    assert "Message 3 was not stored: content: is required" in told.stderr
    broken = om("threads", "log", "chat", "-", "--user", user, stdin="Hello\n")
    assert broken.returncode != 0
    assert "line 1: must be a JSON object" in broken.stderr
    assert om("threads", "log", "chat", "-", "--user", user, stdin="\n").returncode != 0


def test_a_message_is_shown_with_those_near_it(om: Run, user: str) -> None:
    lines = "".join(json.dumps({"content": f"message {number}"}) + "\n" for number in range(1, 10))
    assert om("threads", "log", "chat", "-", "--user", user, stdin=lines).returncode == 0
    shown = om("threads", "show", "chat", "--around", "4", "--limit", "3", "--user", user).stdout
    *rows, note = shown.splitlines()
    assert [row.split("\t")[0] for row in rows] == ["3", "4", "5"]
    assert note == "# Around 4; 9 in all."


def test_arguments_that_are_not_utf_8_and_texts_that_were_cut_are_stored(om: Run, user: str) -> None:
    latin = b"caf\xe9".decode(errors="surrogateescape")
    told = om("threads", "log", latin, latin, "--role", latin, "--title", latin, "--user", user)
    assert (told.returncode, told.stdout) == (0, "Stored 1 of 1 messages.\n"), told.stderr
    lines = '{"content": "cut \\ud83d"}\n{"content": "ends\u2028of\x85lines"}\n'
    assert om("threads", "log", latin, "-", "--user", user, stdin=lines).stdout == "Stored 2 of 2 messages.\n"
    shown = json.loads(om("threads", "show", latin, "--user", user, "--json").stdout)["items"]
    assert [(item["role"], item["content"]) for item in shown] == [
        ("caf\ufffd", "caf\ufffd"), ("user", "cut \ufffd"), ("user", "ends\u2028of\x85lines"),
    ]  # fmt: skip
    assert om("add", latin, "--metadata", '{"k": "\\ud83d"}', "--user", user).returncode == 0
    [found] = json.loads(om("list", "--user", user, "--json").stdout)["items"]
    assert (found["content"], found["metadata_"]) == ("caf\ufffd", {"k": "\ufffd"})
