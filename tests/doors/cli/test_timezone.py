"""`openmemory timezone`, and the time zone that commands and the bridge name."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_a_time_zone_is_saved_shown_and_forgotten(om: Run, user: str) -> None:
    om("add", "Something", "--user", user, TZ="UTC").check_returncode()
    assert om("timezone", "--user", user, TZ="UTC").stdout.splitlines()[1:] == ["# saved: none"]
    saved = om("timezone", "Asia/Kolkata", "--user", user, TZ="UTC").stdout
    assert saved.splitlines() == ["Asia/Kolkata (saved)", "# saved: Asia/Kolkata"]
    named = om("timezone", "--user", user, TZ="Europe/Berlin").stdout
    assert named.splitlines() == ["Europe/Berlin (this machine's, which commands name)", "# saved: Asia/Kolkata"]
    shown = json.loads(om("timezone", "--user", user, "--json", TZ="UTC").stdout)
    assert (shown["timezone"], shown["source"], shown["saved"]) == ("Asia/Kolkata", "user", "Asia/Kolkata")
    assert "# saved: none" in om("timezone", "--forget", "--user", user, TZ="UTC").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("Mars/Phobos",), "timezone: must be the IANA name of a time zone, such as Europe/Berlin"),
        (("UTC", "--forget"), "must not be given with --forget"),
    ],
)
def test_what_is_no_time_zone_is_refused(om: Run, user: str, arguments: tuple[str, ...], said: str) -> None:
    om("add", "Something", "--user", user).check_returncode()
    refused = om("timezone", *arguments, "--user", user)
    assert refused.returncode == 2
    assert said in " ".join(refused.stderr.split())


@pytest.mark.slow
def test_a_search_on_the_command_line_means_the_days_of_the_machine(om: Run, user: str) -> None:
    added = om("add", "The cat came home", "--user", user, "--created-at", "2026-05-02T23:30Z")
    added.check_returncode()
    ask = ("search", "what happened today", "--as-of", "2026-05-03T01:00Z", "--user", user, "--json")
    for zone, texts in (("Europe/Berlin", ["The cat came home"]), ("Asia/Kolkata", ["The cat came home"]), ("UTC", [])):
        found = json.loads(om(*ask, TZ=zone).stdout)
        assert (found["search_method"], [one["memory"] for one in found["results"]]) == ("time", texts), zone
        assert (found["note"] or "").startswith("Nothing is dated 2026-05-03") is (not texts), zone


def test_the_bridge_names_the_time_zone_of_the_machine(om: Run, user: str) -> None:
    om("add", "The cat came home", "--user", user, "--created-at", "2026-05-02T23:30Z").check_returncode()
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    asked = {"name": "search_memory", "arguments": {"query": "cat"}}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": opening},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": asked},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0"} | message) + "\n" for message in messages)
    for zone, day in (("Europe/Berlin", "2026-05-03"), ("America/New_York", "2026-05-02")):
        told = om("mcp", "--client", "claude", "--user", user, stdin=lines, TZ=zone)
        answers = [json.loads(line) for line in told.stdout.splitlines()]
        [found] = [one["result"]["content"][0]["text"] for one in answers if one.get("id") == 2]
        assert f" {day} openmemory: The cat came home" in found, told.stderr
