"""The commit that is checked out in a folder, and which others are in its history."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from openmemory.doors.cli import project
from openmemory.doors.cli.git import GitError, git


class Checkout:
    """The repository of a folder, and the commit that is checked out."""

    def __init__(self, folder: str) -> None:
        self._folder = str(Path(folder).absolute())

    def head(self) -> str | None:
        """The commit that is checked out; None without a repository or before its first commit."""
        return self.describe().get("head")

    def describe(self) -> dict[str, str]:
        """The commit (`head`) and the branch that are checked out; without those that there are not."""
        description = project.describe(self._folder)
        return {name: description[name] for name in ("head", "branch") if name in description}

    def compare(self, head: str, commits: Sequence[str]) -> tuple[list[str], list[str]]:
        """Returns two lists: the commits in the history of `head`, and the other commits.

        Both are empty if Git gives no answer. In a shallow clone, the second is always empty.
        """
        try:
            root = project.repository(self._folder)
            return ([], []) if root is None else self._compare(Path(root), head, commits)
        except GitError:
            return [], []

    @staticmethod
    def _compare(folder: Path, head: str, commits: Sequence[str]) -> tuple[list[str], list[str]]:
        output = git(folder, "cat-file", "--batch-check=%(objectname) %(objecttype)", data=_lines([*commits, head]))
        if output is None:
            return [], []
        local_commits = {line.partition(" ")[0] for line in output.splitlines() if line.endswith(" commit")}
        there = [one for one in commits if one in local_commits]
        outside = (
            git(folder, "rev-list", "--stdin", data=_lines([*there, f"^{head}"])) if head in local_commits else None
        )
        if outside is None:
            return [], []
        apart = set(outside.split())
        reachable = [one for one in there if one not in apart]
        if (git(folder, "rev-parse", "--is-shallow-repository") or "").strip() != "false":
            return reachable, []
        return reachable, [one for one in commits if one not in local_commits or one in apart]


def _lines(values: Sequence[str]) -> bytes:
    return "".join(f"{one}\n" for one in values).encode()
