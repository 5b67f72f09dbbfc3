"""The commands for archive policies, against a running service."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.slow
def test_a_policy_is_added_listed_and_removed(om: Run, user: str) -> None:
    assert om("add", "I skate.", "--user", user).returncode == 0
    made = om("policies", "add", "namespace", "webshop", "--days", "90", "--user", user)
    assert made.returncode == 0, made.stderr
    om("policies", "add", "user", "--days", "365", "--user", user)
    lines = [line.split("\t") for line in om("policies", "list", "--user", user).stdout.splitlines()]
    assert [line[2:] for line in lines] == [
        ["90", "namespace", "webshop", "archive"],
        ["365", "user", user, "archive"],
    ]
    assert lines[0][0] == made.stdout.strip()
    assert om("policies", "remove", lines[0][0][:8], "--user", user).returncode == 0
    [left] = json.loads(om("policies", "list", "--user", user, "--json").stdout)["policies"]
    assert left["criteria_type"] == "user"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["add", "user", "--days", "0"], 2, "--days"),
        (["add", "mood", "good", "--days", "1"], 2, "TYPE: "),
        (["upcoming", "--within-days", "-1"], 2, "--within-days"),
        (["add", "namespace", "--days", "1"], 2, "OF: "),
        (["add", "app", "no-such-app", "--days", "1"], 1, "App not found"),
        (["remove", "00000000-0000-0000-0000-000000000000"], 1, "Archive policy not found"),
    ],
)
def test_what_cannot_be_done_with_a_policy_is_told(
    om: Run, user: str, arguments: list[str], code: int, words: str
) -> None:
    om("add", "I skate.", "--user", user)
    told = om("policies", *arguments, "--user", user)
    assert told.returncode == code, told.stderr
    assert words in told.stderr


def test_what_will_be_put_away_is_told_before(om: Run, user: str) -> None:
    assert om("add", "The lift is broken.", "--ttl-days", "3", "--user", user).returncode == 0
    om("add", "I live in Oslo.", "--user", user)
    made = om("policies", "add", "user", "--days", "5", "--expire", "--user", user)
    assert made.returncode == 0, made.stderr
    lines = [line.split("\t") for line in om("policies", "upcoming", "--user", user).stdout.splitlines()]
    assert [(line[1], line[2], line[4]) for line in lines] == [
        ("expire", "itself", "The lift is broken."),
        ("expire", made.stdout.strip(), "I live in Oslo."),
    ]
    found = json.loads(om("policies", "upcoming", "--within-days", "4", "--user", user, "--json").stdout)
    assert (found["total"], [item["content"] for item in found["items"]]) == (1, ["The lift is broken."])
    paged = om("policies", "upcoming", "-n", "1", "--page", "2", "--user", user)
    assert "I live in Oslo." in paged.stdout
    assert "2 memories in all" in paged.stdout
    refused = om("add", "A thing.", "--ttl-days", "0", "--user", user)
    assert (refused.returncode, "--ttl-days" in refused.stderr) == (2, True)
