"""The unit that starts the service with the user's session: of systemd on Linux, of launchd on macOS."""

from __future__ import annotations

import plistlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LABEL = "openmemory"


@dataclass(frozen=True, slots=True)
class AutostartUnit:
    """A unit file and the commands that manage it. `running` succeeds while the service runs."""

    file: Path
    text: str
    install: tuple[tuple[str, ...], ...]
    uninstall: tuple[tuple[str, ...], ...]
    after_uninstall: tuple[tuple[str, ...], ...]
    running: tuple[str, ...]
    remark: str = ""


def systemd_unit(command: Sequence[str], config: Path) -> AutostartUnit:
    """A user unit of systemd. `config` is the user's configuration folder."""
    text = f"""\
[Unit]
Description=OpenMemory: one memory for all AI assistants

[Service]
ExecStart={" ".join(map(_quote, command))}
WorkingDirectory=%h
Restart=on-failure
RestartSec=5
NoNewPrivileges=true

[Install]
WantedBy=default.target
"""
    manage = ("systemctl", "--user")
    return AutostartUnit(
        config / "systemd" / "user" / f"{LABEL}.service",
        text,
        install=((*manage, "daemon-reload"), (*manage, "enable", "--now", LABEL)),
        uninstall=((*manage, "disable", "--now", LABEL),),
        after_uninstall=((*manage, "daemon-reload"),),
        running=(*manage, "--quiet", "is-active", LABEL),
        remark="It runs while you are logged in; `loginctl enable-linger` keeps it running when you are not.",
    )


def launchd_agent(command: Sequence[str], home: Path, user: int) -> AutostartUnit:
    """An agent of launchd for the user of this number."""
    file = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    log = str(home / "Library" / "Logs" / f"{LABEL}.log")
    entries = {
        "Label": LABEL,
        "ProgramArguments": list(command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 5,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    return AutostartUnit(
        file,
        plistlib.dumps(entries).decode(),
        install=(("launchctl", "bootstrap", f"gui/{user}", str(file)),),
        uninstall=(("launchctl", "bootout", f"gui/{user}/{LABEL}"),),
        after_uninstall=(),
        running=("launchctl", "print", f"gui/{user}/{LABEL}"),
    )


def _quote(part: str) -> str:
    """One argument in the notation of a unit file."""
    for character, escaped in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        part = part.replace(character, escaped)
    return f'"{part}"'
