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


def _command_entry(**more: Any) -> Entry:
    """An entry of a server that the assistant starts."""

    def entry(server: ServerAddress) -> dict[str, Any]:
        own = more | {"command": server.command[0], "args": list(server.command[1:])}
        return own | ({"env": dict(server.env)} if server.env else {})

    return entry


_PLAIN = _command_entry()


def _command_list_entry(server: ServerAddress) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "local", "command": list(server.command), "enabled": True}
    return entry | ({"environment": dict(server.env)} if server.env else {})


def _remote_entry(by: str = "url", headers: str = "headers", **more: Any) -> Entry:
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
    """Where its configuration may be. The first one that exists counts, otherwise the first whose folder exists,
    otherwise the first."""
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
        there = (file for exists in (Path.exists, _has_folder) for file in self.files if exists(file))
        return next(there, self.files[0])

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


def named_folder(environ: Mapping[str, str], variable: str, otherwise: Path) -> Path:
    """The folder that a variable of an assistant names, or the usual one."""
    folder = environ.get(variable, "").strip()
    return Path(folder).expanduser().absolute() if folder else otherwise


def variables(home: Path | None, environ: Mapping[str, str] | None) -> Mapping[str, str]:
    """The variables that move the files of assistants: the given ones, otherwise those of this process, but none if a
    home is given."""
    if environ is not None:
        return environ
    from openmemory.config.settings import environment

    return environment() if home is None else {}


