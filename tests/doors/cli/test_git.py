"""The one function that starts Git: its environment, its bounds, and what it answers when Git refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openmemory.doors.cli import git as asking
from openmemory.doors.cli.checkout import Checkout
from openmemory.doors.cli.git import GitError
from openmemory.doors.cli.reading import Folder
from tests.doors.cli.hostile_repositories import git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two files, of which one is ignored."""
    folder = tmp_path / "repository"
    (folder / "sub").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "sub" / "a.md").write_text("# One\n")
    (folder / "sub" / "draft.md").write_text("# Draft\n")
    (folder / ".gitignore").write_text("draft.md\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def test_what_the_caller_has_set_for_git_does_not_count(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n: > {tmp_path}/mark\n")
    program.chmod(0o755)
    for name, value in {
        "GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other), "GIT_INDEX_FILE": str(other / "index"),
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": str(program),
        "GIT_TRACE": str(tmp_path / "trace"), "GIT_EXEC_PATH": str(tmp_path),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert set(Folder.of(repository).files()) == {"sub/a.md"}
    assert not (tmp_path / "mark").exists()
    assert not (tmp_path / "trace").exists()


def test_git_is_never_taken_from_the_folder_that_is_read(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = repository / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n: > {repository}/mark\n")
    program.chmod(0o755)
    monkeypatch.chdir(repository)
    monkeypatch.setenv("PATH", f"bin:./bin::{os.environ['PATH']}")
    assert set(Folder.of(repository).files()) == {"sub/a.md"}
    assert not (repository / "mark").exists()


def test_another_working_tree_that_a_repository_names_is_not_read(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "private.md").write_text("# Private\n")
    git(repository, "config", "core.worktree", str(tmp_path))
    folder = Folder.of(repository / "sub")
    assert (folder.root, set(folder.files())) == (repository, {"sub/a.md"})


def test_a_folder_is_not_of_a_repository_above_the_one_that_is_broken(repository: Path) -> None:
    (repository / "sub" / ".git").mkdir()
    with pytest.raises(GitError, match="not a git repository"):
        list(Folder.of(repository / "sub").files())
    assert Checkout(str(repository / "sub")).compare("1" * 40, ["2" * 40]) == ([], [])


def test_nothing_is_read_where_git_cannot_tell_what_is_ignored(repository: Path) -> None:
    (repository / ".git" / "index").write_bytes(b"no index")
    with pytest.raises(GitError, match="index file"):
        list(Folder.of(repository).files())


def test_git_gets_so_many_seconds(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")  # Git waits for somebody who writes
    git(repository, "config", "core.excludesFile", str(tmp_path / "pipe"))
    monkeypatch.setattr(asking, "_SECONDS", 0.5)
    with pytest.raises(GitError, match="did not answer"):
        list(Folder.of(repository).files())


@pytest.mark.parametrize("name", [".gitignore", "sub/.gitignore", "new/.gitignore", ".git/info/exclude", ".git/index"])
def test_a_pipe_that_git_would_wait_at_is_named(repository: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pipe = repository / name
    pipe.parent.mkdir(exist_ok=True)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    monkeypatch.setattr(asking, "_SOON", 0.2)
    with pytest.raises(GitError) as refused:
        list(Folder.of(repository).files())
    assert f"{pipe} is a pipe" in str(refused.value)


def test_git_that_is_slow_and_waits_at_no_pipe_is_waited_for(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "sub" / "pipe.md").unlink(missing_ok=True)
    os.mkfifo(repository / "sub" / "pipe.md")  # it is listed, and nobody opens it
    monkeypatch.setattr(asking, "_SOON", 0.0)
    assert set(Folder.of(repository).files()) == {"sub/a.md"}


@pytest.mark.parametrize("name", ["[abc]", "?", "*", "-x"])
def test_the_name_of_a_folder_is_no_pattern(repository: Path, name: str) -> None:
    (repository / name).mkdir()
    (repository / name / "b.md").write_text("# Two\n")
    assert set(Folder.of(repository / name).files()) == {f"{name}/b.md"}
