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


@dataclass(frozen=True, slots=True)
class AssistantClient:
    """An assistant. `app` is the name under which it writes memories."""

    app: str
    title: str
    files: tuple[Path, ...]
    """Where its configuration may be. The first one that exists counts, otherwise the first."""
    path: tuple[str, ...]
    """The keys that lead to our entry in the file."""
    local: Entry
    remote: Entry | None
    """None: it starts servers itself and reaches none by URL."""
    signs: tuple[Path, ...] = ()
    """Folders and files that exist where it is installed; its configuration files count too."""
    kind: FileFormat = JSON
    project: str = ""
    """Its configuration file inside a project, if it has one."""
    then: str = "Restart it."
    """The user's next step, before it sees the change."""

    @property
    def file(self) -> Path:
        """Its configuration file."""
        return next((file for file in self.files if file.exists()), self.files[0])

    @property
    def installed(self) -> bool:
        """Returns True if it seems to be installed for this account."""
        return any(path.exists() for path in (*self.files, *self.signs))

    def entry(self, server: ServerAddress) -> dict[str, Any]:
        """Our entry in its configuration."""
        if server.url:
            assert self.remote is not None
            return self.remote(server)
        return self.local(server)


def _started(server: ServerAddress) -> dict[str, Any]:
    entry: dict[str, Any] = {"command": server.command[0], "args": list(server.command[1:])}
    return entry | ({"env": dict(server.env)} if server.env else {})


def _typed(server: ServerAddress) -> dict[str, Any]:
    return {"type": "stdio"} | _started(server)


def _at(key: str, **more: Any) -> Entry:
    """An entry of a remote server whose URL has this key."""

    def entry(server: ServerAddress) -> dict[str, Any]:
        return more | {key: server.url} | ({"headers": dict(server.headers)} if server.headers else {})

    return entry


def _codex(server: ServerAddress) -> dict[str, Any]:
    return {"url": server.url} | ({"http_headers": dict(server.headers)} if server.headers else {})


def _zed(server: ServerAddress) -> dict[str, Any]:
    return {"source": "custom"} | _started(server)


def _array(server: ServerAddress) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "local", "command": list(server.command), "enabled": True}
    return entry | ({"environment": dict(server.env)} if server.env else {})


def _copilot(server: ServerAddress) -> dict[str, Any]:
    return {"type": "local"} | _started(server) | {"tools": ["*"]}


def _goose(server: ServerAddress) -> dict[str, Any]:
    own: dict[str, Any]
    if server.url:
        own = {"type": "streamable_http", "uri": server.url, "headers": dict(server.headers)}
    else:
        own = {
            "type": "stdio",
            "cmd": server.command[0],
            "args": list(server.command[1:]),
            "envs": dict(server.env),
        }
    return {"enabled": True, "name": NAME, "description": "Memory shared by all assistants", "timeout": 300} | own


