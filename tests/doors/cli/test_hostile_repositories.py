"""No command runs a program that a repository names, in any way that plain Git would run it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openmemory.doors.cli import project
from openmemory.doors.cli.checkout import Checkout
from openmemory.doors.cli.reading import IGNORE_FILE, Folder
from tests.doors.cli import hostile_repositories
from tests.doors.cli.hostile_repositories import KINDS, READERS, Hostile

Run = Callable[..., subprocess.CompletedProcess[str]]

FILES = {"b.md", "sub/a.md"}
UNKNOWN = "1" * 40

QUICK = [name for name in KINDS if name.startswith(READERS)]
REST = [name for name in KINDS if name not in QUICK]


@pytest.fixture
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> Hostile:
    """A repository of the kind of this test."""
    name: str = request.getfixturevalue("kind")
    return hostile_repositories.made(tmp_path, name)


def read_by_functions(one: Hostile) -> Iterator[str]:
    """Uses everything that asks Git or looks at a repository, and names each use after it."""
    for place, folder in (("the root", one.root), ("a folder", one.root / one.below)):
        read = Folder.of(folder)
        files = {path for path in read.files() if read.read(path) is not None}
        assert {path for path in FILES if path.startswith(read.below)} <= files
        yield f"read {place}"
        (one.root / IGNORE_FILE).write_text("nothing-of-this-name\n")
        assert set(Folder.of(folder).files()) >= files
        (one.root / IGNORE_FILE).unlink()
        yield f"read {place} with {IGNORE_FILE}"
        checkout = Checkout(str(folder))
        head = checkout.head()
        assert head is not None
        reachable, _ = checkout.compare(head, [head, UNKNOWN])
        assert reachable in ([head], [])
        yield f"compare the commits of {place}"
        assert project.namespace(str(folder))
        yield f"name the project of {place}"


def assert_harmless(one: Hostile, name: str) -> None:
    for use in read_by_functions(one):
        assert not one.marked(), f"{use} ran the program of the repository"
    hostile_repositories.control(one, name)
    assert one.marked(), "plain Git does not run the program either, so that this proves nothing"


@pytest.mark.parametrize("kind", QUICK)
def test_reading_a_repository_runs_no_program_of_it(hostile: Hostile, kind: str) -> None:
    assert_harmless(hostile, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", REST)
def test_reading_a_repository_runs_no_program_that_other_commands_of_git_run(hostile: Hostile, kind: str) -> None:
    assert_harmless(hostile, kind)


def mcp_call(tool: str, **given: object) -> str:
    """What an assistant says to `openmemory mcp` to call one tool."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "claude", "version": "1"}}
    said = (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": tool, "arguments": given}},
    )
    return "".join(json.dumps({"jsonrpc": "2.0"} | each) + "\n" for each in said)


CONTEXT = mcp_call("mem_get_context", query="what is decided?")
PROMPT = json.dumps({"hook_event_name": "UserPromptSubmit", "prompt": "what is decided?"})
COMMANDS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "ingest --dry-run": (("ingest", ".", "--dry-run"), None),
    "ingest": (("ingest", "."), None),
    "context": (("context", "what is decided?"), None),
    "mcp: mem_get_context": (("mcp", "--client", "claude", "--toolsets", "context"), CONTEXT),
    "projects doctor": (("projects", "doctor"), None),
    "projects doctor --repair": (("projects", "doctor", "--repair"), None),
    "projects register": (("projects", "register", "Hostile"), None),
    "projects show": (("projects", "show"), None),
    "state save": (("state", "save", "It begins.", "--state", "{}"), None),
    "state show": (("state", "show"), None),
    "values set": (("values", "set", "team", "lead", "Zoe"), None),
    "share export": (("share", "export", "--out", "../share"), None),
    "share import": (("share", "import", "--in", "../share", "--yes"), None),
    "hook session-start": (("hook", "session-start", "--timeout", "30000"), "{}"),
    "hook prompt": (("hook", "prompt", "--timeout", "30000"), PROMPT),
}
"""Every command that meets the repository of its folder, with its standard input."""


COMPARING = ("context", "mcp: mem_get_context", "projects doctor --repair")
"""Commands that ask Git for commits that nobody has compared."""


def run_everything(om: Run, user: str, one: Hostile) -> Iterator[str]:
    """Runs every command below a repository, and `ingest` in its root too. Names each use after it."""
    namespace = project.namespace(str(one.root)) or ""
    uses = [*((name, one.below) for name in COMMANDS), ("ingest", "")]
    for number, (name, place) in enumerate(uses):
        if name in COMPARING:
            metadata = json.dumps({"commit": f"{number:040}"})
            added = om("add", f"Decision {number}.", "--user", user, "--namespace", namespace, "--metadata", metadata)
            assert added.returncode == 0, added.stderr
        command, said = COMMANDS[name]
        done = om(*command, "--user", user, stdin=said, cwd=one.root / place)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode in (0, 1), f"{name}: {done.stderr}"
        yield name if place else f"{name} in the root"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_no_command_runs_a_program_of_a_repository(om: Run, user: str, hostile: Hostile, kind: str) -> None:
    for use in run_everything(om, user, hostile):
        assert not hostile.marked(), f"{use} ran the program of the repository"
    hostile_repositories.control(hostile, kind)
    assert hostile.marked(), "plain Git does not run the program either, so that this proves nothing"
