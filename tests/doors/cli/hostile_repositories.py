"""Repositories whose own files name a program, in every way that Git knows, each with a command of Git that runs it."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.warm import clean_environment

_ME = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip
REMOTE = "https://example.com/acme/hostile.git"


def git(folder: Path, *arguments: str, given: str = "", check: bool = True) -> str:
    """Plain Git, as the owner of the machine would type it. Nothing protects it."""
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *arguments],
        cwd=folder, env=clean_environment() | _ME, input=given, capture_output=True, text=True, check=check, timeout=60,
    )  # fmt: skip
    return done.stdout.strip()


@dataclass(frozen=True)
class Hostile:
    """A repository in which plain Git runs a program, which leaves a mark."""

    root: Path
    mark: Path
    below: str
    """The folder in which a person works."""

    @property
    def program(self) -> str:
        return str(self.mark.with_name("program"))

    def config(self, **values: str) -> None:
        """Adds to the repository's own configuration. `__` in a name stands for a dot."""
        for name, value in values.items():
            git(self.root, "config", "--local", name.replace("__", "."), value)

    def marked(self) -> bool:
        """Returns True if the program ran, and forgets it."""
        ran = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        return ran


Build = Callable[[Hostile], None]
Control = Callable[[Hostile], None]
KINDS: dict[str, tuple[Build, Control]] = {}
READERS = (
    "a partial clone",
    "a bare repository",
    "a sparse index",
    "a commit that a partial clone lacks",
    "core.fsmonitor of a Git folder",
)
"""The beginnings of kinds that harm commands which only read. Nothing else is wanted of Git."""


def kind(name: str, control: Control) -> Callable[[Build], Build]:
    """Registers a kind of hostile repository with the use of plain Git that runs its program."""

    def keep(build: Build) -> Build:
        KINDS[name] = build, control
        return build

    return keep


def plainly(*arguments: str, given: str = "", below: bool = False) -> Control:
    """A control: one command of Git."""

    def run(one: Hostile) -> None:
        git(one.root / one.below if below else one.root, *arguments, given=given, check=False)

    return run


def made(folder: Path, name: str) -> Hostile:
    """A new repository of a kind, with two files, a commit and a remote."""
    root = folder / "repository"
    (root / "sub").mkdir(parents=True)
    one = Hostile(root, folder / "mark", "sub")
    Path(one.program).write_text(f"#!/bin/sh\n: > '{one.mark}'\nexit 1\n")
    Path(one.program).chmod(0o755)
    (root / "sub" / "a.md").write_text("# One\n")
    (root / "b.md").write_text("# Two\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "remote", "add", "origin", REMOTE)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "one")
    KINDS[name][0](one)
    one.mark.unlink(missing_ok=True)  # building it may have run it
    return one


def control(one: Hostile, name: str) -> None:
    """Uses plain Git so that the program runs."""
    KINDS[name][1](one)


_LIST = plainly("ls-files", "--others", "--exclude-standard", below=True)


def _partial_clone(one: Hostile, **values: str) -> None:
    """Makes an object missing that Git reads to know what is ignored, and that it would fetch."""
    (one.root / "sub" / ".gitignore").write_text("ignored.md\n")
    git(one.root, "add", "sub/.gitignore")
    git(one.root, "commit", "-q", "-m", "rules")
    name = git(one.root, "rev-parse", ":sub/.gitignore")
    git(one.root, "update-index", "--skip-worktree", "sub/.gitignore")
    (one.root / "sub" / ".gitignore").unlink()
    (one.root / ".git" / "objects" / name[:2] / name[2:]).unlink()
    (one.root / "sub" / "new.md").write_text("# New\n")
    one.config(core__repositoryformatversion="1", extensions__partialClone="origin", remote__origin__promisor="true")
    one.config(**values)


@kind("a partial clone with its own uploadpack", _LIST)
def _uploadpack(one: Hostile) -> None:
    _partial_clone(one, remote__origin__url="/nowhere", remote__origin__uploadpack=one.program)


@kind("a partial clone over core.sshCommand", _LIST)
def _ssh_command(one: Hostile) -> None:
    _partial_clone(one, remote__origin__url="ssh://h/acme/hostile.git", core__sshCommand=one.program)


@kind("a partial clone over ext::", _LIST)
def _ext(one: Hostile) -> None:
    _partial_clone(one, remote__origin__url=f"ext::{one.program} %S", protocol__ext__allow="always")


@kind("a partial clone over core.gitProxy", _LIST)
def _git_proxy(one: Hostile) -> None:
    _partial_clone(one, remote__origin__url="git://h/acme/hostile.git", core__gitProxy=one.program)


@kind("a partial clone whose remote is rewritten", _LIST)
def _instead_of(one: Hostile) -> None:
    _partial_clone(one, protocol__allow="always")
    git(one.root, "config", f"url.ext::{one.program} %S.insteadOf", REMOTE)


@kind("a bare repository among the files of a clone", plainly("status", below=True))
def _embedded_bare(one: Hostile) -> None:
    bare = one.root / "sub"
    git(one.root, "init", "-q", "--bare", "-b", "main", "sub")
    for name, value in (("core.bare", "false"), ("core.worktree", str(bare)), ("core.fsmonitor", one.program)):
        git(one.root, "config", "--file", "sub/config", name, value)


@kind(
    "a bare repository that is a partial clone, among the files of a clone",
    plainly("cat-file", "-e", "1" * 40, below=True),
)
def _embedded_partial(one: Hostile) -> None:
    git(one.root, "init", "-q", "--bare", "-b", "main", "sub")
    values = {
        "core.repositoryformatversion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true",
        "remote.origin.url": "/nowhere", "remote.origin.uploadpack": one.program,
    }  # fmt: skip
    for name, value in values.items():
        git(one.root, "config", "--file", "sub/config", name, value)


@kind("core.fsmonitor", plainly("status"))
def _fsmonitor(one: Hostile) -> None:
    one.config(core__fsmonitor=one.program)


@kind("core.fsmonitor through include.path", plainly("status"))
def _include(one: Hostile) -> None:
    (one.root / "more").write_text(f"[core]\n\tfsmonitor = {one.program}\n")
    one.config(include__path="../more")


@kind("core.fsmonitor through includeIf", plainly("status"))
def _include_if(one: Hostile) -> None:
    (one.root / "more").write_text(f"[core]\n\tfsmonitor = {one.program}\n")
    git(one.root, "config", "includeIf.onbranch:**.path", "../more")


@kind("core.fsmonitor of a Git folder that a file names", plainly("status"))
def _gitfile(one: Hostile) -> None:
    one.config(core__fsmonitor=one.program)
    (one.root / ".git").rename(one.root / "elsewhere")
    (one.root / ".git").write_text("gitdir: elsewhere\n")


@kind("core.fsmonitor through config.worktree", plainly("status"))
def _worktree_config(one: Hostile) -> None:
    one.config(core__repositoryformatversion="1", extensions__worktreeConfig="true")
    git(one.root, "config", "--worktree", "core.fsmonitor", one.program)


@kind("a hook", plainly("update-index", "--refresh", "--force-write-index"))
def _hook(one: Hostile) -> None:
    hooks = one.root / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "post-checkout", "reference-transaction", "fsmonitor-watchman", "pre-auto-gc"):
        (hooks / name).symlink_to(one.program)


