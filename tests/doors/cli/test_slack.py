"""The commands about Slack, against a running service and a server that speaks as Slack does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from openmemory.slack.manifest import READING
from tests import warm
from tests.slack.fake import APP_LEVEL, BOT, FakeSlack, slack_of
from tests.slack.workspace import BOB, GENERAL, Workspace, said, ts_at, zipped

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def workspace() -> Workspace:
    """A workspace of one's own."""
    return Workspace()


@pytest.fixture
def fake(workspace: Workspace) -> Iterator[FakeSlack]:
    """Slack, as this workspace sees it."""
    with slack_of(workspace) as server:
        yield server


@pytest.fixture
def do(om: Run, user: str, fake: FakeSlack) -> Callable[..., str]:
    """Runs a command for the test's own user, with the token in the environment, and returns what it prints."""

    def run(*arguments: str, code: int = 0, token: str = BOT, named: bool = True, stdin: str | None = None) -> str:
        variables = {"SLACK_TOKEN": token, "OPENMEMORY_SLACK_BASE_URL": fake.base_url, "SLACK_BOT_TOKEN": ""}
        mine = ("--user", user) if named else ()
        done = om("slack", *arguments, *mine, stdin=stdin, **variables)
        assert done.returncode == code, done.stdout + done.stderr
        assert BOT not in done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    return run


@pytest.mark.slow
def test_a_channel_is_loaded_found_and_forgotten(do: Callable[..., str], fake: FakeSlack) -> None:
    fake.throttle = 1
    assert "general\tC0GENERAL\tpublic" in do("channels", named=False).splitlines()
    told = do("load", "general").splitlines()
    assert told[0] == "general: 7 added, 0 changed, 0 removed, 0 unchanged, 1 threads read."
    assert told[1] == "# 1 left out: a notice of Slack."
    assert do("load", "#general", "--days", "36500").startswith("general: 0 added, 0 changed, 0 removed, 7 unchanged")
    [row] = do("status").splitlines()
    assert row.split("\t")[0] == "general"
    assert row.split("\t")[2] == "7"
    found = do("search", "who", "wrote", "the", "checkout?", "--channel", "general").splitlines()[0].split("\t")
    assert found[1:5:2] == ["general", "Bob Ross"]
    assert found[4] == "I wrote its checkout in Rust."
    lunch = do("search", "harbour", "--author", "cleo", "--after", "2026-03-03", "--before", "2026-03-03")
    assert [line.split("\t")[4] for line in lunch.splitlines()] == ["Lunch at the harbour today?"]
    assert do("forget", "general", "--yes").startswith("Erased 7 messages")
    assert do("status") == "# No channel is stored.\n"
    do("forget", "general", "--yes", code=1)


def test_one_thread_and_no_threads(do: Callable[..., str]) -> None:
    assert do("load", "general", "--thread", ts_at(0, 10)).startswith("general: 3 added")
    assert do("load", "general", "--no-threads").startswith("general: 4 added, 0 changed, 0 removed, 1 unchanged")
    assert "--thread" in do("load", "general", "--thread", "x", code=2)


def test_an_export_is_imported_and_repeated(do: Callable[..., str], workspace: Workspace, tmp_path: Path) -> None:
    folder = workspace.export(tmp_path / "export")
    for path in (folder, zipped(folder, tmp_path / "export.zip")):
        lines = do("import", str(path)).splitlines()
        first = path == folder
        assert lines[0].startswith(f"4 channels: {10 if first else 0} added, 0 changed, 0 removed")
    assert len(do("status").splitlines()) == 4
    told = json.loads(do("import", str(folder), "--channel", "secret", "--json"))
    assert [(one["channel"], one["unchanged"]) for one in told["channels"]] == [("secret", 1)]
    assert "no channel 'nowhere'" in do("import", str(folder), "--channel", "nowhere", code=1)


