"""`openmemory export FILE.zip`, against a running service and with the stores opened by the command itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.backup.archives import members, tables_of
from tests.clusters import furnish

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_an_archive_is_written_whole(om: Run, user: str, tmp_path: Path) -> None:
    om("add", "I like tea", "--user", user)
    file = tmp_path / "mine.zip"
    told = om("export", str(file), "--user", user)
    assert (told.returncode, told.stdout) == (0, "")
    assert told.stderr.startswith(f"The archive of {user} is written to {file} (")
    assert [row["content"] for row in tables_of(file.read_bytes())["memories"]] == ["I like tea"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["mine.zip"]


@pytest.mark.parametrize(("option", "there"), [("--vectors", True), ("--no-vectors", False)])
def test_vectors_are_in_it_unless_they_are_not_wanted(
    om: Run, user: str, tmp_path: Path, option: str, there: bool
) -> None:
    om("add", "I like tea", "--user", user)
    file = tmp_path / "mine.ZIP"
    assert om("export", str(file), "--user", user, option).returncode == 0
    assert ("vectors.jsonl.gz" in members(file.read_bytes())) is there


@pytest.mark.slow
def test_a_command_that_opens_the_stores_itself_writes_the_same(run: Run, folder: Path, tmp_path: Path) -> None:
    where = {"OPENMEMORY_DATA_DIR": str(furnish(folder))}
    # Long, and yet soon embedded: to the model each is a few words, of which it knows the last one not at all.
    lines = "\n".join(json.dumps({"text": f"memory number {number} {'m' * 400}"}) for number in range(1_500))
    assert run("import", "-", stdin=lines, **where).returncode == 0
    file = tmp_path / "mine.zip"
    told = run("export", str(file), **where)
    assert told.returncode == 0, told.stderr
    assert len(tables_of(file.read_bytes())["memories"]) == 1_500


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mine.zip", "--state", "all"), "--state: is for JSON Lines"),
        (("mine.jsonl", "--no-vectors"), "--vectors: is for archives, whose names end in .zip"),
        (("no/such/folder/mine.zip",), "no/such/folder/mine.zip: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_told(om: Run, user: str, arguments: tuple[str, ...], words: str) -> None:
    om("add", "I like tea", "--user", user)
    told = om("export", *arguments, "--user", user)
    assert (told.returncode, told.stdout) == (2, "")
    assert words in told.stderr


def test_an_unknown_user_leaves_no_file(om: Run, tmp_path: Path) -> None:
    told = om("export", str(tmp_path / "mine.zip"), "--user", "nobody-at-all")
    assert (told.returncode, told.stderr) == (1, "openmemory: User not found\n")
    assert list(tmp_path.iterdir()) == []
