"""The commands for keys and for the audit log, against a running service."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_a_key_is_shown_once_listed_by_its_prefix_rotated_and_revoked(om: Run, user: str) -> None:
    made = om("keys", "create", "laptop", "--user", user, "--app", "claude", "--scope", "read", "--days", "30")
    key = made.stdout.strip()
    assert re.fullmatch("om_[a-z0-9]{8}_[A-Za-z0-9_-]{43}", key), made.stderr
    assert "cannot be shown again" in made.stderr
    prefix = key[:11]
    [line] = om("keys", "list", "--user", user).stdout.splitlines()
    assert line.split("\t")[:6] == [prefix, "laptop", user, "claude", "(all)", "read"]
    rotated = json.loads(om("keys", "rotate", prefix, "--keep", "60", "--json").stdout)
    assert rotated["key"] != key
    assert (rotated["app"], rotated["scopes"]) == ("claude", ["read"])
    assert om("keys", "revoke", rotated["id"]).returncode == 0
    [left] = json.loads(om("keys", "list", "--user", user, "--json").stdout)["keys"]
    assert left["prefix"] == prefix
    everything = json.loads(om("keys", "list", "--user", user, "--ended", "--json").stdout)["keys"]
    assert {one["prefix"] for one in everything} == {prefix, rotated["prefix"]}
    assert key[12:] not in json.dumps(everything)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["create", "k", "--user", "x", "--admin"], 2, "--user"),
        (["create", "k", "--scope", "root"], 2, "--scope: "),
        (["create", "k", "--days", "0"], 2, "--days"),
        (["revoke", "om_aaaaaaaa"], 1, "Key not found"),
        (["revoke", "00000000-0000-0000-0000-000000000000"], 1, "Key not found"),
        (["revoke", "om_aaaaaaaa_" + "A" * 43], 2, "must be the prefix (om_ and eight characters) and not the key"),
    ],
)
def test_what_cannot_be_done_with_a_key_is_told(om: Run, arguments: list[str], code: int, words: str) -> None:
    told = om("keys", *arguments)
    assert told.returncode == code
    assert words in told.stderr


def test_a_key_in_the_environment_decides_what_a_command_may_do(om: Run, user: str) -> None:
    key = om("keys", "create", "reader", "--user", user, "--scope", "read").stdout.strip()
    refused = om("add", "I skate.", "--user", user, OPENMEMORY_API_KEY=key)
    assert refused.returncode == 1
    assert "needs the scope write" in refused.stderr
    other = om("list", "--user", f"{user}-other", OPENMEMORY_API_KEY=key)
    assert "does not speak for the user" in other.stderr
    assert key not in refused.stderr + other.stderr


def test_the_audit_log_tells_who_did_what(om: Run, user: str) -> None:
    added = json.loads(om("add", "I skate.", "--user", user, "--json").stdout)
    om("search", "skating", "--user", user)
    om("export", "--user", user)
    lines = [line.split("\t") for line in om("audit", "--user", user).stdout.splitlines()]
    assert [line[1] for line in lines] == ["memory.export", "memory.search", "memory.add"]
    lines = lines[1:]
    assert lines[1][2:6] == ["ok", "this machine", "127.0.0.1 rest", user]
    assert added["id"] in lines[1][7]
    [only] = om("audit", "--user", user, "--event", "memory.add", "--since", "1 hour ago").stdout.splitlines()
    assert "memory.add" in only
    assert om("audit", "--user", user, "--denied").stdout == ""
