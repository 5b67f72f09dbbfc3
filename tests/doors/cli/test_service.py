from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the commands are systemd's")

MANAGER = """\
#!/bin/sh
echo "$@" >> "$LOG"
case "$*" in
  *is-active*) exit "$ACTIVE" ;;
  *enable*) [ "$ACTIVE" = 0 ] || { echo "Failed to connect to bus" >&2; exit 1; } ;;
esac
"""
"""Stands for systemctl: the commands of a service manager may not change the machine that tests run on."""


@pytest.fixture
def system(tmp_path: Path) -> Callable[[int], dict[str, str]]:
    """The environment of a system whose service manager says whether the service is active, and logs its commands."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "systemctl").write_text(MANAGER)
    (programs / "systemctl").chmod(0o755)

    def at(active: int) -> dict[str, str]:
        return {
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "LOG": str(tmp_path / "log"),
            "ACTIVE": str(active),
        }

    return at


def test_the_service_is_installed_shown_and_removed(
    run: Run, tmp_path: Path, system: Callable[[int], dict[str, str]]
) -> None:
    unit = tmp_path / "config" / "systemd" / "user" / "openmemory.service"
    done = run("service", "install", **system(0), OPENMEMORY_DATA_DIR=str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr
    assert f'"-P" "-m" "openmemory" "serve" "--data-dir" "{tmp_path / "data"}"' in unit.read_text()
    shown = run("service", "status", "--json", **system(0))
    assert json.loads(shown.stdout) == {"installed": True, "running": True, "file": str(unit)}
    stopped = run("service", "status", **system(3))
    assert (stopped.returncode, stopped.stdout) == (1, f"installed, but not running\t{unit}\n")
    gone = run("service", "uninstall", **system(0))
    assert gone.returncode == 0, gone.stderr
    assert not unit.exists()
    assert (tmp_path / "log").read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable --now openmemory",
        "--user --quiet is-active openmemory",
        "--user --quiet is-active openmemory",
        "--user disable --now openmemory",
        "--user daemon-reload",
    ]
    again = run("service", "uninstall", **system(0))
    assert (again.returncode, "it is not installed" in again.stderr) == (1, True)


def test_an_installation_that_fails_leaves_no_unit_and_says_why(
    run: Run, tmp_path: Path, system: Callable[[int], dict[str, str]]
) -> None:
    done = run("service", "install", **system(1))
    assert done.returncode == 2
    assert "`systemctl --user enable --now openmemory` failed: Failed to connect to bus" in done.stderr
    assert not (tmp_path / "config" / "systemd" / "user" / "openmemory.service").exists()


def user_manager() -> bool:
    done = subprocess.run(
        ["systemctl", "--user", "is-system-running"], check=False, capture_output=True, text=True, timeout=30
    )
    return done.stdout.strip() in {"running", "degraded"}


@pytest.mark.slow
def test_systemd_starts_and_stops_the_service(run: Run, folder: Path) -> None:
    try:
        there = user_manager()
    except FileNotFoundError:
        there = False
    if not there:
        pytest.skip("no user manager of systemd runs here")
    done = run("service", "install", "--data-dir", str(folder))
    try:
        assert done.returncode == 0, done.stderr
        assert run("service", "status").returncode == 0
        assert run("doctor", "--data-dir", str(folder)).returncode == 0
    finally:
        assert run("service", "uninstall").returncode == 0
    assert run("service", "status").returncode == 1
