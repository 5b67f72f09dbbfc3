from __future__ import annotations

import configparser
import plistlib
import shutil
import subprocess
from pathlib import Path

import pytest

from openmemory.connect.autostart import launchd_agent, systemd_unit

COMMAND = ["/opt/open memory/python", "-P", "-m", "openmemory", "serve", "--data-dir", '/data/100% "$HOME"\\']


def test_the_systemd_unit_starts_the_service_at_login_and_after_a_failure(tmp_path: Path) -> None:
    unit = systemd_unit(COMMAND, tmp_path)
    assert unit.file == tmp_path / "systemd" / "user" / "openmemory.service"
    parsed = configparser.RawConfigParser()
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string(unit.text)
    assert parsed["Service"]["Restart"] == "on-failure"
    assert parsed["Install"]["WantedBy"] == "default.target"
    assert parsed["Service"]["ExecStart"] == (
        '"/opt/open memory/python" "-P" "-m" "openmemory" "serve" "--data-dir" "/data/100%% \\"$$HOME\\"\\\\"'
    )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = systemd_unit(["/bin/sh", *COMMAND[1:]], tmp_path)
    unit.file.parent.mkdir(parents=True)
    unit.file.write_text(unit.text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit.file)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert str(unit.file) not in done.stderr, done.stderr
    assert "openmemory" not in done.stderr, done.stderr


def test_the_launchd_agent_starts_the_service_at_login_and_after_a_failure(tmp_path: Path) -> None:
    agent = launchd_agent(COMMAND, tmp_path, 501)
    assert agent.file == tmp_path / "Library" / "LaunchAgents" / "openmemory.plist"
    entries = plistlib.loads(agent.text.encode())
    assert entries["ProgramArguments"] == COMMAND
    assert (entries["RunAtLoad"], entries["KeepAlive"]) == (True, {"SuccessfulExit": False})
    assert agent.install == (("launchctl", "bootstrap", "gui/501", str(agent.file)),)
