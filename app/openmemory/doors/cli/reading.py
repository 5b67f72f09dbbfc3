"""Reads a folder for `openmemory ingest`: which of its files are text that may leave the machine."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from openmemory.doors.cli import project
from openmemory.doors.cli.git import git
from openmemory.errors import Invalid
from openmemory.sources.cutting import language_of
from openmemory.sources.files import MAX_TEXT, checked_path

MAX_BYTES = 2 * MAX_TEXT

_SKIPPED_FOLDERS = {
    "node_modules", "venv", "dist", "build", "out", "vendor", "target", "bower_components", "site-packages",
    "__pycache__",
}  # fmt: skip
"""Folders that are left out where Git is not used: those that tools make."""

IGNORE_FILE = ".memignore"

_SECRET = re.compile(
    r"\.env(\..*)?|.*\.(pem|key|p12|pfx|jks|keystore|kdbx|asc)|id_(rsa|dsa|ecdsa|ed25519)|\.netrc|\.npmrc|\.pypirc",
    re.IGNORECASE,
)
"""Names of files that hold credentials. They never leave the machine."""


@dataclass(slots=True)
class Folder:
    """A folder to read. `root` is what paths are relative to: the root of the repository, or the folder itself."""

    root: Path
    below: str
    """The path of the folder below the root, or an empty text."""
    skipped: Counter[str] = field(default_factory=Counter)
    """The number of files that are left out, by reason."""

    @classmethod
    def of(cls, path: Path) -> Folder:
        """The folder at a path.

        Raises:
            Invalid: there is none.
        """
        path = Path(os.path.realpath(path))
        if not path.is_dir():
            raise Invalid("PATH", f"must be a folder, not {str(path)!r}")
        root = Path(project.repository(str(path)) or path)
        return cls(root, "" if root == path else path.relative_to(root).as_posix())

    def files(self) -> Iterator[str]:
        """The paths of the files that may be read, in order. Git reports which are ignored, where it is used.

        Raises:
            Invalid: there is a .memignore, and no Git that reads it.
            GitError: Git refuses the repository, so that the ignored files are unknown.
        """
        paths = sorted(set(self._list_files()))
        unwanted = self._excluded_paths(paths)
        for path in paths:
            if path in unwanted:
                self.skipped["in .memignore"] += 1
            elif reason := self._unfit(path):
                self.skipped[reason] += 1
            else:
                yield path

    def read(self, path: str) -> tuple[str, str] | None:
        """The text of a file and the hash of its bytes. None, and counted, if it is no text or not there any more."""
        try:
            descriptor = os.open(self.root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError
                data = file.read(MAX_BYTES + 1)
        except OSError:
            self.skipped["cannot be read"] += 1
            return None
        text = _text(data)
        if text is None or len(data) > MAX_BYTES or len(text) > MAX_TEXT:
            self.skipped["no text" if text is None else "too large"] += 1
            return None
        return text, hashlib.sha256(data).hexdigest()

    def _list_files(self) -> Iterator[str]:
        if (self.root / ".git").exists():
            below = ["--", self.below] if self.below else []
            # Its configuration may name another working tree.
            here = "--literal-pathspecs", "--work-tree", str(self.root)
            output = git(self.root, *here, "ls-files", "-z", "--cached", "--others", "--exclude-standard", *below)
            if output is not None:
                yield from filter(None, output.split("\0"))
                return
        start = self.root / self.below
        for parent, folders, names in os.walk(start):
            folders[:] = [one for one in folders if not one.startswith(".") and one not in _SKIPPED_FOLDERS]
            for name in names:
                yield (Path(parent) / name).relative_to(self.root).as_posix()

    def _excluded_paths(self, paths: Sequence[str]) -> set[str]:
        """The files that `.memignore` at the root names, in the notation of .gitignore."""
        if not (self.root / IGNORE_FILE).is_file() or not paths:
            return set()
        with tempfile.TemporaryDirectory() as empty:
            where = ("--git-dir", empty, "--work-tree", str(self.root))
            data = "\0".join(paths).encode(errors="surrogateescape")
            ignoring = ("-c", f"core.excludesFile={self.root / IGNORE_FILE}")
            if git(Path(empty), "init", "--quiet", "--bare", "--template=") is not None:
                output = git(self.root, *ignoring, *where, "check-ignore", "--no-index", "-z", "--stdin", data=data)
                if output is not None:
                    return {path for path in output.split("\0") if path}
        raise Invalid(IGNORE_FILE, "is read by Git, which must be installed")

    def _unfit(self, path: str) -> str | None:
        name = path.rpartition("/")[2]
        if _SECRET.fullmatch(name):
            return "may hold a credential"
        if language_of(path) is None:
            return "of an unknown kind"
        try:
            checked_path(path, new=True)
            status = os.lstat(self.root / path)
        except (Invalid, OSError, ValueError):
            return "cannot be read"
        if not stat.S_ISREG(status.st_mode):
            return "is no plain file"
        if os.path.realpath(self.root / path) != str(self.root / path):
            return "is behind a link"
        return "too large" if status.st_size > MAX_BYTES else None


def _text(data: bytes) -> str | None:
    """The text of a file: UTF-8, or UTF-16 with its mark. None if it is neither."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    elif b"\0" in data[:8_192]:
        return None
    else:
        encoding = "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