@kind("a hook through core.hooksPath", plainly("update-index", "--refresh", "--force-write-index"))
def _hooks_path(one: Hostile) -> None:
    (one.root / "hooks").mkdir()
    (one.root / "hooks" / "post-index-change").symlink_to(one.program)
    one.config(core__hooksPath="hooks")


@kind("a filter", plainly("diff"))
def _filter(one: Hostile) -> None:
    (one.root / ".gitattributes").write_text("* filter=own\n")
    (one.root / "b.md").write_text("# Three\n")
    one.config(filter__own__clean=one.program, filter__own__smudge=one.program, filter__own__required="true")


@kind("a filter that stays", plainly("diff"))
def _filter_process(one: Hostile) -> None:
    (one.root / ".git" / "info").mkdir(exist_ok=True)
    (one.root / ".git" / "info" / "attributes").write_text("* filter=own\n")
    (one.root / "b.md").write_text("# Three\n")
    one.config(filter__own__process=one.program)


@kind("a filter through core.attributesFile", plainly("diff"))
def _attributes_file(one: Hostile) -> None:
    (one.root / "rules").write_text("* filter=own\n")
    (one.root / "b.md").write_text("# Three\n")
    one.config(core__attributesFile="rules", filter__own__clean=one.program)


@kind("a text conversion", plainly("diff"))
def _textconv(one: Hostile) -> None:
    (one.root / ".gitattributes").write_text("* diff=own\n")
    (one.root / "b.md").write_text("# Three\n")
    one.config(diff__own__textconv=one.program)


@kind("diff.external", plainly("diff"))
def _diff_external(one: Hostile) -> None:
    (one.root / "b.md").write_text("# Three\n")
    one.config(diff__external=one.program)


@kind("the command of a diff driver", plainly("diff"))
def _diff_command(one: Hostile) -> None:
    (one.root / ".gitattributes").write_text("* diff=own\n")
    (one.root / "b.md").write_text("# Three\n")
    one.config(diff__own__command=one.program)


def _merge(one: Hostile) -> None:
    git(one.root, "merge", "--no-edit", "side", check=False)


