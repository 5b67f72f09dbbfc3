"""Asks Git about the repository of a folder, without running anything that the repository names."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from openmemory.cli import project
from openmemory.config.settings import environment
from openmemory.errors import OpenMemoryError

_SECONDS = 60.0
"""The time that one call may take."""

_OPTIONS = (
    "--no-pager", "--no-replace-objects", "--no-optional-locks",
    "-c", "safe.bareRepository=explicit",
    "-c", "core.fsmonitor=false",
    "-c", f"core.hooksPath={os.devnull}",
    "-c", "credential.helper=",
)  # fmt: skip
"""They win over a repository's own settings, which must not start programs."""

_ENVIRONMENT = {
    # Objects that a partial clone lacks are not fetched: the repository names the program that would fetch them.
    "GIT_NO_LAZY_FETCH": "1",
    # Older versions fetch, but over no protocol.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "LC_ALL": "C",
}


class GitFailed(OpenMemoryError):
    """Git is there, and cannot tell what it was asked about this repository."""

    code = "git_failed"


def git(folder: Path, *arguments: str, given: bytes = b"") -> str | None:
    """Runs Git in a folder and returns its output; None if Git is not there. Nothing else starts Git.

    Only commands that read the repository and convert no contents are safe: filters and text conversions of a
    repository are programs. A folder above this one is no repository of it.

    Raises:
        GitFailed: it refused, or took too long.
    """
    path = os.pathsep.join(filter(os.path.isabs, environment().get("PATH", os.defpath).split(os.pathsep)))
    if (program := shutil.which("git", path=path)) is None:
        return None
    # What the caller's Git is set to, for example in a hook of a commit, is about another repository.
    kept = {name: value for name, value in environment().items() if not name.startswith("GIT_")}
    own = {"PATH": path, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    try:
        done = subprocess.run(  # noqa: S603 - the program is fixed
            [program, *_OPTIONS, "-C", str(folder), *arguments],
            input=given, capture_output=True, check=False, timeout=_SECONDS, env=kept | _ENVIRONMENT | own, cwd="/",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise GitFailed(f"Git did not answer within {_SECONDS:.0f} seconds about {folder}.") from None
    except OSError as error:
        raise GitFailed(f"{program} cannot be started: {error.strerror}") from None
    if done.returncode and not (done.returncode == 1 and "check-ignore" in arguments):  # none is ignored
        problem = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise GitFailed(f"Git cannot read {folder}: {problem or f'exit code {done.returncode}'}")
    return done.stdout.decode(errors="surrogateescape")


class Checkout:
    """The repository of a folder, and the commit that is checked out."""

    def __init__(self, folder: str) -> None:
        self._folder = str(Path(folder).absolute())

    def head(self) -> str | None:
        """The commit that is checked out; None without a repository or before its first commit."""
        return project.described(self._folder).get("head")

    def compare(self, head: str, commits: Sequence[str]) -> tuple[list[str], list[str]]:
        """Returns two lists: the commits in the history of `head`, and the other commits.

        Both are empty if Git cannot tell. In a shallow clone, the second is always empty.
        """
        try:
            root = project.repository(self._folder)
            return ([], []) if root is None else self._compared(Path(root), head, commits)
        except GitFailed:
            return [], []

    @staticmethod
    def _compared(folder: Path, head: str, commits: Sequence[str]) -> tuple[list[str], list[str]]:
        listed = git(folder, "cat-file", "--batch-check=%(objectname) %(objecttype)", given=_lines([*commits, head]))
        if listed is None:
            return [], []
        known = {line.partition(" ")[0] for line in listed.splitlines() if line.endswith(" commit")}
        there = [one for one in commits if one in known]
        outside = git(folder, "rev-list", "--stdin", given=_lines([*there, f"^{head}"])) if head in known else None
        if outside is None:
            return [], []
        apart = set(outside.split())
        reachable = [one for one in there if one not in apart]
        if (git(folder, "rev-parse", "--is-shallow-repository") or "").strip() != "false":
            return reachable, []
        return reachable, [one for one in commits if one not in known or one in apart]


def _lines(values: Sequence[str]) -> bytes:
    return "".join(f"{one}\n" for one in values).encode()
