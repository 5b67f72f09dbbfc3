from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import tomlkit
import yaml

from openmemory.connect import connections, jsonc
from openmemory.connect.clients import AssistantClient, ServerAddress, assistants
from openmemory.connect.formats import JSON, TOML, YAML
from openmemory.errors import Invalid

LOCAL = ServerAddress(command=("/opt/open memory/bin/openmemory", "mcp", "--client", "someone"))
REMOTE = ServerAddress(url="https://memory.example.org/mcp", headers={"Authorization": "Bearer om_key"})

HOME = Path("/somebody")
EVERY = {it.app: it for it in assistants(HOME, HOME / ".config")}

JSON_FILES = {
    "nothing": "",
    "an empty object": "{}",
    "an empty object with a line break": "{}\n",
    "an object of two lines": "{\n}\n",
    "one line": '{"theme": "dark"}',
    "one line with an empty section": '{"SECTION": {}}',
    "one line with another server": '{"SECTION": {"other": {"command": "x"}}}\n',
    "other settings": '{\n  "theme": "dark",\n  "list": [1, 2, {"a": []}]\n}\n',
    "an empty section": '{\n  "SECTION": {},\n  "theme": "dark"\n}\n',
    "another server": '{\n    "SECTION": {\n        "other": {\n            "command": "x"\n        }\n    }\n}\n',
    "tabs": '{\n\t"SECTION": {\n\t\t"other": {"command": "x"}\n\t}\n}',
    "windows": '{\r\n  "SECTION": {\r\n    "other": {"command": "x"}\r\n  }\r\n}\r\n',
    "comments": (
        '// first\n{\n  // about the theme\n  "theme": "dark", // why: "eyes"\n'
        '  "SECTION": { // ours\n    "other": {"command": "x"} // the only one, so far\n'
        "    /* more later */\n  }\n}\n// last\n"
    ),
    "only a comment inside": '{\n  "SECTION": {\n    // none yet\n  }\n}\n',
    "trailing commas": '{\n  "SECTION": {\n    "other": {"command": "x",}, // here\n  },\n}\n',
    "hard strings": '{"a": "// no comment, \\" } {", "b": "/*", "SECTION": {"o{": {"command": "}"}}}',
    "unicode": '{\n  "größe": "漢字 \\ud83d\\ude00"\n}\n',
}
TOML_FILES = {
    "nothing": "",
    "other settings": 'model = "o5"  # the best\n\n[tui]\ntheme = "dark"\n',
    "another server": (
        '[mcp_servers.other]\ncommand = "x"\nargs = ["[mcp_servers.openmemory]"]\n\n[tui]\ntheme = "dark" # so\n'
    ),
    "a table of servers": '[mcp_servers]\n[mcp_servers.other]\ncommand = "x"\n',
    "no line break at the end": "[profiles.fast]\nmodel = 'small'",
    "a text of several lines": 'a = """\n[mcp_servers.openmemory]\n"""\n',
}
YAML_FILES = {
    "nothing": "",
    "other settings": "GOOSE_MODEL: best  # mine\nGOOSE_MODE: auto\n",
    "an empty section": "extensions:\nGOOSE_MODE: auto\n",
    "an empty mapping": "extensions: {}\nGOOSE_MODE: auto\n",
    "another extension": (
        "# mine\nextensions:\n  developer:  # always\n    enabled: true\n    args: [a, b]\n"
        "    # more\n  memory:\n    enabled: false\nGOOSE_MODE: auto\n"
    ),
    "wide indentation at the end": "GOOSE_MODE: auto\nextensions:\n    developer:\n        enabled: true",
}
FILES = {id(JSON): JSON_FILES, id(TOML): TOML_FILES, id(YAML): YAML_FILES}


def cases() -> list[Any]:
    return [
        pytest.param(app, text.replace("SECTION", it.path[0]), id=f"{app}-{name}")
        for app, it in EVERY.items()
        for name, text in FILES[id(it.kind)].items()
    ]


def client_at(app: str, folder: Path) -> tuple[AssistantClient, Path]:
    client = EVERY[app]
    return client, folder / client.file.name


def value_at(client: AssistantClient, text: str) -> Any:
    found = client.kind.loads(text)
    for key in client.path:
        found = found[key]
    return found


@pytest.mark.parametrize(("app", "text"), cases())
def test_connecting_and_disconnecting_gives_the_same_bytes(app: str, text: str, tmp_path: Path) -> None:
    client, file = client_at(app, tmp_path)
    for server in (LOCAL,) if client.remote is None else (LOCAL, REMOTE):
        round_trip(client, file, text, server)


