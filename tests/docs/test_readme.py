"""The commands of README work as they stand, against a service that `make serve` started."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from mcp import Client

from tests import warm
from tests.docs.conftest import ROOT, read
from tests.journeys.service import START, short_parent, until
from tests.required import required

pytestmark = [pytest.mark.journey, pytest.mark.timeout(240)]

README = read(ROOT / "README.md")
ADDRESS = "http://127.0.0.1:8765"
SHELL = [block.text for block in README.blocks if block.language == "sh"]
PEANUTS = "I am allergic to peanuts."
START_COMMAND, CONNECT, *EXAMPLES = SHELL

TOGETHER = """
make() { command make --no-print-directory -C "$ROOT" --assume-old=.venv/.runtime BIN="$BIN" "$@"; }
"""
"""Has `make` run the installed service, whether or not something would have to be installed first."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder with the installed environment, as the repository has it."""
    with short_parent() as parent:
        (parent / ".venv").symlink_to(Path(sys.executable).parents[1])
        yield parent


@pytest.fixture(scope="module")
def environment(place: Path) -> dict[str, str]:
    """What a terminal has, with a data folder and a free port instead of the usual ones."""
    return warm.clean_environment() | {
        "ROOT": str(ROOT),
        "BIN": str(Path(sys.executable).parent),
        "PATH": f"{place}{os.pathsep}{os.environ['PATH']}",
        "OPENMEMORY_DATA_DIR": str(place / "data"),
        "OPENMEMORY_PORT": "0",
    }


@pytest.fixture(scope="module")
def address(place: Path, environment: dict[str, str]) -> Iterator[str]:
    """Where the service of README's first command listens."""
    log = place / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["bash", "-c", TOGETHER + START_COMMAND], cwd=place, env=environment, stdout=out, stderr=out,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    try:
        until(lambda: b"Data folder" in log.read_bytes() or process.poll() is not None, START)
        lines = dict(line.split(maxsplit=1) for line in log.read_text().splitlines() if "http://" in line)
        assert "REST" in lines, log.read_text()
        yield lines["REST"].removesuffix("/api/v1")
    finally:
        family = [process, *psutil.Process(process.pid).children(recursive=True)] if process.poll() is None else []
        for one in family[1:]:
            with suppress(psutil.NoSuchProcess):  # a worker that has just ended
                one.terminate()
        psutil.wait_procs(family[1:], 20)
        process.wait(20)


def run(commands: str, address: str, place: Path, environment: dict[str, str]) -> str:
    """Runs the commands, which must succeed, and returns their output."""
    done = subprocess.run(
        ["bash", "-e", "-c", commands.replace(ADDRESS, address)],
        cwd=place, env=environment, check=False, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_address_for_assistants_speaks_mcp(address: str) -> None:
    [path] = re.findall(rf"`{ADDRESS}(/\w+)`", README.prose)

    async def tools() -> set[str]:
        async with Client(address + path, read_timeout_seconds=60) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    assert {"add_memories", "search_memory"} <= asyncio.run(tools())


def test_assistants_are_connected_and_disconnected(place: Path, environment: dict[str, str]) -> None:
    home = place / "home"
    (home / ".cursor").mkdir(parents=True)
    environment = environment | {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    run(f"{CONNECT.strip()} --yes", ADDRESS, place, environment)
    configuration = home / ".cursor" / "mcp.json"
    entry = json.loads(configuration.read_text(encoding="utf-8"))["mcpServers"]["openmemory"]
    assert entry["args"][0] == "mcp"
    run(".venv/bin/openmemory disconnect --yes", ADDRESS, place, environment)
    assert not configuration.exists() or "openmemory" not in configuration.read_text(encoding="utf-8")


def test_the_examples_do_what_they_say(address: str, place: Path, environment: dict[str, str]) -> None:
    required("curl", "--version")
    add, search, shell, hide, export = EXAMPLES
    assert json.loads(run(add, address, place, environment))["content"] == PEANUTS
    found = json.loads(run(search, address, place, environment))
    assert [one["memory"] for one in found["results"]] == [PEANUTS]

    assert "We ship the webshop in May." in run(shell, address, place, environment)

    [python] = [block.text for block in README.blocks if block.language == "python"]
    printed = subprocess.run(
        [sys.executable, "-c", python.replace(ADDRESS, address)], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    assert PEANUTS in printed

    activated = "source .venv/bin/activate\n"
    run(activated + hide, address, place, environment)
    assert "private" in run(activated + "openmemory grants list", address, place, environment)
    run(activated + export, address, place, environment)
    assert (place / "memories.zip").stat().st_size > 1000


@pytest.mark.parametrize("name", ["README.md", "docs/start.md"])
def test_the_documentation_shows_what_a_start_prints(address: str, place: Path, name: str) -> None:
    printed = (place / "log").read_text().replace(address, ADDRESS).splitlines()
    [shown] = [block.text for block in read(ROOT / name).blocks if block.language == "text"]
    assert [line for line in shown.splitlines() if line not in printed and line.strip() != "…"] == []