@kind("a merge driver", _merge)
def _merge_driver(one: Hostile) -> None:
    (one.root / ".gitattributes").write_text("b.md merge=own\n")
    git(one.root, "add", "-A")
    git(one.root, "commit", "-q", "-m", "attributes")
    for branch in ("side", "main"):
        git(one.root, "checkout", "-q", *(("-b",) if branch == "side" else ()), branch)
        (one.root / "b.md").write_text(f"# Of {branch}\n")
        git(one.root, "commit", "-q", "-a", "-m", branch)
    one.config(merge__own__driver=one.program)


@kind("an alias", plainly("greet"))
def _alias(one: Hostile) -> None:
    one.config(
        **{f"alias__{name}": f"!{one.program}" for name in ("greet", "ls-files", "cat-file", "rev-list", "init")}
    )


@kind("gpg.program", plainly("log"))
def _gpg(one: Hostile) -> None:
    signed = git(one.root, "cat-file", "commit", "HEAD").replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n -----END PGP SIGNATURE-----\n\n", 1
    )
    git(one.root, "reset", "-q", git(one.root, "hash-object", "-t", "commit", "-w", "--stdin", given=signed + "\n"))
    one.config(gpg__program=one.program, log__showSignature="true")


@kind("a credential helper", plainly("credential", "fill", given="protocol=https\nhost=h\n\n"))
def _credential(one: Hostile) -> None:
    _partial_clone(one, remote__origin__url="https://localhost:1/a.git", credential__helper=f"!{one.program}")


@kind("core.askPass", plainly("credential", "fill", given="protocol=https\nhost=h\n\n"))
def _ask_pass(one: Hostile) -> None:
    one.config(core__askPass=one.program)


def _on_a_terminal(one: Hostile) -> None:
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            ["git", "ls-files"], cwd=one.root, env=clean_environment() | _ME, stdout=theirs, stderr=theirs,
            stdin=subprocess.DEVNULL, check=False, timeout=60,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)


@kind("a pager", _on_a_terminal)
def _pager(one: Hostile) -> None:
    names = ("ls-files", "cat-file", "rev-list", "check-ignore", "rev-parse")
    one.config(core__pager=one.program, **{f"pager__{name}": one.program for name in names})


@kind("core.editor", plainly("commit", "--allow-empty"))
def _editor(one: Hostile) -> None:
    one.config(core__editor=one.program, sequence__editor=one.program)


@kind("the command of a trailer", plainly("interpret-trailers", "--trailer", "own=x", given="text\n"))
def _trailer(one: Hostile) -> None:
    one.config(trailer__own__cmd=one.program)


@kind("the update of a submodule", plainly("submodule", "update"))
def _submodule(one: Hostile) -> None:
    git(one.root, "submodule", "--quiet", "add", str(one.root), "module")
    git(one.root, "commit", "-q", "-m", "module")
    git(one.root / "module", "commit", "-q", "--allow-empty", "-m", "elsewhere")
    one.config(submodule__module__update=f"!{one.program}")


@kind("core.fsmonitor of a submodule", plainly("status"))
def _submodule_monitor(one: Hostile) -> None:
    git(one.root, "submodule", "--quiet", "add", str(one.root), "module")
    git(one.root / "module", "config", "core.fsmonitor", one.program)


@kind("the command of an archive", plainly("archive", "--format=own", "HEAD"))
def _archive(one: Hostile) -> None:
    one.config(tar__own__command=one.program)


@kind("a sparse index in a partial clone", plainly("ls-files"))
def _sparse_index(one: Hostile) -> None:
    git(one.root, "sparse-checkout", "set", "--cone", "--sparse-index", "sub")
    (one.root / "aside").mkdir()
    (one.root / "aside" / "c.md").write_text("# Four\n")
    git(one.root, "add", "--sparse", "aside/c.md")
    git(one.root, "commit", "-q", "-m", "aside")
    git(one.root, "sparse-checkout", "reapply")
    tree = git(one.root, "rev-parse", "HEAD:aside")
    (one.root / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    one.config(core__repositoryformatversion="1", extensions__partialClone="origin", remote__origin__promisor="true")
    one.config(remote__origin__url="/nowhere", remote__origin__uploadpack=one.program)


@kind("a commit that a partial clone lacks", plainly("cat-file", "-e", "HEAD~1"))
def _missing_commit(one: Hostile) -> None:
    parent = git(one.root, "rev-parse", "HEAD")
    git(one.root, "commit", "-q", "--allow-empty", "-m", "two")
    (one.root / ".git" / "objects" / parent[:2] / parent[2:]).unlink()
    one.config(core__repositoryformatversion="1", extensions__partialClone="origin", remote__origin__promisor="true")
    one.config(remote__origin__url="/nowhere", remote__origin__uploadpack=one.program)
