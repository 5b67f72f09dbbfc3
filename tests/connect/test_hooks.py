from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from openmemory.connect import connections, jsonc
from openmemory.connect.clients import AssistantClient, ServerAddress
from openmemory.connect.hooks import Hook, hooked, hooks_in, is_ours
from openmemory.errors import Invalid

EVERY: tuple[Hook, ...] = ("session-start", "prompt", "pre-compact", "session-end")
APPS = ("claude-code", "codex", "cursor")
OURS = ServerAddress(command=("/opt/open memory/bin/openmemory", "hook", "--client", "someone"))
OTHERS = {
    "claude-code": '{"matcher": "startup", "hooks": [{"type": "command", "command": "other.sh"}]}',
    "codex": '{"hooks": [{"type": "command", "command": "other hook session-start"}]}',
    "cursor": '{"command": "./other.sh"}',
}
FIRST = {"claude-code": "SessionStart", "codex": "SessionStart", "cursor": "sessionStart"}
FILES = {
    "nothing": "",
    "an empty object": "{}\n",
    "one line": '{"version": 1, "theme": "dark"}',
    "empty hooks": '{\n  "version": 1,\n  "hooks": {}\n}\n',
    "an empty list": '{\n  "version": 1,\n  "hooks": {\n    "EVENT": []\n  }\n}\n',
    "one line with others": '{"version": 1, "hooks": {"EVENT": [OTHER]}}',
    "others": '{\n  "version": 1,\n  "hooks": {\n    "EVENT": [\n      OTHER\n    ]\n  },\n  "theme": "dark"\n}\n',
    "tabs": '{\n\t"version": 1,\n\t"hooks": {\n\t\t"EVENT": [\n\t\t\tOTHER,\n\t\t\tOTHER\n\t\t]\n\t}\n}',
    "windows": '{\r\n  "version": 1,\r\n  "hooks": {\r\n    "EVENT": [\r\n      OTHER\r\n    ]\r\n  }\r\n}\r\n',
    "comments": (
        '// mine\n{\n  "version": 1, // so far\n  "hooks": {\n    // at the start\n'
        '    "EVENT": [\n      OTHER // keep\n'
        '      /* more later */\n    ],\n    "stop": [] // none\n  }\n}\n'
    ),
    "trailing commas": '{\n  "version": 1,\n  "hooks": {\n    "EVENT": [\n      OTHER, // here\n    ],\n  },\n}\n',
}
CASES = [
    pytest.param(app, text.replace("EVENT", FIRST[app]).replace("OTHER", OTHERS[app]), id=f"{app}-{name}")
    for app in APPS
    for name, text in FILES.items()
]


def client_at(app: str, home: Path, *chosen: Hook) -> AssistantClient:
    [client] = [it for it in hooked(chosen or ("session-start",), home) if it.app == app]
    client.file.parent.mkdir(parents=True, exist_ok=True)
    return client


def ours(client: AssistantClient) -> Any:
    return connections.entry(client, client.file)


def everything(text: str) -> Any:
    """The content of a file, without empty lists, which run nothing, and without the version that Cursor needs."""
    found = jsonc.loads(text)
    hooks = {event: entries for event, entries in found.pop("hooks", {}).items() if entries}
    found.pop("version", None)
    return found, hooks


@pytest.mark.parametrize(("app", "text"), CASES)
def test_adding_hooks_and_removing_them_gives_the_same_bytes(app: str, text: str, tmp_path: Path) -> None:
    client = client_at(app, tmp_path, *EVERY)
    client.file.write_bytes(text.encode())
    connections.apply(connections.connecting(client, OURS, client.file))
    assert ours(client) == client.entry(OURS)
    found, hooks = everything(client.file.read_bytes().decode())
    others = {event: rest for event, mine in hooks.items() if (rest := [it for it in mine if not is_ours(it)])}
    assert (found, others) == everything(text), "all other settings and hooks stay, in their order"
    assert not connections.connecting(client, OURS, client.file).needed, "adding again changes nothing"
    connections.apply(connections.disconnecting(client, client.file))
    assert client.file.read_bytes() == text.encode()
    assert [it.name for it in client.file.parent.iterdir()] == [client.file.name]


