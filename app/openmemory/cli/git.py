"""Asks Git about the repository of a folder."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from openmemory.cli import project

_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""A repository's own settings must not start programs."""


def git(folder: Path, *arguments: str, given: bytes = b"") -> str | None:
    """Runs Git and returns its output; None if it is not there, or the folder is no repository."""
    try:
        done = subprocess.run(  # noqa: S603 - the program is fixed
            [*_GIT, "-C", str(folder), *arguments], input=given, capture_output=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    no_match = done.returncode == 1 and "check-ignore" in arguments
    return done.stdout.decode(errors="surrogateescape") if done.returncode == 0 or no_match else None


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
        folder = Path(self._folder)
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
