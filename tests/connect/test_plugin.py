"""The plugin for Claude Code has the form that its documentation gives (code.claude.com/docs, plugins and hooks)."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from openmemory.connect.clients import ServerAddress
from openmemory.connect.hooks import BRIEF, CAPTURE, hooked
from openmemory.doors.cli.commands import complete
from openmemory.doors.mcp.server import TOOLS

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugins" / "claude-code"
KEBAB = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
MARKDOWN = [*PLUGIN.glob("commands/*.md"), *PLUGIN.glob("skills/*/SKILL.md")]


def load(*path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ROOT.joinpath(*path).read_text(encoding="utf-8"))
    return found


def front_matter(file: Path) -> tuple[dict[str, Any], str]:
    _, head, body = re.split(r"^---$", file.read_text(encoding="utf-8"), maxsplit=2, flags=re.MULTILINE)
    return yaml.safe_load(head), body


def test_the_marketplace_lists_the_plugin_where_it_is() -> None:
    marketplace = load(".claude-plugin", "marketplace.json")
    assert KEBAB.fullmatch(marketplace["name"])
    assert marketplace["owner"]["name"]
    [plugin] = marketplace["plugins"]
    assert plugin["source"].startswith("./")
    assert (ROOT / plugin["source"]).resolve() == PLUGIN
    assert plugin["name"] == load("plugins", "claude-code", ".claude-plugin", "plugin.json")["name"]


def test_the_manifest_has_the_fields_of_its_documentation_and_our_version() -> None:
    manifest = load("plugins", "claude-code", ".claude-plugin", "plugin.json")
    assert manifest.keys() <= {
        "name", "version", "description", "author", "homepage", "repository", "license", "keywords",
        "userConfig",
    }  # fmt: skip
    assert KEBAB.fullmatch(manifest["name"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (manifest["version"], manifest["license"]) == (project["version"], project["license"])
    assert [path.name for path in (PLUGIN / ".claude-plugin").iterdir()] == ["plugin.json"], "the rest is at the root"


def test_its_hooks_are_those_that_hooks_add_writes(tmp_path: Path) -> None:
    [claude] = [it for it in hooked((*BRIEF, *CAPTURE), tmp_path) if it.app == "claude-code"]
    written = claude.entry(ServerAddress(command=("openmemory", "hook", "--client", "claude-code")))
    for event in ("PreCompact", "SessionEnd"):
        [hook] = written[event][0]["hooks"]
        hook["command"] = f'[ "$CLAUDE_PLUGIN_OPTION_CAPTURE" != true ] || {hook["command"]}'
    assert load("plugins", "claude-code", "hooks", "hooks.json")["hooks"] == written


@pytest.mark.parametrize(("value", "runs"), [(None, False), ("", False), ("false", False), ("true", True)])
def test_what_the_user_wrote_is_sent_only_if_the_option_is_on(tmp_path: Path, value: str | None, runs: bool) -> None:
    option = load("plugins", "claude-code", ".claude-plugin", "plugin.json")["userConfig"]["CAPTURE"]
    assert (option["type"], option["default"]) == ("boolean", False)
    program = tmp_path / "openmemory"
    program.write_text("#!/bin/sh\necho $1 $2\n")
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/bin:/usr/bin"} | (
        {} if value is None else {"CLAUDE_PLUGIN_OPTION_CAPTURE": value}
    )
    for event, name in (("PreCompact", "pre-compact"), ("SessionEnd", "session-end")):
        command = load("plugins", "claude-code", "hooks", "hooks.json")["hooks"][event][0]["hooks"][0]["command"]
        done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == (f"hook {name}\n" if runs else "")


def test_its_server_is_started_by_a_command_that_exists() -> None:
    servers = load("plugins", "claude-code", ".mcp.json")["mcpServers"]
    assert servers == {"openmemory": {"command": "openmemory", "args": ["mcp", "--client", "claude-code"]}}
    commands = typer.main.get_command(complete()).commands  # type: ignore[attr-defined]
    hook = load("plugins", "claude-code", "hooks", "hooks.json")["hooks"]["SessionStart"][0]["hooks"][0]["command"]
    assert {servers["openmemory"]["args"][0], shlex.split(hook)[1]} <= commands.keys()


@pytest.mark.parametrize("file", MARKDOWN, ids=lambda file: file.parent.name + "/" + file.name)
def test_commands_and_skills_say_when_they_are_for_and_name_tools_that_exist(file: Path) -> None:
    head, body = front_matter(file)
    assert 0 < len(head["description"]) <= 1_024
    if file.name == "SKILL.md":
        assert head["name"] == file.parent.name
        assert KEBAB.fullmatch(head["name"])
        assert head.keys() == {"name", "description"}
    else:
        assert head.keys() <= {"description", "argument-hint"}
        assert "$ARGUMENTS" in body
    named = set(re.findall(r"`(\w+_\w+)`", body))
    assert named
    assert named <= set(TOOLS)


def test_it_has_the_commands_that_the_documentation_names() -> None:
    assert {file.stem for file in PLUGIN.glob("commands/*.md")} == {"remember", "recall"}
    assert [file.parent.name for file in PLUGIN.glob("skills/*/SKILL.md")] == ["memory"]
