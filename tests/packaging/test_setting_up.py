"""`make` sets up `.venv` once, however many start at the same time. A recorder stands in for what it installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RECORDER = """#!/bin/sh
case "$1" in
    -c|tools/*) exec {python} "$@" ;;
    -m) [ "$2" != venv ] || {{ mkdir -p .venv/bin; cp "$0" .venv/bin/python; cp "$0" .venv/bin/uv; cat gate; }} ;;
esac
echo "$1 $2 $3" >> record
"""
FILES = ("requirements-build.lock", "requirements.lock", "requirements-dev.lock", "pyproject.toml", "setup.py")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile and a Python that only records what it is asked; `venv` waits at a gate."""
    root = Path(__file__).parents[2]
    (tmp_path / "tools").mkdir()
    for name in ("Makefile", "tools/one_at_a_time.py", "tools/int8_graph.py", *FILES):
        shutil.copy(root / name, tmp_path / name)
    recorder = tmp_path / "python"
    recorder.write_text(RECORDER.format(python=sys.executable), encoding="utf-8")
    recorder.chmod(0o755)
    os.mkfifo(tmp_path / "gate")
    return tmp_path


def make(checkout: Path, target: str) -> subprocess.Popen[str]:
    command = ["make", "--no-print-directory", f"PYTHON={checkout / 'python'}", target]
    return subprocess.Popen(command, cwd=checkout, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.timeout(60)
def test_a_second_make_waits_and_finds_everything_done(checkout: Path) -> None:
    first = make(checkout, ".venv/.dev")
    assert first.stdout is not None
    assert first.stdout.readline().startswith("Setting up .venv")
    second = make(checkout, ".venv/.runtime")
    assert second.stdout is not None
    assert second.stdout.readline() == "Another make is setting up .venv; waiting for it ...\n"
    (checkout / "gate").write_text("", encoding="utf-8")
    assert [process.wait(30) for process in (first, second)] == [0, 0]
    record = (checkout / "record").read_text(encoding="utf-8").splitlines()
    assert record.count("-m venv .venv") == 1
    assert len([line for line in record if line.startswith("pip install")]) == 3  # the locks, and the package itself
    for process in (first, second):
        process.stdout.close()  # type: ignore[union-attr]


@pytest.mark.timeout(60)
def test_nothing_is_done_again(checkout: Path) -> None:
    first = make(checkout, ".venv/.dev")
    (checkout / "gate").write_text("", encoding="utf-8")
    first.communicate(timeout=30)
    (checkout / "record").unlink()
    second = make(checkout, ".venv/.dev")
    second.communicate(timeout=30)
    assert second.returncode == 0
    assert not (checkout / "record").exists()