def assistants(home: Path | None = None, support: Path | None = None) -> list[AssistantClient]:
    """Every assistant that we know, with its files for this account and system.

    `support` is where programs with a window keep their settings.
    """
    home = home or Path.home()
    support = support or platformdirs.user_config_path(roaming=True)
    config = support if sys.platform.startswith("linux") else home / ".config"
    code = support / "Code" / "User"
    cline = Path("globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json")
    zed = support / "Zed" / "settings.json" if sys.platform == "darwin" else config / "zed" / "settings.json"
    goose = support / "Block/goose/config" if sys.platform == "win32" else config / "goose"
    servers = ("mcpServers", NAME)
    return [
        AssistantClient(
            "claude-code",
            "Claude Code",
            (home / ".claude.json",),
            servers,
            _typed,
            _at("url", type="http"),
            signs=(home / ".claude",),
            project=".mcp.json",
            then="Start a new session; /mcp shows the server.",
        ),
        AssistantClient(
            "claude-desktop",
            "Claude Desktop",
            (support / "Claude" / "claude_desktop_config.json",),
            servers,
            _started,
            None,
            signs=(support / "Claude",),
            then="Quit it completely and start it again.",
        ),
        AssistantClient(
            "cursor",
            "Cursor",
            (home / ".cursor" / "mcp.json",),
            servers,
            _started,
            _at("url"),
            signs=(home / ".cursor",),
            project=".cursor/mcp.json",
            then="Switch the server on in Settings, Tools & MCP.",
        ),
        AssistantClient(
            "vscode",
            "VS Code",
            (code / "mcp.json",),
            ("servers", NAME),
            _typed,
            _at("url", type="http"),
            signs=(code,),
            project=".vscode/mcp.json",
            then="Start the server with the command 'MCP: List Servers'.",
        ),
        AssistantClient(
            "codex",
            "Codex",
            (home / ".codex" / "config.toml",),
            ("mcp_servers", NAME),
            _started,
            _codex,
            signs=(home / ".codex",),
            kind=TOML,
            project=".codex/config.toml",
        ),
        AssistantClient(
            "zed",
            "Zed",
            (zed,),
            ("context_servers", NAME),
            _zed,
            _at("url", source="custom"),
            signs=(zed.parent,),
            project=".zed/settings.json",
            then="Nothing: it reads the file again by itself.",
        ),
        AssistantClient(
            "cline",
            "Cline",
            (code / cline, home / ".cline/data/settings/cline_mcp_settings.json"),
            servers,
            _started,
            _at("url", type="streamableHttp"),
            signs=((code / cline).parent.parent, home / ".cline"),
        ),
        AssistantClient(
            "devin",
            "Devin (Windsurf)",
            (config / "devin/mcp_config.json", home / ".codeium/windsurf/mcp_config.json"),
            servers,
            _started,
            _at("serverUrl"),
            signs=(config / "devin", home / ".codeium/windsurf"),
            then="Refresh the servers in its MCP panel.",
        ),
        AssistantClient(
            "antigravity",
            "Antigravity",
            (home / ".gemini/config/mcp_config.json", home / ".gemini/antigravity/mcp_config.json"),
            servers,
            _started,
            _at("serverUrl"),
            signs=(home / ".gemini/config", home / ".gemini/antigravity"),
        ),
        AssistantClient(
            "gemini-cli",
            "Gemini CLI",
            (home / ".gemini/settings.json",),
            servers,
            _started,
            _at("httpUrl"),
            project=".gemini/settings.json",
        ),
        AssistantClient(
            "opencode",
            "opencode",
            (config / "opencode/opencode.jsonc", config / "opencode/opencode.json"),
            ("mcp", NAME),
            _array,
            _at("url", type="remote", enabled=True),
            signs=(config / "opencode",),
            project="opencode.json",
        ),
        AssistantClient(
            "kilo",
            "Kilo",
            (config / "kilo/kilo.json", config / "kilo/kilo.jsonc"),
            ("mcp", NAME),
            _array,
            _at("url", type="remote", enabled=True),
            signs=(config / "kilo",),
        ),
        AssistantClient(
            "goose",
            "Goose",
            (goose / "config.yaml",),
            ("extensions", NAME),
            _goose,
            _goose,
            signs=(goose,),
            kind=YAML,
            then="Start a new session.",
        ),
        AssistantClient(
            "copilot-cli",
            "Copilot CLI",
            (home / ".copilot/mcp-config.json",),
            servers,
            _copilot,
            _at("url", type="http", tools=["*"]),
            signs=(home / ".copilot",),
            then="Start a new session.",
        ),
        AssistantClient(
            "continue",
            "Continue",
            # A file of ours beside its own: it loads every file in this folder, also in the notation of others.
            (home / ".continue/mcpServers/openmemory.json",),
            servers,
            _started,
            _at("url", type="streamable-http"),
            signs=(home / ".continue",),
            project=".continue/mcpServers/openmemory.json",
            then="Reload the window; only its agent mode uses servers.",
        ),
        AssistantClient(
            "junie",
            "Junie",
            (home / ".junie/mcp/mcp.json",),
            servers,
            _started,
            None,
            signs=(home / ".junie",),
            project=".junie/mcp/mcp.json",
        ),
        AssistantClient(
            "lm-studio",
            "LM Studio",
            (home / ".lmstudio/mcp.json",),
            servers,
            _started,
            _at("url"),
            signs=(home / ".lmstudio",),
        ),
    ]
