"""The commands about single memories, against a running service."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def do(om: Run, user: str) -> Callable[..., Any]:
    """Runs a command for the test's user, which must succeed, and returns its JSON."""

    def run(*arguments: str, stdin: str | None = None) -> Any:
        told = om(*arguments, "--user", user, "--json", stdin=stdin)
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)

    return run


@pytest.fixture
def states(do: Callable[..., Any]) -> Callable[[], dict[str, str]]:
    def listed() -> dict[str, str]:
        return {item["content"]: item["state"] for item in do("list", "--state", "all")["items"]}

    return listed


@pytest.mark.slow
def test_every_field_can_be_given_and_is_shown(om: Run, user: str, do: Callable[..., Any]) -> None:
    added = do(
        "add", "We deploy on Tuesdays", "--namespace", "webshop", "--thread", "standup", "--kind", "decision", "--key",
        "deploy", "--importance", "0.7", "--category", "work", "--metadata", '{"source": "standup"}', "--created-at",
        "2026-01-31", "--expires-at", "2090-01-31",
    )  # fmt: skip
    shown = do("get", added["id"])
    expected = {
        "text": "We deploy on Tuesdays", "namespace": "webshop", "thread_id": "standup", "kind": "decision",
        "key": "deploy", "importance": 0.7, "categories": ["work"], "metadata_": {"source": "standup"},
        "created_at": 1_769_817_600, "expires_at": "2090-01-31T00:00:00Z",
    }  # fmt: skip
    assert shown | expected == shown
    lines = om("get", added["id"], "--user", user).stdout.splitlines()
    assert {"text\tWe deploy on Tuesdays", 'metadata\t{"source": "standup"}', "categories\twork"} <= set(lines)
    for narrowed in (
        ["--kind", "decision"], ["--thread", "standup"], ["--category", "work"], ["--since", "2026-01-31"],
        ["--until", "2026-02-01"],
    ):  # fmt: skip
        assert [one["id"] for one in do("list", *narrowed)["items"]] == [added["id"]]
        assert [one["id"] for one in do("search", "deploy", *narrowed)["results"]] == [added["id"]]
    assert do("list", "--contains", "TUESDAY")["total"] == 1
    assert do("list", "--kind", "preference", "--contains", "x")["total"] == 0


def test_a_memory_is_changed_and_its_history_tells(om: Run, user: str, do: Callable[..., Any]) -> None:
    id_ = do("add", "I live in Bonn")["id"]
    do("update", id_, "I live in Linz", "--category", "home", "--ttl-days", "30")
    do("update", id_, "-", stdin="I live in Graz\n")
    do("update", id_, "--metadata", '{"a": 1}', "--expires-at", "never")
    shown = do("get", id_)
    assert (shown["text"], shown["categories"], shown["metadata_"]) == ("I live in Graz", ["home"], {"a": 1})
    assert shown["expires_at"] is None
    assert [one["new_text"] for one in do("history", id_)["revisions"]][:3] == [
        "I live in Bonn", "I live in Linz", "I live in Graz",
    ]  # fmt: skip
    lines = om("history", id_, "--user", user).stdout.splitlines()
    assert [line.split("\t")[2] for line in lines if "\ttext " in line][:2] == ["text 1", "text 2"]


@pytest.mark.slow
def test_memories_are_deleted_archived_paused_and_restored(
    om: Run, user: str, do: Callable[..., Any], states: Callable[[], dict[str, str]]
) -> None:
    one, two, three = [do("add", text)["id"] for text in ("one", "two", "three")]
    do("delete", one, two)
    do("archive", three)
    assert states() == {"one": "deleted", "two": "deleted", "three": "archived"}
    told = om("restore", "--user", user)
    assert told.returncode == 0
    assert told.stdout.splitlines()[0] == "Successfully restored 2 memories"
    assert set(told.stdout.splitlines()[1:]) == {one, two}
    do("restore", three)
    assert set(states().values()) == {"active"}
    nothing = om("restore", "--user", user)
    assert (nothing.returncode, nothing.stderr) == (1, "openmemory: There is nothing to restore that you deleted\n")


@pytest.mark.slow
def test_memories_are_paused_and_resumed_one_by_one_or_together(
    om: Run, user: str, do: Callable[..., Any], states: Callable[[], dict[str, str]]
) -> None:
    by_id = do("add", "by id")["id"]
    do("add", "by app", "--app", "notes")
    do("add", "by category", "--category", "Health")
    for which in ([by_id], ["--app", "notes"], ["--category", "health"]):
        do("pause", *which)
        assert list(states().values()).count("paused") == 1
        do("pause", *which, "--resume")
        assert list(states().values()).count("paused") == 0
    do("pause", "--all")
    assert set(states().values()) == {"paused"}
    neither = om("pause", "--user", user)
    assert (neither.returncode, neither.stderr.split(":")[1]) == (2, " pause")


def test_related_memories_and_accesses_are_listed(om: Run, user: str, do: Callable[..., Any]) -> None:
    one, two = [do("add", text, "--category", "trips")["id"] for text in ("Oslo in May", "Rome in June")]
    assert [item["id"] for item in do("related", one)["items"]] == [two]
    do("update", one, "Oslo in July")
    assert [line.split("\t")[1:4] for line in om("accesses", one, "--user", user).stdout.splitlines()] == [
        ["openmemory", "update", "1"]
    ]


@pytest.mark.slow
def test_every_command_takes_the_first_characters_of_an_id(om: Run, user: str, do: Callable[..., Any]) -> None:
    id_ = do("add", "We deploy on Tuesdays", "--app", "claude", "--category", "work")["id"]
    short = id_[:8]
    assert do("get", short)["id"] == id_
    assert do("update", short, "We deploy on Mondays")["id"] == id_
    for command in ("history", "related", "accesses"):
        do(command, short)
    made = do("grants", "add", "deny", "memory", short, "--app", "claude")
    assert made["object"] == id_
    assert not do("grants", "explain", short, "--app", "claude")["allowed"]
    for command in ("pause", "archive", "delete", "restore"):
        do(command, short)
    assert do("erase", "--memory", short, "--yes")["message"] == "Successfully erased 1 memories"
    assert om("get", id_, "--user", user).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["get", "6f1c2d9e-4b7a-4c53-9e0d-2a8f1b3c4d5e"], 1, "Memory not found"),
        (["get", "6f1c2d9e-4b7a"], 1, "Memory not found"),
        (["get", "6f1"], 2, "ID: input should be a valid UUID, or its first characters (4 or more)"),
        (["update", "6f1c2d9e-4b7a-4c53-9e0d-2a8f1b3c4d5e"], 2, "TEXT: is required"),
        (["update", "x", "--metadata", "{"], 2, "--metadata: must be valid JSON"),
        (["delete", "not an id"], 2, "ID: "),
        (["pause", "x", "--all"], 2, "pause: needs one of these"),
    ],
)
def test_a_refusal_is_one_line(om: Run, arguments: list[str], code: int, words: str) -> None:
    told = om(*arguments)
    assert (told.returncode, told.stdout) == (code, "")
    [line] = told.stderr.splitlines()
    assert line.startswith(f"openmemory: {words}")