@pytest.mark.parametrize(("app", "text"), CASES)
def test_only_our_hooks_go_from_a_file_that_changed_since(app: str, text: str, tmp_path: Path) -> None:
    client = client_at(app, tmp_path, *EVERY)
    client.file.write_bytes(text.encode())
    connections.apply(connections.connecting(client, OURS, client.file))
    position = len(jsonc.loads(client.file.read_bytes().decode())["hooks"][FIRST[app]])
    changed = jsonc.insert(
        client.file.read_bytes().decode(), ["hooks", FIRST[app], position], json.loads(OTHERS[app]) | {"newcomer": 1}
    )
    client.file.write_bytes(changed.encode())
    connections.apply(connections.disconnecting(client, client.file))
    found, hooks = everything(client.file.read_bytes().decode())
    expected, others = everything(text)
    assert found == expected
    others.setdefault(FIRST[app], []).append(json.loads(OTHERS[app]) | {"newcomer": 1})
    assert hooks == others


@pytest.mark.parametrize(("app", "text"), CASES)
def test_other_choices_replace_the_hooks(app: str, text: str, tmp_path: Path) -> None:
    every, one = client_at(app, tmp_path, *EVERY), client_at(app, tmp_path, "session-start")
    every.file.write_bytes(text.encode())
    for client in (every, one):
        connections.apply(connections.connecting(client, OURS, client.file))
    assert ours(one) == one.entry(OURS)
    assert hooks_in(ours(one)) == ["session-start"]
    connections.apply(connections.disconnecting(one, one.file))
    assert everything(one.file.read_bytes().decode()) == everything(text)


@pytest.mark.parametrize("app", APPS)
def test_a_file_that_adding_made_is_gone_afterwards(app: str, tmp_path: Path) -> None:
    client = client_at(app, tmp_path)
    connections.apply(connections.connecting(client, OURS, client.file))
    connections.apply(connections.disconnecting(client, client.file))
    assert not client.file.exists()


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize("text", ["{", "[1]", '{"hooks": []}', '{"hooks": {"stop": {}}}', '{"hooks": 1}'])
def test_a_file_with_something_else_where_hooks_are_is_refused_and_stays(app: str, text: str, tmp_path: Path) -> None:
    client = client_at(app, tmp_path)
    client.file.write_text(text)
    with pytest.raises(Invalid, match=str(client.file)):
        connections.apply(connections.connecting(client, OURS, client.file))
    assert client.file.read_text() == text
    assert [it.name for it in client.file.parent.iterdir()] == [client.file.name]


def test_each_assistant_gets_the_events_and_the_form_that_it_documents(tmp_path: Path) -> None:
    command = "'/opt/open memory/bin/openmemory' hook {} --client someone"
    start = {
        "matcher": "startup|resume|clear|compact",
        "hooks": [{"type": "command", "command": command.format("session-start"), "timeout": 5}],
    }
    plain = {hook: {"hooks": [{"type": "command", "command": command.format(hook), "timeout": 5}]} for hook in EVERY}
    assert {app: client_at(app, tmp_path, *EVERY).entry(OURS) for app in APPS} == {
        "claude-code": {
            "SessionStart": [start],
            "UserPromptSubmit": [plain["prompt"]],
            "PreCompact": [plain["pre-compact"]],
            "SessionEnd": [plain["session-end"]],
        },
        "codex": {
            "SessionStart": [start],
            "UserPromptSubmit": [plain["prompt"]],
        },
        "cursor": {"sessionStart": [{"command": command.format("session-start"), "timeout": 5}]},
    }
    assert shlex.split(command.format("prompt"))[0] == OURS.command[0]


def test_cursor_gets_the_version_that_it_needs(tmp_path: Path) -> None:
    client = client_at("cursor", tmp_path)
    connections.apply(connections.connecting(client, OURS, client.file))
    assert json.loads(client.file.read_text())["version"] == 1


def test_hooks_of_others_are_not_ours() -> None:
    assert not is_ours({"command": "other hook session-start"})
    assert not is_ours({"hooks": [{"command": "openmemory hook prompt"}, {"command": "other"}]}), "it holds another"
    assert is_ours({"command": r'"C:\Program Files\openmemory.exe" hook prompt --client cursor'})
    assert not any(is_ours(it) for it in ({}, None, "openmemory hook prompt", {"hooks": []}, {"hooks": 1}))