@pytest.mark.slow
def test_private_channels_are_the_users_and_public_ones_of_slack_bot(
    om: Run, do: Callable[..., str], workspace: Workspace
) -> None:
    workspace.channels[0]["name"] = name = f"public-{ts_at(0)[-3:]}"
    workspace.channels[1]["name"] = "private-x"
    do("load", name, named=False)
    do("load", "private-x", named=False)
    rows = [line.split("\t")[:2] for line in do("status", named=False).splitlines()]
    assert [name, "slack-bot"] in rows
    assert ["private-x", "slack-bot"] not in rows
    assert "private-x" in [row[0] for row in rows]
    assert "Project Walrus" in do("search", "merger", "--channel", "private-x", named=False)
    assert "Project Walrus" not in do("search", "merger", "--user", "slack-bot", named=False)
    do("forget", name, "--yes", named=False)
    do("forget", "private-x", "--yes", named=False)


def test_a_token_is_checked_and_kept(run: Run, served: Path, fake: FakeSlack, tmp_path: Path) -> None:
    variables = {"OPENMEMORY_SLACK_BASE_URL": fake.base_url, "SLACK_TOKEN": "", "SLACK_BOT_TOKEN": ""}

    def connect(*arguments: str, stdin: str = "", data: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        return run("slack", "connect", *arguments, stdin=stdin, OPENMEMORY_DATA_DIR=str(data), **variables)

    wrong = connect(stdin="xoxb-wrong-token-1")
    assert wrong.returncode != 0
    assert "invalid_auth" in wrong.stderr
    assert not (tmp_path / "slack.token").exists()
    right = connect(stdin=f"{BOT}\n")
    assert (right.returncode, right.stdout) == (0, "Connected to Analytical Engines as openmemory.\n"), right.stderr
    assert (tmp_path / "slack.token").read_text() == BOT
    assert connect("--forget").stdout == "The token is removed.\n"
    assert connect(stdin=BOT, data=tmp_path / "nowhere").returncode != 0
    missing = run("slack", "channels", OPENMEMORY_DATA_DIR=str(served), **variables)
    assert "token: is missing" in missing.stderr


def test_the_manifest_has_the_scopes_that_are_needed(run: Run) -> None:
    whole = yaml.safe_load(run("slack", "manifest").stdout)
    assert whole["oauth_config"]["scopes"] == {"bot": list(READING), "user": list(READING)}
    assert whole["settings"]["socket_mode_enabled"] is True
    assert "message.channels" in whole["settings"]["event_subscriptions"]["bot_events"]
    small = yaml.safe_load(run("slack", "manifest", "--public-only", "--no-listen").stdout)
    assert small["oauth_config"]["scopes"]["bot"] == ["channels:history", "channels:read", "users:read"]
    assert "event_subscriptions" not in small["settings"]


def test_nothing_to_listen_to_is_told(do: Callable[..., str], om: Run, user: str, fake: FakeSlack) -> None:
    assert "SLACK_APP_TOKEN" in do("listen", code=2)
    told = om(
        "slack", "listen", "--user", user, SLACK_TOKEN=BOT, SLACK_APP_TOKEN="xapp-x",
        OPENMEMORY_SLACK_BASE_URL=fake.base_url,
    )  # fmt: skip
    assert "Load one first" in told.stderr
    assert GENERAL not in told.stdout


@pytest.mark.slow
def test_what_is_said_is_stored_as_it_is_said(
    do: Callable[..., str], served: Path, user: str, fake: FakeSlack, run: Run
) -> None:
    do("load", "general")
    variables = {
        "OPENMEMORY_SLACK_BASE_URL": fake.base_url, "SLACK_TOKEN": BOT, "SLACK_APP_TOKEN": APP_LEVEL,
        "OPENMEMORY_DATA_DIR": str(served),
    }  # fmt: skip
    command = [sys.executable, "-m", "openmemory", "slack", "listen", "--user", user]
    environment = warm.clean_environment() | variables
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as heard:
        try:
            socket = fake.connections.get(timeout=60)
            event = {"type": "message", "channel": GENERAL, **said(BOB, ts_at(9), "The walrus is blue")}
            socket.event("e1", event)
            assert fake.acknowledged.get(timeout=60) == "e1"
            assert "The walrus is blue" in do("search", "walrus", "--channel", "general")
        finally:
            heard.send_signal(signal.SIGINT)
            printed, _ = heard.communicate(timeout=60)
    assert "general: 1 added, 0 changed, 0 removed, 0 unchanged" in printed
