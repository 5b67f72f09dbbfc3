"""The assistants that can be connected: where each keeps its configuration, and how it writes an MCP server down."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from openmemory.connect.formats import JSON, TOML, YAML, FileFormat

NAME = "openmemory"
"""The name of our server in every configuration."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The way to the service: a command that the assistant starts, or a URL."""

    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


Entry = Callable[[ServerAddress], dict[str, Any]]
"""Builds the entry of a server in the form of one assistant."""


def _started(**more: Any) -> Entry:
    """An entry of a server that the assistant starts."""

    def entry(server: ServerAddress) -> dict[str, Any]:
        own = more | {"command": server.command[0], "args": list(server.command[1:])}
        return own | ({"env": dict(server.env)} if server.env else {})

    return entry


_PLAIN = _started()


def _started_by_list(server: ServerAddress) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "local", "command": list(server.command), "enabled": True}
    return entry | ({"environment": dict(server.env)} if server.env else {})


def _reached(by: str = "url", headers: str = "headers", **more: Any) -> Entry:
    """An entry of a remote server, with the keys of its URL and of its headers."""

    def entry(server: ServerAddress) -> dict[str, Any]:
        return more | {by: server.url} | ({headers: dict(server.headers)} if server.headers else {})

    return entry


def _goose(server: ServerAddress) -> dict[str, Any]:
    own: dict[str, Any] = {"enabled": True, "name": NAME, "description": "Memory shared by all assistants"}
    own["timeout"] = 300
    if server.url:
        return own | {"type": "streamable_http", "uri": server.url, "headers": dict(server.headers)}
    program, *args = server.command
    return own | {"type": "stdio", "cmd": program, "args": args, "envs": dict(server.env)}


@dataclass(frozen=True, slots=True)
class AssistantClient:
    """An assistant. `app` is the name under which it writes memories."""

    app: str
    title: str
    files: tuple[Path, ...]
    """Where its configuration may be. The first one that exists counts, otherwise the first."""
    remote: Entry | None
    """None: it starts servers itself and reaches none by URL."""
    local: Entry = _PLAIN
    section: str = "mcpServers"
    """The key of the servers in the file."""
    kind: FileFormat = JSON
    project: str = ""
    """Its configuration file inside a project, if it has one."""
    signs: tuple[Path, ...] | None = None
    """Folders and files that exist where it is installed; None: the folders of its configuration files."""
    then: str = "Restart it."
    """The user's next step, before it sees that it was connected."""
    after_removal: str | None = None
    """The user's next step, before it sees that it was disconnected; None: the same."""

    @property
    def path(self) -> tuple[str, str]:
        """The keys that lead to our entry in the file."""
        return self.section, NAME

    @property
    def file(self) -> Path:
        """Its configuration file."""
        return next((file for file in self.files if file.exists()), self.files[0])

    @property
    def installed(self) -> bool:
        """Returns True if it seems to be installed for this account."""
        signs = (file.parent for file in self.files) if self.signs is None else self.signs
        return any(path.exists() for path in (*self.files, *signs))

    def entry(self, server: ServerAddress) -> dict[str, Any]:
        """Our entry in its configuration."""
        if server.url:
            assert self.remote is not None
            return self.remote(server)
        return self.local(server)