def round_trip(client: AssistantClient, file: Path, text: str, server: ServerAddress) -> None:
    file.write_bytes(text.encode())
    connections.apply(connections.connecting(client, server, file))
    connected = file.read_bytes().decode()
    assert value_at(client, connected) == client.entry(server)
    remaining = client.kind.loads(connected)
    section = remaining[client.path[0]]
    del section[client.path[1]]
    before = client.kind.loads(text)
    if client.path[0] not in before or before[client.path[0]] is None:
        del remaining[client.path[0]]
        before.pop(client.path[0], None)
    assert remaining == before
    assert not connections.connecting(client, server, file).needed, "connecting again changes nothing"
    connections.apply(connections.disconnecting(client, file))
    assert file.read_bytes() == text.encode()
    assert [it.name for it in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("app", EVERY)
def test_a_file_that_connecting_made_is_gone_afterwards(app: str, tmp_path: Path) -> None:
    client, _ = client_at(app, tmp_path)
    file = tmp_path / "deeper" / client.file.name
    connections.apply(connections.connecting(client, LOCAL, file))
    assert value_at(client, file.read_text()) == client.entry(LOCAL)
    assert file.stat().st_mode & 0o777 == 0o600
    connections.apply(connections.disconnecting(client, file))
    assert not file.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("app", "text"), cases())
def test_the_entry_alone_goes_from_a_file_that_changed_since(app: str, text: str, tmp_path: Path) -> None:
    client, file = client_at(app, tmp_path)
    file.write_bytes(text.encode())
    connections.apply(connections.connecting(client, LOCAL, file))
    connected = client.kind.insert(file.read_bytes().decode(), (client.path[0], "newcomer"), {"command": "y"})
    file.write_bytes(connected.encode())
    connections.apply(connections.disconnecting(client, file))
    expected = client.kind.loads(connected)
    del expected[client.path[0]][client.path[1]]
    assert client.kind.loads(file.read_bytes().decode()) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("app", "text"), cases())
def test_another_server_replaces_the_entry_and_the_first_state_is_still_known(
    app: str, text: str, tmp_path: Path
) -> None:
    client, file = client_at(app, tmp_path)
    file.write_bytes(text.encode())
    other = ServerAddress(command=("openmemory", "mcp", "--client", "other", "--user", "ä"))
    for server in (LOCAL, other):
        connections.apply(connections.connecting(client, server, file))
    assert value_at(client, file.read_bytes().decode()) == client.entry(other)
    connections.apply(connections.disconnecting(client, file))
    assert client.kind.loads(file.read_bytes().decode()) == client.kind.loads(text)


BROKEN = {
    id(JSON): [
        "{",
        '{"a": }',
        '{"a": 1} x',
        "[1]",
        '{"SECTION": []}',
        '{"SECTION": {"a" 1}}',
        "{'a': 1}",
        '{"a": "\n"}',
    ],
    id(TOML): ["[", "a = ", "mcp_servers = 1", "a = 1\na = 2"],
    id(YAML): ["a: [", "\tb: 1", "extensions: [a]", "extensions: {a: 1}", "- 1"],
}


@pytest.mark.parametrize(
    ("app", "text"),
    [(app, text.replace("SECTION", it.path[0])) for app, it in EVERY.items() for text in BROKEN[id(it.kind)]],
)
def test_a_broken_file_is_refused_and_stays(app: str, text: str, tmp_path: Path) -> None:
    client, file = client_at(app, tmp_path)
    file.write_bytes(text.encode())
    with pytest.raises(Invalid, match=str(file)):
        connections.apply(connections.connecting(client, LOCAL, file))
    assert file.read_bytes() == text.encode()
    assert [it.name for it in tmp_path.iterdir()] == [file.name]


def test_a_file_that_is_not_utf_8_is_refused_and_stays(tmp_path: Path) -> None:
    client, file = client_at("cursor", tmp_path)
    file.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(Invalid, match="not UTF-8"):
        connections.connecting(client, LOCAL, file)
    assert file.read_bytes() == b'{"a": "\xff"}'


def test_a_read_only_file_is_refused_and_stays(tmp_path: Path) -> None:
    client, file = client_at("cursor", tmp_path)
    file.write_text("{}")
    file.chmod(0o400)
    with pytest.raises(Invalid, match="cannot be written: it is read-only"):
        connections.apply(connections.connecting(client, LOCAL, file))
    assert file.read_text() == "{}"
    assert [it.name for it in tmp_path.iterdir()] == [file.name]


def test_a_file_that_changes_in_between_is_refused_and_stays(tmp_path: Path) -> None:
    client, file = client_at("cursor", tmp_path)
    file.write_text("{}")
    change = connections.connecting(client, LOCAL, file)
    file.write_text('{"a": 1}')
    with pytest.raises(Invalid, match="has changed meanwhile"):
        connections.apply(change)
    assert file.read_text() == '{"a": 1}'


