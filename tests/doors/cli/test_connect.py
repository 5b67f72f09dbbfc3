from __future__ import annotations

import base64
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which Cursor and Codex are installed, and Cursor has a server already."""
    home = tmp_path / "home"
    (home / ".cursor").mkdir(parents=True)
    (home / ".codex").mkdir()
    (home / ".cursor" / "mcp.json").write_text('{\n  "mcpServers": {\n    "other": {"command": "x"}\n  }\n}\n')
    return home


def at(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}


def test_the_installed_assistants_are_connected_and_disconnected(run: Run, home: Path) -> None:
    cursor, codex = home / ".cursor" / "mcp.json", home / ".codex" / "config.toml"
    before = cursor.read_bytes()
    shown = run("connect", "--dry-run", **at(home))
    assert shown.returncode == 0, shown.stderr
    assert '+    "openmemory": {' in shown.stdout
    assert cursor.read_bytes() == before
    done = run("connect", "--yes", **at(home))
    assert done.returncode == 0, done.stderr
    assert f"Cursor: changed {cursor}. Switch the server on in Settings, Tools & MCP.\n" in done.stdout
    entry = json.loads(cursor.read_text())["mcpServers"]["openmemory"]
    assert Path(entry["command"]).is_absolute()
    assert entry["args"] == ["mcp", "--client", "cursor"]
    assert codex.exists()
    again = run("connect", "--yes", "--json", **at(home))
    assert {one["client"]: one["status"] for one in json.loads(again.stdout)} == {
        "cursor": "unchanged",
        "codex": "unchanged",
    }
    gone = run("disconnect", "--yes", **at(home))
    assert gone.returncode == 0, gone.stderr
    assert f"Cursor: changed {cursor}. Restart it.\n" in gone.stdout
    assert cursor.read_bytes() == before
    assert not codex.exists()


def test_after_a_removal_nobody_is_told_to_look_for_the_server(run: Run, home: Path) -> None:
    (home / ".claude").mkdir()
    added = run("connect", "--yes", "claude-code", "--hooks", **at(home)).stdout
    assert "Start a new session; /mcp shows the server." in added
    assert "It runs from the next session on." in added
    steps = re.findall(
        r"^Claude Code: changed \S+\. (.+)$", run("disconnect", "--yes", **at(home)).stdout, re.MULTILINE
    )
    assert steps == ["Start a new session."] * 2


def test_an_assistant_gets_the_folder_and_settings_that_the_environment_names(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def arguments(file: Path, *options: str) -> list[str]:
        assert run("connect", "--yes", "cursor", *options, **named).returncode == 0
        args: list[str] = json.loads(file.read_text())["mcpServers"]["openmemory"]["args"]
        return args

    named = at(home) | {"OPENMEMORY_DATA_DIR": str(tmp_path / "named"), "OPENMEMORY_CONFIG": str(tmp_path / "om.toml")}
    mine = home / ".cursor" / "mcp.json"
    config = ["--config", str(tmp_path / "om.toml"), "--client", "cursor"]
    assert arguments(mine) == ["mcp", "--data-dir", str(tmp_path / "named"), *config]
    other = str(tmp_path / "other")
    assert arguments(mine, "--data-dir", other) == ["mcp", "--data-dir", other, *config], "the option comes first"
    monkeypatch.chdir(tmp_path)
    assert arguments(tmp_path / ".cursor" / "mcp.json", "--project") == ["mcp", "--client", "cursor"]


def test_what_an_assistant_is_told_to_start_speaks_for_the_memory(run: Run, home: Path, served: Path) -> None:
    run("connect", "--yes", "cursor", "--user", "bob", "--data-dir", str(served), **at(home))
    entry = json.loads((home / ".cursor" / "mcp.json").read_text())["mcpServers"]["openmemory"]
    opening = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
    }
    adding = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "add_memories", "arguments": {"text": "Cursor was connected"}},
    }
    lines = [opening, {"jsonrpc": "2.0", "method": "notifications/initialized"}, adding]
    answered = subprocess.run(
        [entry["command"], *entry["args"]],
        check=True,
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert json.loads(answered.stdout.splitlines()[1])["result"]["content"][0]["text"].startswith("ADD ")
    listed = run("clients", "--user", "bob", "--json", "--data-dir", str(served), **at(home))
    rows = {row["client"]: row for row in json.loads(listed.stdout)}
    assert rows["cursor"] == {
        "client": "cursor",
        "title": "Cursor",
        "file": str(home / ".cursor" / "mcp.json"),
        "connected": True,
        "memories_written": 1,
        "memories_read": 0,
        "written_lately": 1,
        "read_lately": 0,
        "last_read": None,
    }
    cells = dict(
        line.split("\t", 1)
        for line in run("clients", "--user", "bob", "--data-dir", str(served), **at(home)).stdout.splitlines()
    )
    assert cells["Cursor"].split("\t")[:5] == ["yes", "yes", "1 (1)", "0", "never"]
    assert cells["Codex"].split("\t")[:5] == ["", "", "0", "0", "never"]
    assert not rows["codex"]["connected"]
    assert "claude-code" not in rows, "it is not installed"


def test_a_service_elsewhere_is_written_down_with_its_key(run: Run, home: Path) -> None:
    done = run(
        "connect", "--yes", "cursor", "claude-desktop", "--remote", "https://memory.example.org/",
        **at(home) | {"OPENMEMORY_API_KEY": "om_0123456789"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "om_0123456789" not in done.stdout
    entry = json.loads((home / ".cursor" / "mcp.json").read_text())["mcpServers"]["openmemory"]
    assert entry == {
        "url": "https://memory.example.org/mcp",
        "headers": {"Authorization": "Bearer om_0123456789"},
    }
    desktop = json.loads((home / ".config/Claude/claude_desktop_config.json").read_text())["mcpServers"]["openmemory"]
    assert desktop["args"] == ["mcp", "--client", "claude-desktop", "--url", "https://memory.example.org"]
    assert desktop["env"] == {"OPENMEMORY_API_KEY": "om_0123456789"}


@pytest.mark.slow
def test_the_tools_of_another_server_are_written_down_and_work(run: Run, home: Path, served: Path) -> None:
    where = ["--data-dir", str(served), "--user", "bob"]
    done = run("connect", "--yes", "cursor", "--as", "pimemento", *where, **at(home))
    assert done.returncode == 0, done.stderr
    entry = json.loads((home / ".cursor" / "mcp.json").read_text())["mcpServers"]["openmemory"]
    assert entry["args"][-2:] == ["--as", "pimemento"]
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    lines = [{"id": 1, "method": "initialize", "params": opening}, {"id": 2, "method": "tools/list"}]
    answered = subprocess.run(
        [entry["command"], *entry["args"]],
        check=True,
        input="".join(json.dumps({"jsonrpc": "2.0"} | line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=60,
    )
    opened, listed = (json.loads(line)["result"] for line in answered.stdout.splitlines())
    assert "Call get_memory when a session begins" in opened["instructions"]
    assert "add_memories" not in opened["instructions"]
    assert [tool["name"] for tool in listed["tools"]] == [
        "save_memory", "get_memory", "search_memory", "delete_memory", "memory_status",
    ]  # fmt: skip


def test_toolsets_are_written_down(run: Run, home: Path) -> None:
    cursor = home / ".cursor" / "mcp.json"

    def entry(*options: str) -> dict[str, object]:
        done = run("connect", "--yes", "cursor", *options, **at(home))
        assert done.returncode == 0, done.stderr
        found: dict[str, object] = json.loads(cursor.read_text())["mcpServers"]["openmemory"]
        return found

    assert entry("--toolsets", "files,review")["args"] == ["mcp", "--client", "cursor", "--toolsets", "files,review"]
    assert entry("--toolsets", "mempack")["args"] == ["mcp", "--client", "cursor", "--as", "mempack"]
    elsewhere = ["--remote", "https://memory.example.org"]
    assert entry(*elsewhere, "--as", "mempack")["url"] == "https://memory.example.org/mcp?as=mempack"
    named = entry(*elsewhere, "--user", "bob", "--toolsets", "files,review")["url"]
    assert named == "https://memory.example.org/mcp/cursor/http/bob?format=compact&toolsets=files,review"
    before = cursor.read_text()
    refused = run("connect", "--yes", "cursor", "--as", "mempak", **at(home))
    assert refused.returncode != 0
    assert "as: has no toolset 'mempak'; known is admin" in refused.stderr
    assert cursor.read_text() == before


def test_a_projects_files_start_this_program_and_hold_no_key(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = run("connect", "--yes", "cursor", "--project", "--remote", "http://a", "--key", "secret", **at(home))
    assert (refused.returncode, "--key" in refused.stderr) == (2, True)
    done = run("connect", "--yes", "cursor", "--project", **at(home))
    assert done.returncode == 0, done.stderr
    entry = json.loads((tmp_path / ".cursor" / "mcp.json").read_text())["mcpServers"]["openmemory"]
    assert Path(entry["command"]).exists()
    assert "a path of this machine" in done.stderr
    shared = run("connect", "--yes", "cursor", "--project", **at(home), PATH=str(Path(entry["command"]).parent))
    entry = json.loads((tmp_path / ".cursor" / "mcp.json").read_text())["mcpServers"]["openmemory"]
    assert (entry["command"], shared.stderr) == ("openmemory", "")


def test_links_hold_the_entry(run: Run, home: Path) -> None:
    told = run("connect", "--yes", "cursor", "vscode", "lm-studio", "--links", "--json", **at(home))
    links = json.loads(told.stdout)
    parts = parse_qs(urlsplit(links["cursor"]).query)
    assert json.loads(base64.b64decode(parts["config"][0]))["args"] == ["mcp", "--client", "cursor"]
    assert json.loads(unquote(links["vscode"].partition("?")[2]))["name"] == "openmemory"
    assert links["lm-studio"].startswith("lmstudio://add_mcp?name=openmemory&config=")


def test_one_that_cannot_be_connected_does_not_hold_up_the_others(run: Run, home: Path) -> None:
    (home / ".cursor" / "mcp.json").write_text('{"mcpServers": ')
    done = run("connect", "--yes", "--json", **at(home))
    assert done.returncode == 1
    assert {one["client"]: one["status"] for one in json.loads(done.stdout)} == {"cursor": "failed", "codex": "changed"}
    assert "line 1 is not JSON" in done.stderr
    assert (home / ".cursor" / "mcp.json").read_text() == '{"mcpServers": '


def test_an_unknown_name_is_told_which_are_known(run: Run, home: Path) -> None:
    done = run("connect", "--yes", "emacs", **at(home))
    assert done.returncode == 2
    assert "'emacs' is not known here; valid are claude-code, claude-desktop, cursor" in done.stderr
    none = run("connect", "--yes", **at(home.parent))
    assert (none.returncode, "no assistant was found" in none.stderr) == (1, True)


def test_hooks_are_added_shown_and_removed(run: Run, home: Path, tmp_path: Path) -> None:
    file = home / ".cursor" / "hooks.json"
    before = '{\n  "version": 1,\n  "hooks": {\n    "stop": [{"command": "./mine.sh"}] // mine\n  }\n}\n'
    file.write_text(before)
    shown = run("hooks", "add", "--dry-run", **at(home))
    assert (shown.returncode, file.read_text()) == (0, before)
    assert '+      {\n+        "command": ' in shown.stdout
    done = run("hooks", "add", "--yes", "--prompt", "--budget", "300", "--data-dir", str(tmp_path / "data"), **at(home))
    assert done.returncode == 0, done.stderr
    assert f"Codex: changed {home / '.codex' / 'hooks.json'}. Trust it there: /hooks." in done.stdout
    command = json.loads((home / ".codex" / "hooks.json").read_text())["hooks"]["SessionStart"][0]["hooks"][0][
        "command"
    ]
    program, *arguments = shlex.split(command)
    assert Path(program).is_absolute()
    where = ["--data-dir", str(tmp_path / "data"), "--budget", "300"]
    assert arguments == ["hook", "session-start", "--client", "codex", *where]
    status = {row["client"]: row["hooks"] for row in json.loads(run("hooks", "status", "--json", **at(home)).stdout)}
    assert status == {"codex": ["session-start", "prompt"], "cursor": ["session-start"]}
    gone = run("hooks", "remove", "--yes", **at(home))
    assert gone.returncode == 0, gone.stderr
    assert file.read_text() == before
    assert not (home / ".codex" / "hooks.json").exists()


def test_connecting_with_hooks_and_disconnecting_leaves_nothing(run: Run, home: Path) -> None:
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    done = run("connect", "--yes", "--hooks", **at(home))
    assert done.returncode == 0, done.stderr
    for file in (home / ".cursor" / "hooks.json", home / ".codex" / "hooks.json"):
        assert "hook session-start --client" in file.read_text()
    assert run("disconnect", "--yes", **at(home)).returncode == 0
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_hooks_without_the_option_and_in_a_project_are_not_written(run: Run, home: Path) -> None:
    run("connect", "--yes", **at(home))
    assert not (home / ".cursor" / "hooks.json").exists()
    refused = run("connect", "--yes", "cursor", "--project", "--hooks", **at(home))
    assert (refused.returncode, "--hooks" in refused.stderr) == (2, True)
    unknown = run("hooks", "add", "--yes", "zed", **at(home))
    assert (unknown.returncode, "valid are claude-code, codex, cursor" in unknown.stderr) == (2, True)


def test_the_hooks_of_a_service_elsewhere_name_its_url_and_no_key(run: Run, home: Path) -> None:
    remote = ("--remote", "https://memory.example.org/", "--key", "om_0123456789")
    assert run("connect", "--yes", "cursor", "--hooks", *remote, **at(home)).returncode == 0
    written = (home / ".cursor" / "hooks.json").read_text()
    assert "--url https://memory.example.org" in written
    assert "om_0123456789" not in written


@pytest.mark.parametrize(
    "command", [["connect"], ["connect", "--json"], ["disconnect"], ["hooks", "add"], ["hooks", "remove", "cursor"]]
)
def test_no_file_changes_where_nobody_can_be_asked(run: Run, home: Path, command: list[str]) -> None:
    if command[-1] in ("disconnect", "cursor"):
        run("connect", "--yes", "--hooks", **at(home))
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    refused = run(*command, stdin="y\n", **at(home))
    assert (refused.returncode, refused.stderr) == (
        2, "openmemory: --yes: must be given where nobody can be asked; --dry-run shows the changes\n",
    )  # fmt: skip
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("vs code", "vscode"), ("windsurf", "devin"), ("cursr", "cursor"), ("claude", "claude-code"),
        ("gemini", "gemini-cli"),
    ],
)  # fmt: skip
def test_a_near_name_gets_a_suggestion(run: Run, home: Path, name: str, meant: str) -> None:
    told = run("connect", name, **at(home))
    assert told.returncode == 2
    assert told.stderr.endswith(f"; did you mean {meant!r}?\n")


def test_the_folders_that_variables_name_are_written_and_the_usual_ones_are_not(
    run: Run, home: Path, tmp_path: Path
) -> None:
    moved = {"CLAUDE_CONFIG_DIR": str(tmp_path / "claude"), "CODEX_HOME": str(tmp_path / "codex")}
    for folder in moved.values():
        Path(folder).mkdir()
    done = run("connect", "--yes", "--hooks", "claude-code", "codex", **at(home), **moved)
    assert done.returncode == 0, done.stderr
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {
        "claude/.claude.json", "claude/settings.json", "codex/config.toml", "codex/hooks.json", "home/.cursor/mcp.json",
    }  # fmt: skip


def test_a_link_in_a_project_leads_no_change_out_of_it(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, mine = tmp_path / "project", home / ".cursor" / "mcp.json"
    project.mkdir()
    (project / ".cursor").symlink_to(home / ".cursor")
    (project / ".mcp.json").symlink_to(mine)
    before = mine.read_bytes()
    monkeypatch.chdir(project)
    for command in ("connect", "disconnect"):
        for client in ("cursor", "claude-code"):
            refused = run(command, "--yes", client, "--project", **at(home))
            assert refused.returncode == 1
            assert f"leads out of {project}: to {mine}" in refused.stderr
    assert mine.read_bytes() == before


def test_a_service_elsewhere_makes_a_file_with_its_key_private(run: Run, home: Path) -> None:
    file = home / ".cursor" / "mcp.json"
    file.chmod(0o644)
    done = run(
        "connect", "--yes", "cursor", "--remote", "https://memory.example.org", "--key", "om_0123456789", **at(home)
    )
    assert f"{file} gets a key, and so becomes readable for its owner alone." in done.stdout
    assert file.stat().st_mode & 0o777 == 0o600
