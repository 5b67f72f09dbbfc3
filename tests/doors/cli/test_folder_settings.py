"""An `openmemory.toml` in the working folder may be somebody else's, so it counts only after the user confirms it."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from openmemory.config.settings import Settings, keys
from openmemory.doors.cli import folder_settings
from openmemory.doors.cli.commands import complete
from openmemory.doors.cli.confirmed import confirmed
from openmemory.doors.cli.finding import reachable_service
from openmemory.doors.cli.options import load_settings
from openmemory.errors import SetupError
from tests.clusters import furnish
from tests.journeys import system_calls
from tests.required import required
from tests.warm import clean_environment

Run = Callable[..., subprocess.CompletedProcess[str]]

OURS = Path(__file__).parents[3] / "openmemory.toml"
EVIL = """
data_dir = "/nonexistent/evil"
port = 99
[database]
url = "postgresql://u:hunter2@evil.example:1/x?password=hunter3"
[llm]
api_key = "hunter4"
base_url = "http://u:hunter5@evil.example/\\u001b[31m"
[egress]
allow = ["10.0.0.0/8"]
[log]
level = "error"
"""


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's configuration, empty."""
    for name in [name for name in os.environ if name.startswith("OPENMEMORY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with somebody's settings, in which commands are typed."""
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / "openmemory.toml").write_text(EVIL)
    monkeypatch.chdir(folder)
    return folder


def refused() -> SetupError:
    with pytest.raises(SetupError) as refusal:
        load_settings(None)
    assert "\n" not in refusal.value.message
    return refusal.value


@pytest.mark.parametrize("path", keys(), ids=".".join)
def test_no_setting_of_an_unconfirmed_file_counts(clone: Path, path: tuple[str, ...]) -> None:
    [*section, key] = path
    (clone / "openmemory.toml").write_text(f"[{section[0]}]\n{key} = 1\n" if section else f"{key} = 1\n")
    error = refused()
    assert f"{clone}/openmemory.toml is not used" in error.message
    assert error.message.endswith(f"it sets {'.'.join(path)}")
    assert "`openmemory config trust`" in str(error.hint)
    assert "--config openmemory.toml" in str(error.hint)


def commands(command: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands that take `--config`, with their names."""
    children = getattr(command, "commands", {})
    for name, child in children.items():
        yield from commands(child, *names, name)
    if (not children or getattr(command, "invoke_without_command", False)) and any(
        "--config" in one.opts for one in command.params
    ):
        yield names, command


EVERY = dict(commands(typer.main.get_command(complete())))
NOT_HERE = {("mcp",), ("connect",), ("hooks", "add"), ("service", "install"), ("disconnect",)}
"""They read no settings of the working folder."""


CHOICES = {"part": "llm"}
"""Values of the arguments that take only some words."""


def _arguments(names: tuple[str, ...], command: Any) -> list[str]:
    """Arguments that the command accepts."""
    found = list(names)
    for one in command.params:
        if one.param_type_name == "argument" and one.required:
            found += [CHOICES.get(one.name, "12345678")] * max(1, one.nargs)
        elif one.required:
            found += [one.opts[0], "1"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("names", sorted(EVERY.keys() - NOT_HERE), ids=" ".join)
def test_no_command_uses_an_unconfirmed_file(clone: Path, names: tuple[str, ...], tmp_path: Path) -> None:
    given = _arguments(names, EVERY[names])
    (clone / "openmemory.toml").write_text(f'data_dir = "{tmp_path}/evil"\n')
    with pytest.raises(SetupError, match=r"is not used before you confirm it for this folder; it sets data_dir"):
        typer.main.get_command(complete()).main(given, prog_name="openmemory", standalone_mode=False)
    assert not (tmp_path / "evil").exists()


def on_a_terminal(clone: Path, config: Path, answer: bytes, *arguments: str) -> tuple[int, str, str]:
    """Runs a command on a terminal. Returns its exit code, its output and what the terminal showed."""
    ours, theirs = pty.openpty()
    environment = clean_environment() | {"XDG_CONFIG_HOME": str(config)}
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "openmemory", *arguments],
        cwd=clone, env=environment, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        os.write(ours, answer)
        out, _ = process.communicate(timeout=60)
    os.write(theirs, b"\n")  # so that there is something to read
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    os.close(theirs)
    return process.returncode, out.decode(), shown


QUESTION = "Use it in this folder as it is now? [y/N]"


@pytest.mark.slow
def test_a_person_on_a_terminal_is_asked_once(clone: Path, config: Path) -> None:
    for answer in (b"n\n", b"\n", b"\x04"):
        code, out, shown = on_a_terminal(clone, config, answer, "config", "--json")
        assert (code, out) == (2, ""), "nothing gets into the output"
        assert QUESTION in shown
        assert "may be somebody else's" in shown
    for line in (
        "data_dir = /nonexistent/evil", "database.url = postgresql://evil.example:1/x", "llm.api_key = ********",
        "llm.base_url = http://evil.example/ [31m", "egress.allow = 10.0.0.0/8", "and port, log.level",
    ):  # fmt: skip
        assert f"  {line}\r\n" in shown
    assert "hunter" not in shown
    assert "\x1b" not in shown
    for answer, asked in ((b"y\n", True), (b"", False)):
        code, out, shown = on_a_terminal(clone, config, answer, "config", "--json")
        assert (code, json.loads(out)["port"], QUESTION in shown) == (0, 99, asked)
    (clone / "openmemory.toml").write_text(EVIL + "\n")
    code, out, shown = on_a_terminal(clone, config, b"n\n", "config", "--json")
    assert (code, out) == (2, "")
    assert "has changed since you confirmed it" in shown


def test_a_program_is_refused_with_the_ways_that_there_are(clone: Path, config: Path, run: Run) -> None:
    here = {"cwd": clone, "XDG_CONFIG_HOME": str(config)}
    done = run("search", "tea", **here)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"openmemory: {clone}/openmemory.toml is not used before you confirm it for this folder; it sets data_dir,"
        " port, database.url, llm.api_key, llm.base_url and 2 more (confirm it with `openmemory config trust`, or name"
        " it with --config openmemory.toml; --config /dev/null leaves it out)\n"
    )

    def port(*arguments: str, **environment: str) -> int:
        done = run("config", "--json", *arguments, **here, **environment)
        assert (done.returncode, done.stderr) == (0, "")
        return int(json.loads(done.stdout)["port"])

    assert port("--config", "openmemory.toml") == 99
    assert port(OPENMEMORY_CONFIG=str(clone / "openmemory.toml")) == 99
    assert port("--config", os.devnull) == Settings().port
    assert port(OPENMEMORY_CONFIG=os.devnull) == Settings().port
    done = run("config", "trust", **here)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yes" in done.stderr
    assert run("config", "trust", "--yes", **here).stdout == f"Commands in {clone} use its openmemory.toml.\n"
    assert port() == 99
    assert run("config", "trust", **here).stdout == "There is nothing to confirm.\n"
    (clone / "openmemory.toml").write_text("port = 98\n")
    assert run("config", **here).returncode == 2
    (clone / "openmemory.toml").write_text(EVIL)
    assert port() == 99
    assert run("config", "trust", "--remove", **here).stdout == "It is not confirmed any more.\n"
    assert run("config", "trust", "--remove", **here).stdout == "Nothing was confirmed for this folder.\n"
    assert run("config", **here).returncode == 2
    assert "PATH" in run("config", "trust", "nowhere", **here).stderr


def test_a_confirmation_is_for_one_folder(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_settings.trust(path=clone, yes=True)
    assert load_settings(None).file == clone / "openmemory.toml"
    assert confirmed(str(clone)) is None, "the project of the folder is not confirmed with it"
    (tmp_path / "linked").symlink_to(clone)
    monkeypatch.chdir(tmp_path / "linked")
    assert load_settings(None).port == 99
    for other in (clone / "inside", tmp_path / "other"):
        other.mkdir()
        monkeypatch.chdir(other)
        assert load_settings(None).file is None, "a file above the folder is none of it"
        (other / "openmemory.toml").write_text(EVIL)
        assert "is not used" in refused().message


def test_a_file_that_sets_nothing_needs_no_confirmation(clone: Path) -> None:
    for text in ("", "# port = 1\n", "[http]\n[llm]\n", OURS.read_text(encoding="utf-8")):
        (clone / "openmemory.toml").write_text(text, encoding="utf-8")
        assert load_settings(None) == Settings()
        folder_settings.trust(path=clone)


@pytest.fixture
def unreadable(clone: Path) -> Iterator[None]:
    """The account of this process may not read the file."""
    (clone / "openmemory.toml").chmod(0)
    if os.geteuid() != 0:
        yield
        return
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        (clone / "openmemory.toml").rename(Path(place, "openmemory.toml"))
        os.chdir(place)
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)
            os.chdir(clone)


@pytest.mark.usefixtures("unreadable")
def test_a_file_that_cannot_be_read_is_told() -> None:
    assert refused().message.endswith("/openmemory.toml cannot be read: Permission denied")


def test_only_a_plain_file_counts(clone: Path, tmp_path: Path) -> None:
    file = clone / "openmemory.toml"
    (tmp_path / "mine.toml").write_text("port = 97\n")
    (tmp_path / "empty.toml").touch()

    def at_a_socket() -> None:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("openmemory.toml")

    for make, problem in (
        (lambda: file.symlink_to("../mine.toml"), "is a link"),
        (lambda: file.symlink_to(tmp_path / "empty.toml"), "is a link"),
        (lambda: file.symlink_to("/proc/self/environ"), "is a link"),
        (lambda: file.symlink_to("nowhere"), "is a link"),
        (lambda: os.mkfifo(file), "is no plain file"),
        (file.mkdir, "is no plain file"),
        (at_a_socket, "cannot be read: No such device or address"),
    ):
        file.unlink()
        make()
        error = refused()
        assert error.message == f"{file} {problem}"
        assert "--config FILE" in str(error.hint)
        with pytest.raises(SetupError, match=problem):
            folder_settings.trust(path=clone, yes=True)
        if file.is_dir():
            file.rmdir()
            file.touch()
    file.unlink()
    file.symlink_to("../mine.toml")
    assert load_settings(file).port == 97, "a link that is named counts"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"port = ", "not valid TOML"),
        (b"\xff\xfe", "not valid TOML"),
        (b"x = " + b"[" * 50_000, "not valid TOML"),
        (b"x = " + b"{a=" * 30_000, "not valid TOML"),
        (b"a." * 49_000 + b"a = 1", "has more than 100 dots in a line"),
        (b"prot = 1", "unknown key 'prot'; did you mean 'port'?"),
        (b"[http.x]\ny = 1", "unknown key 'http.x'"),
        (b'"a\\u001b[31m" = 1', r"unknown key 'a\x1b[31m'"),
        (b"#" * 100_001, "is larger than 100,000 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_before_anybody_is_asked(
    clone: Path, config: Path, content: bytes, problem: str
) -> None:
    (clone / "openmemory.toml").write_bytes(content)
    assert problem in refused().message
    code, out, shown = on_a_terminal(clone, config, b"y\n", "config")
    assert (code, out) == (2, "")
    assert problem in shown
    assert QUESTION not in shown
    assert "\x1b" not in shown


def test_a_working_folder_that_is_gone_has_no_file(clone: Path, tmp_path: Path) -> None:
    (clone / "openmemory.toml").unlink()
    clone.rmdir()
    assert load_settings(None) == Settings()
    os.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["working folder", "data folder"])
def test_a_service_that_a_command_starts_has_the_settings_that_count(
    clone: Path, config: Path, folder: Path, run: Run, place: str
) -> None:
    furnish(folder)
    chosen = '[access]\ndefault_user = "ada"\n'
    where = {"cwd": clone, "XDG_CONFIG_HOME": str(config), "BROWSER": "true"}
    if place == "working folder":
        (clone / "openmemory.toml").write_text(f'data_dir = "{folder}"\nport = 0\n{chosen}')
        assert run("config", "trust", "--yes", **where).returncode == 0
    else:
        (clone / "openmemory.toml").unlink()
        (folder / "openmemory.toml").write_text(chosen)
        where |= {"OPENMEMORY_DATA_DIR": str(folder), "OPENMEMORY_PORT": "0"}
    try:
        done = run("open", **where)
        assert done.returncode == 0, done.stderr
        assert reachable_service(Settings(data_dir=str(folder))) is not None
        told = run("add", "Tea.", "--json", **where)
        assert json.loads(run("list", "--user", "ada", "--json", **where).stdout)["total"] == 1, told.stderr
    finally:
        assert run("stop", **where).returncode == 0


@pytest.mark.slow
def test_nothing_else_in_the_working_folder_is_opened(clone: Path, config: Path, served: Path, tmp_path: Path) -> None:
    required("strace", "-o", os.devnull, "true")
    (clone / "openmemory.toml").unlink()
    for name in (".env", "pyproject.toml", "alembic.ini", "logging.conf", ".netrc", "sitecustomize.py", "httpx.py"):
        (clone / name).write_text("OPENMEMORY_DATA_DIR=/nonexistent/evil\n")
    environment = clean_environment() | {"XDG_CONFIG_HOME": str(config), "OPENMEMORY_DATA_DIR": str(served)}
    command = str(Path(sys.executable).with_name("openmemory"))
    for arguments in (["list"], ["search", "tea"], ["context", "tea"], ["doctor"], ["config"], ["clients"]):
        trace = tmp_path / "trace"
        done = subprocess.run(
            [*system_calls.tracing(trace), command, *arguments],
            cwd=clone, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        opened = system_calls.read(trace).opened()
        assert len(opened) > 100
        inside = {str(path.relative_to(clone)) for path in opened if path.is_relative_to(clone)}
        assert inside <= {"openmemory.toml", ".openmemory"}, arguments