def assistants(
    home: Path | None = None, support: Path | None = None, environ: Mapping[str, str] | None = None
) -> list[AssistantClient]:
    """Every supported assistant, with its files for this account and system.

    `support` is where programs with a window keep their settings. `environ` is as `variables` has it.
    """
    environ = variables(home, environ)
    home = home or Path.home()
    support = support or platformdirs.user_config_path(roaming=True)
    config = _xdg_config(environ, home)
    claude = named_folder(environ, "CLAUDE_CONFIG_DIR", home / ".claude")
    claude_file = (claude if environ.get("CLAUDE_CONFIG_DIR", "").strip() else home) / ".claude.json"
    codex = named_folder(environ, "CODEX_HOME", home / ".codex")
    gemini = named_folder(environ, "GEMINI_CLI_HOME", home) / ".gemini"
    copilot = named_folder(environ, "COPILOT_HOME", home / ".copilot")
    continues = named_folder(environ, "CONTINUE_GLOBAL_DIR", home / ".continue")
    portable = environ.get("VSCODE_PORTABLE", "").strip()
    code = Path(portable).absolute() / "user-data/User" if portable else support / "Code/User"
    insiders, codium = support / "Code - Insiders/User", support / "VSCodium/User"
    cline = [editor / "globalStorage/saoudrizwan.claude-dev" for editor in (code, insiders, codium)]
    cline_home = named_folder(environ, "CLINE_DIR", home / ".cline")
    cline_data = named_folder(environ, "CLINE_DATA_DIR", cline_home / "data")
    zed = named_folder(environ, "FLATPAK_XDG_CONFIG_HOME", config) / "zed/settings.json"
    goose = support / "Block/goose/config" if sys.platform == "win32" else config / "goose"
    goose = Path(environ["GOOSE_PATH_ROOT"]) / "config" if _absolute(environ, "GOOSE_PATH_ROOT") else goose
    return [
        AssistantClient(
            "claude-code", "Claude Code", (claude_file,), _remote_entry(type="http"), _command_entry(type="stdio"),
            project=".mcp.json", signs=(claude,), then="Start a new session; /mcp shows the server.",
            after_removal="Start a new session.",
        ),
        AssistantClient(
            "claude-desktop", "Claude Desktop", (support / "Claude/claude_desktop_config.json",), None,
            then="Quit it completely and start it again.",
        ),
        AssistantClient(
            "cursor", "Cursor", (home / ".cursor/mcp.json",), _remote_entry(), project=".cursor/mcp.json",
            then="Switch the server on in Settings, Tools & MCP.", after_removal="Restart it.",
        ),
        AssistantClient(
            "vscode", "VS Code", (code / "mcp.json",), _remote_entry(type="http"), _command_entry(type="stdio"),
            "servers",
            project=".vscode/mcp.json", then="Start the server with the command 'MCP: List Servers'.",
            after_removal="Restart it.",
        ),
        *(
            AssistantClient(
                app, title, (folder / "mcp.json",), _remote_entry(type="http"), _command_entry(type="stdio"), "servers",
                then="Start the server with the command 'MCP: List Servers'.", after_removal="Restart it.",
            )
            for app, title, folder in (
                ("vscode-insiders", "VS Code Insiders", insiders), ("vscodium", "VSCodium", codium)
            )
        ),
        AssistantClient(
            "codex", "Codex", (codex / "config.toml",), _remote_entry(headers="http_headers"), section="mcp_servers",
            kind=TOML, project=".codex/config.toml",
        ),
        AssistantClient(
            "zed", "Zed", (zed,), _remote_entry(source="custom"), _command_entry(source="custom"), "context_servers",
            project=".zed/settings.json", then="It reads the file again by itself.",
        ),
        AssistantClient(
            "cline", "Cline",
            tuple(each / "settings/cline_mcp_settings.json" for each in sorted((*cline, cline_data), key=_is_missing)),
            _remote_entry(type="streamableHttp"), signs=(*cline, cline_home, cline_data),
        ),
        AssistantClient(
            "devin", "Devin (Windsurf)",
            (config / "devin/mcp_config.json", home / ".codeium/windsurf/mcp_config.json"), _remote_entry("serverUrl"),
            then="Refresh the servers in its MCP panel.",
        ),
        AssistantClient(
            "antigravity", "Antigravity",
            (home / ".gemini/config/mcp_config.json", home / ".gemini/antigravity/mcp_config.json"),
            _remote_entry("serverUrl"),
        ),
        AssistantClient(
            "gemini-cli", "Gemini CLI", (gemini / "settings.json",), _remote_entry("httpUrl"),
            project=".gemini/settings.json", signs=(),
        ),
        AssistantClient(
            "opencode", "opencode", (config / "opencode/opencode.jsonc", config / "opencode/opencode.json"),
            _remote_entry(type="remote", enabled=True), _command_list_entry, "mcp", project="opencode.json",
        ),
        AssistantClient(
            "kilo", "Kilo", (config / "kilo/kilo.json", config / "kilo/kilo.jsonc"),
            _remote_entry(type="remote", enabled=True), _command_list_entry, "mcp",
        ),
        AssistantClient(
            "goose", "Goose", (goose / "config.yaml",), _goose, _goose, "extensions", YAML,
            then="Start a new session.",
        ),
        AssistantClient(
            "copilot-cli", "Copilot CLI", (copilot / "mcp-config.json",), _remote_entry(type="http", tools=["*"]),
            _command_entry(type="local", tools=["*"]), then="Start a new session.",
        ),
        # Continue loads every file in this folder, also in the notation of others. Ours stands beside its own.
        AssistantClient(
            "continue", "Continue", (continues / "mcpServers/openmemory.json",),
            _remote_entry(type="streamable-http"), project=".continue/mcpServers/openmemory.json",
            signs=(continues,), then="Reload the window; only its agent mode uses servers.",
            after_removal="Reload the window.",
        ),
        AssistantClient(
            "junie", "Junie", (home / ".junie/mcp/mcp.json",), None, project=".junie/mcp/mcp.json",
            signs=(home / ".junie",),
        ),
        AssistantClient("lm-studio", "LM Studio", (_lm_studio(home) / "mcp.json",), _remote_entry()),
    ]  # fmt: skip


def _has_folder(file: Path) -> bool:
    return file.parent.exists()


def _xdg_config(environ: Mapping[str, str], home: Path) -> Path:
    """The folder of settings of programs that follow the XDG rules, on every system."""
    return Path(environ["XDG_CONFIG_HOME"]) if _absolute(environ, "XDG_CONFIG_HOME") else home / ".config"


def _is_missing(path: Path) -> bool:
    return not path.exists()


def _absolute(environ: Mapping[str, str], variable: str) -> bool:
    return Path(environ.get(variable, "")).is_absolute()


def _lm_studio(home: Path) -> Path:
    """The folder of LM Studio, which a file in the home may name."""
    try:
        folder = (home / ".lmstudio-home-pointer").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        folder = ""
    return Path(folder) if folder and Path(folder).is_dir() else home / ".lmstudio"