def test_mode_and_link_of_a_file_are_kept(tmp_path: Path) -> None:
    client, link = client_at("cursor", tmp_path)
    file = tmp_path / "dotfiles.json"
    file.write_text("{}")
    file.chmod(0o640)
    link.symlink_to(file)
    connections.apply(connections.connecting(client, LOCAL, link))
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert value_at(client, file.read_text()) == client.entry(LOCAL)


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX's")
def test_the_backup_of_a_private_file_is_private(tmp_path: Path) -> None:
    client, file = client_at("cursor", tmp_path)
    file.write_text('{"secret": 1}')
    file.chmod(0o600)
    connections.apply(connections.connecting(client, LOCAL, file))
    [backup] = [it for it in tmp_path.iterdir() if it != file]
    assert backup.read_text() == '{"secret": 1}'
    assert backup.stat().st_mode & 0o777 == 0o600


def test_who_starts_servers_only_is_given_no_url(tmp_path: Path) -> None:
    client, file = client_at("claude-desktop", tmp_path)
    with pytest.raises(Invalid, match="Claude Desktop reaches no service by URL"):
        connections.connecting(client, REMOTE, file)


def test_what_is_not_there_is_not_taken_out(tmp_path: Path) -> None:
    for client in EVERY.values():
        file = tmp_path / client.file.name
        assert not connections.disconnecting(client, file).needed
    file.write_text('{"mcpServers": {"other": {}}}')
    assert not connections.disconnecting(EVERY["cursor"], file).needed


@pytest.mark.parametrize("app", EVERY)
def test_each_client_has_a_name_of_its_own_and_an_entry_that_its_format_can_hold(app: str) -> None:
    client = EVERY[app]
    for server in (LOCAL, REMOTE):
        if server.url and client.remote is None:
            continue
        entry = client.entry(server)
        for text in (json.dumps(entry), tomlkit.dumps(entry), yaml.safe_dump(entry)):
            assert ("https://memory.example.org/mcp" in text) is bool(server.url)
            assert "someone" in text or server.url


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, "b": [1, 2,], /* c */ "c": null}', {"a": 1, "b": [1, 2], "c": None}),
        ("{}", {}),
        ("", {}),
        ("// only\n", {}),
        ('{"a": {"b": true}} // end', {"a": {"b": True}}),
        ("[1e5, -2]", [1e5, -2]),
        ('{"a": "/* no comment */"} /**/ /***/ /* // */', {"a": "/* no comment */"}),
    ],
)
def test_json_with_comments_is_read(text: str, value: Any) -> None:
    assert jsonc.loads(text) == value


