"""`openmemory service`: starts the service with the user's session."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openmemory.doors.cli.options import ConfigFile, DataDir, Json, location_options
from openmemory.doors.cli.output import CommandAnswer

if TYPE_CHECKING:
    from openmemory.connect.autostart import AutostartUnit

service = typer.Typer(help="Start the service whenever you log in.", no_args_is_help=True)

_PATIENCE = 60


@service.command()
def install(
    no_start: Annotated[bool, typer.Option("--no-start", help="Write the unit file and do no more.")] = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Install a systemd user unit or a launchd agent, and start it.

    The service then starts at every login, and again after a failure.
    """
    unit = _unit(data_dir, config)
    old = unit.file.read_text(encoding="utf-8") if unit.file.exists() else None
    unit.file.parent.mkdir(parents=True, exist_ok=True)
    unit.file.write_text(unit.text, encoding="utf-8")
    if not no_start:
        try:
            _run(unit.install)
        except BaseException:
            if old is None:
                unit.file.unlink()
            else:
                unit.file.write_text(old, encoding="utf-8")
            raise
    print(f"{'Wrote' if no_start else 'Started by'} {unit.file}. {unit.remark}".rstrip())


@service.command()
def status(json: Json = False) -> None:
    """Say whether it is installed and running. Exit code 1 if it is not running."""
    unit = _unit(None, None)
    installed = unit.file.exists()
    running = installed and _call(unit.running).returncode == 0
    state = "running" if running else "installed, but not running" if installed else "not installed"
    value = {"installed": installed, "running": running, "file": str(unit.file)}
    answer = CommandAnswer(value, f"{state}\t{unit.file}", failed=not running)
    answer.show(json=json)
    answer.exit()


@service.command()
def uninstall() -> None:
    """Stop it and remove its unit. The memories stay."""
    from openmemory.errors import NotFound

    unit = _unit(None, None)
    if not unit.file.exists():
        raise NotFound(f"it is not installed: there is no {unit.file}", code="not_installed")
    for command in unit.uninstall:
        _call(command)  # it may have been stopped or disabled before
    unit.file.unlink()
    _run(unit.after_uninstall)
    print(f"Removed {unit.file}. The memories are still there.")


def _unit(data_dir: str | None, config: Path | None) -> AutostartUnit:
    import os
    import platform
    import sys

    import platformdirs

    from openmemory.connect.autostart import launchd_agent, systemd_unit
    from openmemory.errors import SetupError

    # -P: do not import from the working folder.
    command = [sys.executable, "-P", "-m", "openmemory", "serve", *location_options(data_dir, config)]
    match platform.system():
        case "Linux":
            return systemd_unit(command, platformdirs.user_config_path())
        case "Darwin":
            return launchd_agent(command, Path.home(), os.getuid())
        case other:
            raise SetupError(f"there is no service manager for {other} here; start `openmemory serve` yourself")


def _run(commands: Iterable[Sequence[str]]) -> None:
    """Runs commands one after another.

    Raises:
        SetupError: one is missing or failed.
    """
    from openmemory.errors import SetupError

    for command in commands:
        result = _call(command)
        if result.returncode:
            message = " ".join((result.stderr or result.stdout).split()) or f"exit code {result.returncode}"
            raise SetupError(f"`{' '.join(command)}` failed: {message}")


def _call(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    from openmemory.errors import SetupError

    try:
        return subprocess.run(  # noqa: S603
            command, check=False, capture_output=True, text=True, timeout=_PATIENCE, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise SetupError(f"{command[0]} is not installed here; start `openmemory serve` yourself") from None
    except subprocess.TimeoutExpired:
        raise SetupError(f"`{' '.join(command)}` did not end within {_PATIENCE} s") from None
