"""`openmemory ingest` reads a folder, leaves out what must not leave the machine, and sends only changes."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from openmemory.doors.cli.reading import Folder
from openmemory.errors import Invalid
from tests.journeys.service import until

Run = Callable[..., subprocess.CompletedProcess[str]]


def git(folder: Path, *arguments: str) -> None:
    own = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *own, "-C", str(folder), *arguments], check=True, capture_output=True)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A repository with everything that a folder may hold."""
    folder = tmp_path / "shop"
    (folder / "src").mkdir(parents=True)
    (folder / "node_modules").mkdir()
    (folder / "README.md").write_text("# Webshop\n\nWe ship on Tuesdays.\n")
    (folder / "src" / "pay.py").write_text("def pay(card):\n    return charge(card)\n")
    (folder / "src" / "wide.txt").write_bytes("Größe".encode("utf-16"))
    (folder / ".env").write_text("TOKEN=1\n")
    (folder / "key.pem").write_text("x\n")
    (folder / "data.json").write_bytes(b"\0\1\2")
    (folder / "ignored.md").write_text("# Ignored\n")
    (folder / ".gitignore").write_text("ignored.md\nnode_modules/\n")
    (folder / "node_modules" / "lib.js").write_text("x = 1\n")
    (folder / "outside.md").symlink_to("/etc/passwd")
    (folder / "huge.txt").write_text("x" * 2_100_000)
    git(folder, "init")
    return folder


READ = {"README.md", "src/pay.py", "src/wide.txt", "data.json"}


def test_git_tells_what_is_ignored_and_secrets_links_and_binaries_stay(shop: Path) -> None:
    folder = Folder.of(shop)
    assert set(folder.files()) == READ
    assert folder.read("data.json") is None
    assert folder.read("src/wide.txt") is not None
    assert folder.read("outside.md") is None
    assert folder.skipped == {
        "may hold a credential": 2, "of an unknown kind": 1, "is no plain file": 1, "too large": 1, "no text": 1,
        "cannot be read": 1,
    }  # fmt: skip


def test_without_git_folders_of_tools_are_left_out(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert set(Folder.of(shop).files()) == READ | {"ignored.md"}


def test_memignore_leaves_out_more(shop: Path) -> None:
    (shop / ".memignore").write_text("*.txt\n!README.md\n/data.json\n")
    folder = Folder.of(shop)
    assert set(folder.files()) == {"README.md", "src/pay.py"}
    assert folder.skipped["in .memignore"] == 3  # huge.txt too
    (shop / ".memignore").write_text("nothing-of-this-name\n")
    assert set(Folder.of(shop).files()) == READ
    bare = shop / ".git"
    bare.rename(shop / "was.git")
    (shop / ".memignore").write_text("src/\nwas.git/\n")
    assert set(Folder.of(shop).files()) == {"README.md", "data.json"}


def test_without_git_a_memignore_is_not_passed_over(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shop / ".memignore").write_text("*.txt\n")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Invalid, match="memignore"):
        list(Folder.of(shop).files())


def test_a_part_of_a_repository_keeps_its_paths(shop: Path) -> None:
    folder = Folder.of(shop / "src")
    assert (folder.root, folder.below) == (shop, "src")
    assert set(folder.files()) == {"src/pay.py", "src/wide.txt"}
    with pytest.raises(Invalid):
        Folder.of(shop / "README.md")


def test_a_link_to_a_folder_is_not_followed(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "secret.md").write_text("x")
    (shop / "linked").symlink_to(tmp_path / "else")
    (shop / "src" / "up").symlink_to("..")
    assert set(Folder.of(shop).files()) == READ
    assert Folder.of(shop).read("linked/secret.md") is not None  # only a listed path is read


@pytest.mark.slow
def test_a_folder_is_kept_and_only_changes_are_sent(om: Run, user: str, shop: Path) -> None:
    def ingest(*arguments: str) -> str:
        told = om("ingest", str(shop), "--user", user, "--namespace", "shop", *arguments)
        assert told.returncode == 0, told.stderr
        return "\n".join(line for line in told.stdout.splitlines() if not line.startswith("# "))

    planned = ingest("--dry-run").splitlines()
    assert planned == ["send README.md", "send src/pay.py", "send src/wide.txt", "0 files are unchanged."]
    assert ingest() == "shop: 3 files added, 0 updated, 0 unchanged, 0 renamed, 0 removed."
    assert ingest() == "shop: 0 files added, 0 updated, 3 unchanged, 0 renamed, 0 removed."
    (shop / "README.md").rename(shop / "LIESMICH.md")
    (shop / "src" / "wide.txt").unlink()
    (shop / "src" / "pay.py").write_text("def pay(card):\n    return charge(card, twice=True)\n")
    assert ingest() == "shop: 0 files added, 1 updated, 0 unchanged, 1 renamed, 1 removed."
    found = om("files", "search", "when do we ship?", "--user", user)
    assert "LIESMICH.md:1" in found.stdout
    assert [line.split("\t")[0] for line in om("files", "list", "--user", user).stdout.splitlines()] == [
        "LIESMICH.md", "src/pay.py",
    ]  # fmt: skip
    assert om("ingest", str(shop / "nowhere"), "--user", user).returncode != 0


@pytest.mark.slow
def test_a_watched_folder_is_kept_as_it_changes(served: Path, om: Run, user: str, shop: Path, tmp_path: Path) -> None:
    told, numbers = tmp_path / "told", itertools.count()
    command = (sys.executable, "-m", "openmemory", "ingest", str(shop), "--watch", "--user", user)
    environment = os.environ | {"OPENMEMORY_DATA_DIR": str(served)}
    with told.open("w") as out:
        watching = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)

    def is_updated() -> bool:
        # What changes before the watch begins is kept a minute later only.
        (shop / "README.md").write_text(f"# Webshop\n\nWe ship on Fridays, {next(numbers)}.\n")
        return "1 updated" in told.read_text()

    try:
        until(lambda: "3 files added" in told.read_text(), 60)
        until(is_updated, 60)
        (shop / "src" / "pay.py").unlink()
        until(lambda: "1 removed" in told.read_text(), 60)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 130
    finally:
        watching.kill()
        watching.wait()
    assert "Fridays" in om("files", "search", "when do we ship?", "--user", user).stdout