@pytest.mark.parametrize("text", ["{} /* open", "{} /*/", '{"a": "open', '{"a": 1} /* open \\ "'])
def test_what_is_not_closed_is_not_read(text: str) -> None:
    with pytest.raises(jsonc.JsoncError):
        jsonc.loads(text)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", ["/**/ ", "/*", '"\\"', ", ", '"'])
def test_no_text_of_a_configuration_takes_long_to_refuse(unit: str) -> None:
    with pytest.raises(jsonc.JsoncError):
        jsonc.loads(f"{{ {unit * 50_000} x")


def test_a_comma_in_a_comment_stays() -> None:
    text = '{\n  "a": 1 // one, two\n  , "b": 2\n}'
    assert jsonc.remove(text, ["b"]) == '{\n  "a": 1 // one, two\n  \n}'


def test_connecting_again_changes_no_letters(tmp_path: Path) -> None:
    client, file = client_at("cursor", tmp_path)
    file.write_text('{"theme": "dark"}', encoding="utf-8")
    server = ServerAddress(command=("openmemory", "mcp", "--user", "Zoë"))
    connections.apply(connections.connecting(client, server, file))
    assert not connections.connecting(client, server, file).needed


@pytest.mark.parametrize("app", EVERY)
def test_a_shown_change_holds_neither_the_new_key_nor_the_old_one(app: str, tmp_path: Path) -> None:
    client, file = client_at(app, tmp_path)
    for key in ("om_first", "om_second"):
        server = ServerAddress(url="https://memory.example.org/mcp", headers={"Authorization": f"Bearer {key}"})
        if client.remote is None:
            server = ServerAddress(command=("openmemory", "mcp"), env={"OPENMEMORY_API_KEY": key})
        change = connections.connecting(client, server, file)
        shown = change.diff()
        assert "***" in shown
        assert "om_first" not in shown
        assert "om_second" not in shown
        connections.apply(change)


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX's")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_others_read_becomes_private_with_a_key(mode: int, tmp_path: Path) -> None:
    for app, server in (("cursor", REMOTE), ("claude-desktop", ServerAddress(("om",), {"OPENMEMORY_API_KEY": "k"}))):
        client, file = client_at(app, tmp_path)
        file.write_text("{}")
        file.chmod(mode)
        connections.apply(connections.connecting(client, LOCAL, file))
        assert file.stat().st_mode & 0o777 == mode, "a command is no secret"
        for _ in range(2):
            connections.apply(connections.connecting(client, server, file))
            assert file.stat().st_mode & 0o777 == 0o600
            file.chmod(mode)  # connecting again mends it
        assert connections.connecting(client, server, file).needed
        connections.apply(connections.disconnecting(client, file))
        assert file.read_text() == "{}"
        file.unlink()


def test_no_link_leads_out_of_a_folder(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    (project / "docs").mkdir(parents=True)
    outside.mkdir()
    (project / "AGENTS.md").symlink_to("docs/AGENTS.md")
    assert connections.inside(project / "AGENTS.md", project) == project / "AGENTS.md"
    (project / "away.md").symlink_to(outside / "made.md")
    (project / ".cursor").symlink_to(outside)
    (project / "up.md").symlink_to("../outside/made.md")
    (project / "again.md").symlink_to("away.md")
    for name in ("away.md", ".cursor/mcp.json", "up.md", "again.md", "../outside/made.md"):
        with pytest.raises(Invalid, match="leads out of"):
            connections.inside(project / name, project)


MOVED = {
    "CLAUDE_CONFIG_DIR": {"claude-code": ".claude.json"},
    "CODEX_HOME": {"codex": "config.toml"},
    "GEMINI_CLI_HOME": {"gemini-cli": ".gemini/settings.json"},
    "COPILOT_HOME": {"copilot-cli": "mcp-config.json"},
    "CONTINUE_GLOBAL_DIR": {"continue": "mcpServers/openmemory.json"},
    "GOOSE_PATH_ROOT": {"goose": "config/config.yaml"},
    "VSCODE_PORTABLE": {
        "vscode": "user-data/User/mcp.json",
        "cline": "user-data/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
    },
    "XDG_CONFIG_HOME": {
        "opencode": "opencode/opencode.jsonc", "kilo": "kilo/kilo.json", "zed": "zed/settings.json",
        "devin": "devin/mcp_config.json", "goose": "goose/config.yaml",
    },
    "FLATPAK_XDG_CONFIG_HOME": {"zed": "zed/settings.json"},
}  # fmt: skip


@pytest.mark.parametrize("variable", MOVED)
def test_a_variable_moves_the_file_of_its_assistant_and_no_other(variable: str) -> None:
    moved = {it.app: it for it in assistants(HOME, HOME / ".config", {variable: "/elsewhere"})}
    for app, client in moved.items():
        name = MOVED[variable].get(app)
        assert client.file == (EVERY[app].file if name is None else Path("/elsewhere", name))


def test_a_variable_that_is_empty_moves_nothing() -> None:
    files = [it.file for it in assistants(HOME, HOME / ".config", dict.fromkeys(MOVED, " "))]
    assert files == [it.file for it in EVERY.values()]


def test_an_assistant_in_a_moved_folder_is_installed(tmp_path: Path) -> None:
    for variable, app in (("CLAUDE_CONFIG_DIR", "claude-code"), ("CODEX_HOME", "codex"), ("CLINE_DIR", "cline")):
        [client] = [it for it in assistants(tmp_path, tmp_path, {variable: str(tmp_path / app)}) if it.app == app]
        assert not client.installed
        (tmp_path / app).mkdir()
        assert client.installed


@pytest.mark.parametrize(
    ("folder", "app"),
    [
        ("Code - Insiders/User/globalStorage/saoudrizwan.claude-dev", "cline"), (".cline/data", "cline"),
        (".codeium/windsurf", "devin"), (".gemini/antigravity", "antigravity"),
    ],
)  # fmt: skip
def test_the_file_is_written_where_the_assistant_is(folder: str, app: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir(parents=True)
    [client] = [it for it in assistants(tmp_path, tmp_path) if it.app == app]
    assert tmp_path / folder in client.file.parents


def test_lm_studio_is_where_its_pointer_says(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / ".lmstudio-home-pointer").write_text(f"{tmp_path / 'models'}\n")
    assert tmp_path / "models" / "mcp.json" in [it.file for it in assistants(tmp_path, tmp_path)]


def test_each_edition_of_vs_code_has_a_file_of_its_own() -> None:
    assert [str(EVERY[app].file) for app in ("vscode", "vscode-insiders", "vscodium")] == [
        f"/somebody/.config/{folder}/User/mcp.json" for folder in ("Code", "Code - Insiders", "VSCodium")
    ]