def assistants(home: Path | None = None, support: Path | None = None) -> list[AssistantClient]:
    """Every assistant that we know, with its files for this account and system.

    `support` is where programs with a window keep their settings.
    """
    home = home or Path.home()
    support = support or platformdirs.user_config_path(roaming=True)
    config = support if sys.platform.startswith("linux") else home / ".config"
    code = support / "Code/User"
    cline = code / "globalStorage/saoudrizwan.claude-dev"
    zed = support / "Zed/settings.json" if sys.platform == "darwin" else config / "zed/settings.json"
    goose = support / "Block/goose/config" if sys.platform == "win32" else config / "goose"
    return [
        AssistantClient(
            "claude-code", "Claude Code", (home / ".claude.json",), _reached(type="http"), _started(type="stdio"),
            project=".mcp.json", signs=(home / ".claude",), then="Start a new session; /mcp shows the server.",
            after_removal="Start a new session.",
        ),
        AssistantClient(
            "claude-desktop", "Claude Desktop", (support / "Claude/claude_desktop_config.json",), None,
            then="Quit it completely and start it again.",
        ),
        AssistantClient(
            "cursor", "Cursor", (home / ".cursor/mcp.json",), _reached(), project=".cursor/mcp.json",
            then="Switch the server on in Settings, Tools & MCP.", after_removal="Restart it.",
        ),
        AssistantClient(
            "vscode", "VS Code", (code / "mcp.json",), _reached(type="http"), _started(type="stdio"), "servers",
            project=".vscode/mcp.json", then="Start the server with the command 'MCP: List Servers'.",
            after_removal="Restart it.",
        ),
        AssistantClient(
            "codex", "Codex", (home / ".codex/config.toml",), _reached(headers="http_headers"), section="mcp_servers",
            kind=TOML, project=".codex/config.toml",
        ),
        AssistantClient(
            "zed", "Zed", (zed,), _reached(source="custom"), _started(source="custom"), "context_servers",
            project=".zed/settings.json", then="It reads the file again by itself.",
        ),
        AssistantClient(
            "cline", "Cline",
            (cline / "settings/cline_mcp_settings.json", home / ".cline/data/settings/cline_mcp_settings.json"),
            _reached(type="streamableHttp"), signs=(cline, home / ".cline"),
        ),
        AssistantClient(
            "devin", "Devin (Windsurf)",
            (config / "devin/mcp_config.json", home / ".codeium/windsurf/mcp_config.json"), _reached("serverUrl"),
            then="Refresh the servers in its MCP panel.",
        ),
        AssistantClient(
            "antigravity", "Antigravity",
            (home / ".gemini/config/mcp_config.json", home / ".gemini/antigravity/mcp_config.json"),
            _reached("serverUrl"),
        ),
        AssistantClient(
            "gemini-cli", "Gemini CLI", (home / ".gemini/settings.json",), _reached("httpUrl"),
            project=".gemini/settings.json", signs=(),
        ),
        AssistantClient(
            "opencode", "opencode", (config / "opencode/opencode.jsonc", config / "opencode/opencode.json"),
            _reached(type="remote", enabled=True), _started_by_list, "mcp", project="opencode.json",
        ),
        AssistantClient(
            "kilo", "Kilo", (config / "kilo/kilo.json", config / "kilo/kilo.jsonc"),
            _reached(type="remote", enabled=True), _started_by_list, "mcp",
        ),
        AssistantClient(
            "goose", "Goose", (goose / "config.yaml",), _goose, _goose, "extensions", YAML,
            then="Start a new session.",
        ),
        AssistantClient(
            "copilot-cli", "Copilot CLI", (home / ".copilot/mcp-config.json",), _reached(type="http", tools=["*"]),
            _started(type="local", tools=["*"]), then="Start a new session.",
        ),
        # Continue loads every file in this folder, also in the notation of others. Ours stands beside its own.
        AssistantClient(
            "continue", "Continue", (home / ".continue/mcpServers/openmemory.json",),
            _reached(type="streamable-http"), project=".continue/mcpServers/openmemory.json",
            signs=(home / ".continue",), then="Reload the window; only its agent mode uses servers.",
            after_removal="Reload the window.",
        ),
        AssistantClient(
            "junie", "Junie", (home / ".junie/mcp/mcp.json",), None, project=".junie/mcp/mcp.json",
            signs=(home / ".junie",),
        ),
        AssistantClient("lm-studio", "LM Studio", (home / ".lmstudio/mcp.json",), _reached()),
    ]  # fmt: skip
