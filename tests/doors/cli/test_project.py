"""The project of a folder: its namespace, and what Git knows of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from openmemory.doors.cli import project
from openmemory.doors.cli.checkout import Checkout

Run = Callable[..., subprocess.CompletedProcess[str]]


def git(folder: Path, *arguments: str) -> str:
    told = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments],
        cwd=folder, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return told.stdout.strip()


def test_a_repository_is_described_without_its_credentials(tmp_path: Path) -> None:
    assert project.describe(str(tmp_path)) == {"root": str(tmp_path)}
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "remote", "add", "origin", "https://me:secret@example.com/acme/shop.git")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
    head = git(tmp_path, "rev-parse", "HEAD")
    found = {"root": str(tmp_path), "repo": "https://example.com/acme/shop.git", "branch": "main", "head": head}
    (tmp_path / "src").mkdir()
    assert project.describe(str(tmp_path / "src")) == found
    git(tmp_path, "pack-refs", "--all")
    assert project.describe(str(tmp_path)) == found
    git(tmp_path, "worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
    assert project.describe(str(tmp_path / "tree")) == found | {"root": str(tmp_path / "tree"), "branch": "side"}
    git(tmp_path, "checkout", "-q", "--detach")
    assert project.describe(str(tmp_path)) == {name: found[name] for name in ("root", "repo", "head")}
    assert project.namespace(str(tmp_path)) == "acme/shop"
    (tmp_path / ".git" / "HEAD").write_text("no commit\n")
    assert "head" not in project.describe(str(tmp_path))


def test_a_repository_whose_references_are_in_no_files_is_described(tmp_path: Path) -> None:
    try:
        git(tmp_path, "init", "-q", "-b", "main", "--ref-format=reftable")
    except subprocess.CalledProcessError as error:
        assert "ref-format" in error.stderr  # noqa: PT017 - an older Git, which has no such repositories
        pytest.skip("this Git has no reftable")
    assert project.describe(str(tmp_path)) == {"root": str(tmp_path), "branch": "main"}
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
    head = git(tmp_path, "rev-parse", "HEAD")
    found = {"root": str(tmp_path), "branch": "main", "head": head}
    assert project.describe(str(tmp_path)) == found
    assert Checkout(str(tmp_path)).head() == head
    git(tmp_path, "worktree", "add", "-q", "-b", "feature/side", str(tmp_path / "tree"))
    side = {"root": str(tmp_path / "tree"), "branch": "feature/side"}
    assert project.describe(str(tmp_path / "tree")) == found | side
    git(tmp_path, "checkout", "-q", "--detach")
    assert project.describe(str(tmp_path)) == {"root": str(tmp_path), "head": head}


def test_a_branch_without_a_commit_is_described(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "feature/new")
    assert project.describe(str(tmp_path)) == {"root": str(tmp_path), "branch": "feature/new"}
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/../main\n")
    assert "head" not in project.describe(str(tmp_path))


def test_a_checkout_knows_which_commits_are_in_its_history(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    assert Checkout(str(origin)).head() is None
    git(origin, "init", "-q", "-b", "main")
    assert Checkout(str(origin)).head() is None
    for message in ("one", "two", "three"):
        git(origin, "commit", "-q", "--allow-empty", "-m", message)
    one, two, three = git(origin, "rev-list", "--reverse", "HEAD").split()
    git(origin, "reset", "-q", "--hard", two)
    tree = git(origin, "rev-parse", "HEAD^{tree}")
    checkout = Checkout(str(origin))
    assert checkout.head() == two
    assert checkout.compare(two, [one, two, three, "f" * 40, tree]) == ([one, two], [three, "f" * 40, tree])
    assert checkout.compare("f" * 40, [one]) == ([], [])
    assert checkout.compare(two, []) == ([], [])
    assert Checkout(str(tmp_path)).compare(two, [one]) == ([], [])
    # A shallow clone does not know what came before.
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{origin}", "shallow")
    assert Checkout(str(tmp_path / "shallow")).compare(two, [one, two, three]) == ([two], [])


def test_urls_lose_their_credentials() -> None:
    for url, bare in (
        ("https://token@example.com/a/b", "https://example.com/a/b"),
        ("git@example.com:a/b.git", "git@example.com:a/b.git"),
        ("ssh://git@example.com:22/a/b", "ssh://example.com:22/a/b"),
        ("/srv/a.git", "/srv/a.git"),
    ):
        assert project.without_credentials(url) == bare


@pytest.mark.slow
def test_the_life_of_a_project(om: Run, user: str, tmp_path: Path) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        told = om(*arguments, "--user", user)
        assert told.returncode == code, told.stderr
        return told.stdout.strip() if code == 0 else told.stderr.strip()

    here = ("--namespace", "acme/shop")
    assert run("projects", "register", "The shop", *here) == "acme/shop: The shop"
    saved = run("state", "save", "It begins.", "--state", '{"port": 6432}', *here)
    assert saved == "acme/shop has revision 1: 13 of 16,000 characters."
    assert "revision 1, not 0" in run("state", "save", "x", "--state", "{}", "--expect", "0", *here, code=1)
    assert "--state and --file" in run("state", "save", "x", *here, code=2)
    (tmp_path / "state.json").write_text('{"port": 5432}')
    run("state", "save", "The port has changed.", "--file", str(tmp_path / "state.json"), *here)
    assert run("state", "show", *here) == '{\n  "port": 5432\n}'
    assert "port: 6432 -> 5432" in run("state", "history", *here)
    assert run("values", "set", "team", "lead/now", "Zoe", *here) == "team/lead/now added."
    assert run("values", "set", "team", "lead/now", "Ada", *here) == "team/lead/now updated."
    assert run("values", "get", "team", "lead/now", *here) == "Ada"
    assert run("values", "list", *here).split("\t")[::4] == ["team", "Ada"]
    pack = run("context", "who leads the team?", *here)
    assert "team/lead/now: Ada" in pack
    assert '{"port":5432}' in pack
    assert run("context", "who leads the team?", "--explain", *here).startswith("in\tstate")
    assert run("usage", "--reads").split("\t")[1:3] == ["acme/shop", "2"]
    assert "Value not found" in run("values", "delete", "team", "none", *here, code=1)
    assert run("values", "delete", "team", "lead/now", *here).startswith("team/lead/now deleted: ")
    assert "state: revision 2: The port has changed." in run("projects", "show", *here)
    assert run("projects", "list").split("\t")[:2] == ["acme/shop", "The shop"]
    assert run("projects", "delete", "acme/shop", "--yes") == "3 memories and 0 passages deleted."
    assert "has no state" in run("state", "show", *here, code=1)
    assert run("projects", "doctor", *here) == "Nothing is wrong."
    assert run("projects", "rename", "acme/shop", "acme/tea") == "acme/tea has 4 memories and 0 passages."
    here = ("--namespace", "acme/tea")
    run("values", "set", "team", "lead/now", "Ada", *here)
    run("values", "set", "team", "lead/now", "Eve", "--namespace", "old")
    merged = run("projects", "merge", "old", "acme/tea", "--yes")
    assert merged == "1 memories and 0 passages moved to acme/tea.\n1 older values archived"
    assert run("values", "get", "team", "lead/now", *here) == "Eve"
    assert "Project not found" in run("projects", "merge", "old", "acme/tea", "--yes", code=1)


def test_a_registration_that_is_hidden_looks_like_one_that_is_not_there(om: Run, user: str) -> None:
    def register(app: str, namespace: str, *name: str) -> tuple[int, str, str]:
        told = om("projects", "register", *name, "--user", user, "--app", app, "--namespace", namespace)
        return told.returncode, told.stdout.replace("old1", "new1"), told.stderr.replace("old1", "new1")

    assert register("cursor", "old1", "The secret shop")[0] == 0
    denied = om("grants", "add", "deny", "app", "cursor", "--user", user, "--app", "claude")
    assert denied.returncode == 0, denied.stderr
    for name in ((), ("Mine",)):
        taken, free = register("claude", "old1", *name), register("claude", "new1", *name)
        assert taken == free
        assert taken == (0, f"new1: {name[0] if name else 'new1'}\n", "")


@pytest.mark.slow
def test_a_project_is_shared_through_a_folder(om: Run, user: str, tmp_path: Path) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        told = om(*arguments, "--user", user)
        assert told.returncode == code, told.stderr
        return told.stdout.strip() if code == 0 else told.stderr.strip()

    folder = str(tmp_path / "mem-share")
    mine, theirs = ("--namespace", "mine"), ("--namespace", "theirs")
    assert "manifest.json" in run("share", "import", "--in", folder, *theirs, code=2)
    run("values", "set", "team", "lead", "Zoe", *mine)
    run("state", "save", "It begins.", "--state", '{"port": 6432}', *mine)
    assert run("share", "export", "--out", folder, *mine) == f"2 memories and 0 links written to {folder}."
    names = {"README.md", "links.jsonl", "manifest.json", "memories.jsonl", "state.json"}
    assert {file.name for file in Path(folder).iterdir()} == names
    before = {file.name: file.read_bytes() for file in Path(folder).iterdir()}
    run("share", "export", "--out", folder, *mine)
    assert {file.name: file.read_bytes() for file in Path(folder).iterdir()} == before
    told = run("share", "import", "--in", folder, "--yes", *theirs)
    assert told == "2 imported, 0 updated, 0 unchanged, 0 deleted, 0 kept; 0 new links. State saved."
    told = run("share", "import", "--in", folder, "--yes", "--replace", *theirs)
    assert told == "0 imported, 0 updated, 2 unchanged, 0 deleted, 0 kept; 0 new links. State unchanged."
    assert run("values", "get", "team", "lead", *theirs) == "Zoe"
    (tmp_path / "mem-share" / "memories.jsonl").write_text("{}\nno json\n")
    assert "memories.jsonl, line 2: must be JSON" in run("share", "import", "--in", folder, "--yes", *theirs, code=2)


def test_the_doctor_of_a_project_knows_its_folder(om: Run, user: str, tmp_path: Path) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        told = om(*arguments, "--user", user, cwd=tmp_path)
        assert told.returncode == code, told.stderr + told.stdout
        return told.stdout.strip()

    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
    (tmp_path / "a.md").write_text("# One\n")
    run("ingest", ".")
    run("state", "save", "It begins.", "--state", "{}")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "two")
    (tmp_path / "a.md").write_text("# Two\n")
    told = run("projects", "doctor", code=1).splitlines()
    assert told[0].startswith("1 commits that no client has compared")
    assert told[1].startswith("1 files differ")
    told = run("projects", "doctor", "--repair", code=1).splitlines()
    assert [line[:14] for line in told] == ["1 files differ"]
    run("ingest", ".")
    assert run("projects", "doctor") == "Nothing is wrong."


@pytest.mark.parametrize("name", ["", "Downloads", "Documents"])
def test_a_folder_for_everything_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    home = tmp_path / "ada"
    folder = home / name
    folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    assert project.namespace(str(folder)) is None
    (folder / "notes").mkdir()
    assert project.namespace(str(folder / "notes")) == "notes"
    git(folder, "init", "-q")
    assert project.namespace(str(folder)) == (name or "ada")
