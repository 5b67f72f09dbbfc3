"""Every command of the documentation works as it stands: page by page, in order, on a fresh store.

Those of README run in `test_readme.py`, from `make serve` on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import warm
from tests.clusters import furnish
from tests.docs.conftest import PAGES, read
from tests.journeys.service import short_parent, starting
from tests.required import required
from tests.warm_shell import warm_path

pytestmark = [pytest.mark.journey, pytest.mark.timeout(600)]

NOT_HERE = {
    "make ": "sets up or checks the whole project; README's make serve runs in test_readme.py",
    "OPENMEMORY_LIMITS_TEXT=200000 ": "make serve, as above",
    "OPENMEMORY_ACCESS_DEFAULT_USER=": "make serve, as above",
    "OPENMEMORY_EGRESS_ALLOW=": "make serve, as above",
    "OPENMEMORY_HOST=0.0.0.0 ": "opens the service to the network; tests/security tests what it asks for then",
    "docker ": "needs Docker",
    "old=$(docker ": "needs Docker",
    "git pull && docker ": "needs Docker",
    "cd mem0/openmemory && docker ": "needs Docker",
    "(umask ": "writes the keys for Docker",
    "cp api/openmemory.db": "needs the old server; tests/doors/cli/test_migrating.py imports its database",
    "curl -X POST http://localhost:8765/api/v1/backup/export": "needs the old server",
    "openmemory import openmemory ~/openmemory.db": "needs the old server; tests/doors/cli/test_migrating.py",
    "openmemory import openmemory memories_export.zip": "needs the old server; tests/doors/cli/test_migrating.py",
    "openmemory import openmemory http://": "needs the old server; tests/doors/cli/test_import_openmemory.py",
    "openmemory import mem0 http://": "needs mem0's Qdrant; tests/doors/cli/test_import_openmemory.py imports from one",
    "openmemory import mempack ~/": "needs a store of Mempack; tests/importers/test_programs.py",
    "openmemory import pimemento postgresql://": "needs a database; tests/importers/test_programs.py",
    "openmemory import devmemory postgresql://": "needs a database; tests/importers/test_programs.py",
    "openmemory import neuromem postgresql://": "needs a database; tests/importers/test_programs.py",
    "openmemory import openmemory postgresql://": "needs a database; tests/importers/test_programs.py",
    "openmemory installation --": "needs a copied database; tests/doors/cli/test_installation.py has one",
    "openmemory slack ": "needs a workspace of Slack; tests/doors/cli/test_slack.py has one",
    "python -m benchmarks loaders ": "needs the data of others; tests/benchmarks/test_loaders.py has a little of it",
    "claude mcp add": "needs Claude Code",
    "claude plugin ": "needs Claude Code",
    ".venv/bin/openmemory service ": "changes the user's systemd or launchd; tests/doors/cli/test_service.py",
}
"""Commands that cannot run in a test, by how they begin, and why."""

FILES = {
    "docs/guides/programs.md": {"notes.jsonl": '{"text": "We meet on Monday."}\n'},
    "docs/migrating-from-openmemory.md": {
        "memories.json": '[{"id": "1", "memory": "Likes tea", "user_id": "ada"}]',
    },
    "docs/moving/from-pimemento.md": {
        "memory_data/acme/memory.json": '[{"content": "stack=React", "type": "insight", "date": "2025-01-01"}]',
    },
}
"""Files that a reader of the page has already."""


def commands(text: str) -> Iterator[str]:
    """The commands of a shell block, one by one."""
    command = ""
    for line in text.splitlines(keepends=True):
        command += line
        done = not line.endswith("\\\n") and subprocess.run(
            ["bash", "-n", "-c", command], capture_output=True, check=False
        )
        if done and done.returncode == 0:
            if any(part.strip() and not part.lstrip().startswith("#") for part in command.splitlines()):
                yield command.strip()
            command = ""
    assert not command.strip(), f"this is no whole command: {command}"


EVERY = {
    str(page): found
    for page in map(read, PAGES)
    if (found := [command for block in page.blocks if block.language == "sh" for command in commands(block.text)])
}
"""The commands of each page that has some."""


def reason(command: str) -> str | None:
    return next((why for start, why in NOT_HERE.items() if command.startswith(start)), None)


RUNNABLE = {
    page: [command for command in found if reason(command) is None]
    for page, found in EVERY.items()
    if page != "README.md" and any(reason(command) is None for command in found)
}


def test_every_exception_is_a_command_of_some_page() -> None:
    every = [command for found in EVERY.values() for command in found]
    assert [start for start in NOT_HERE if not any(command.startswith(start) for command in every)] == []
    assert FILES.keys() <= RUNNABLE.keys()
    assert len(RUNNABLE) > 12


_SHELL = r"""
curl() { command curl -sS --fail-with-body "$@"; }
openmemory() {  # nobody is there to be asked
    case "$1 $2" in connect*|disconnect*|"hooks add"|"hooks remove"|"projects trust") set -- "$@" --yes;; esac
    command openmemory "$@"
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE)
def test_the_commands_of_a_page_work_in_order_on_a_fresh_store(page: str) -> None:
    required("curl", "--version")
    with short_parent() as place, starting(furnish(place / "data")) as start, warm_path(place) as before:
        address = start(OPENMEMORY_CATEGORIES_ASSIGN="local").ready()
        (place / ".venv").symlink_to(Path(sys.executable).parents[1])
        (place / "home" / ".cursor").mkdir(parents=True)
        for name, text in FILES.get(page, {}).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text, encoding="utf-8")
        environment = warm.clean_environment() | {
            "HOME": str(place / "home"),
            "XDG_CONFIG_HOME": str(place / "home" / ".config"),
            "USER": "ada",
            "OPENMEMORY_DATA_DIR": str(place / "data"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        own = next((command for command in RUNNABLE[page] if "openmemory " in command), None)
        for command in RUNNABLE[page]:
            # The first of a page starts as it does for its reader, the others are forked.
            path = environment["PATH"] if command == own else f"{before}{os.pathsep}{environment['PATH']}"
            there = command.replace("http://127.0.0.1:8765", address)
            done = subprocess.run(
                ["bash", "-e", "-c", f"{_SHELL}\n{there}"],
                cwd=place, env=environment | {"PATH": path}, check=False, capture_output=True, text=True, timeout=120,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
            assert done.returncode == 0, f"{page}: {command}\n{done.stdout}{done.stderr}"


def test_the_commands_are_read_one_by_one() -> None:
    block = "a 1   # one\nb \\\n  --two\n# only a comment\nc '{\n  \"three\": 3\n}'\n"
    assert list(commands(block)) == ["a 1   # one", "b \\\n  --two", "c '{\n  \"three\": 3\n}'"]
