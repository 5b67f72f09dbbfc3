"""The project of a folder, as the namespace of its memories. Imports little: see `openmemory.doors.cli.hook`."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from openmemory.doors.cli.confirmed import confirmed

NAMESPACE_FILE = ".openmemory"
"""A file in a project whose first line names its namespace."""

LONGEST = 256
"""The characters that a name in that file may have."""

MIXED = frozenset(("Desktop", "Documents", "Downloads", "Music", "Pictures", "Public", "Templates", "Videos"))
"""Folders of a home that systems make for files of every kind. Without Git, such a folder is no project."""

UNCONFIRMED = (
    f"A file {NAMESPACE_FILE} in this folder names another project. It comes with the files, so it is not used before"
    " the user confirms it: `openmemory projects trust`, in a terminal in this folder, shows the name and asks."
)
"""A note for assistants. It does not repeat the name, which somebody else may have written."""


class Claim(NamedTuple):
    """A project that a file names, and the folder of that file."""

    folder: str
    namespace: str


class FolderProject(NamedTuple):
    """The project of a folder, and one that a file in it names but the user has not confirmed."""

    namespace: str | None
    unconfirmed: Claim | None = None


def of_folder(folder: str) -> FolderProject:
    """The project that a folder belongs to. Without a namespace, it is none: a home, one of its `MIXED` folders, or the
    root.

    The namespace is the first of: the first line of `.openmemory` in the folder or above it, up to the root of its Git
    repository, if the user has confirmed it for the folder of that file; the path of that repository's remote, such as
    `owner/name`; the name of the repository's folder, or of the folder.
    """
    folder = os.path.realpath(folder)
    root = repository(folder)
    own = _own_name(folder, root)
    unconfirmed = None
    for at in _upward(folder, root):
        if (namespace := read_claim(at)) is None:
            continue
        if namespace == own or confirmed(at) == namespace:
            return FolderProject(namespace, unconfirmed)
        unconfirmed = unconfirmed or Claim(at, namespace)
    return FolderProject(own, unconfirmed)


def namespace(folder: str) -> str | None:
    """The namespace of the project that a folder belongs to. None if it is no project."""
    return of_folder(folder).namespace


def read_claim(folder: str) -> str | None:
    """The name in the `.openmemory` of exactly this folder. None if it is no plain file or the name is none."""
    line = _beginning(os.path.join(folder, NAMESPACE_FILE), 5 * LONGEST, links=False).partition(b"\n")[0]
    try:
        name = line.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        return None
    return name if name and len(name) <= LONGEST and name.isprintable() else None


def _upward(folder: str, root: str | None) -> Iterator[str]:
    """The folder and those above it, up to the root of its repository."""
    yield folder
    while root is not None and folder != root:
        folder = os.path.dirname(folder)
        yield folder


def _own_name(folder: str, root: str | None) -> str | None:
    """The name of a project of which no file names one."""
    if root is not None and (remote := _remote(root)):
        return remote
    home = os.path.realpath(os.path.expanduser("~"))
    if root is None and folder in (home, *(os.path.join(home, name) for name in MIXED)):
        return None
    return os.path.basename(root or folder) or None


def describe(folder: str) -> dict[str, str]:
    """The project of a folder: its root, and of a Git repository the remote, the branch and the commit."""
    root = repository(os.path.abspath(folder))
    if root is None:
        return {"root": os.path.abspath(folder)}
    fields: dict[str, str | None] = {"root": root, "repo": without_credentials(_remote_url(root) or "")}
    git, shared = _work_folder(root), _git_folder(root)
    head = _first_line(os.path.join(git, "HEAD"))
    if head.startswith("ref: "):
        ref = head[5:].strip()
        fields["branch"] = ref.removeprefix("refs/heads/")
        inside = ref.startswith("refs/") and ".." not in ref.split("/")
        head = (_first_line(os.path.join(shared, ref)) if inside else "") or _read_packed_ref(shared, ref)
    fields["head"] = head if _is_commit(head) else None
    if fields["head"] is None:
        # Its references are in no files that can be read here: it has another format, or no commit yet.
        fields |= _read_git(root)
    return {name: value for name, value in fields.items() if value}


def _is_commit(name: str) -> bool:
    return len(name) in (40, 64) and set(name) <= set("0123456789abcdef")


def _read_git(root: str) -> dict[str, str | None]:
    """The branch and the commit that Git reports; what it does not report is left out or None."""
    from pathlib import Path

    from openmemory.doors.cli.git import GitError, git

    fields: dict[str, str | None] = {}
    for name, *question in (("branch", "symbolic-ref", "HEAD"), ("head", "rev-parse", "--verify", "HEAD^{commit}")):
        try:
            fields[name] = (git(Path(root), *question) or "").strip().removeprefix("refs/heads/")
        except GitError:  # no branch is checked out, or it has no commit yet
            fields[name] = None
    return fields


def without_credentials(url: str) -> str:
    """A URL without its user and password."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _read_packed_ref(git: str, ref: str) -> str:
    lines = (line.split(" ") for line in _lines(os.path.join(git, "packed-refs")))
    return next((parts[0] for parts in lines if len(parts) == 2 and parts[1] == ref), "")


def repository(folder: str) -> str | None:
    """The root of the Git repository that a folder lies in, or None."""
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def owner_and_name(url: str) -> str | None:
    """The path of a remote on a server, without `.git`. None for a remote on this machine."""
    scheme, separator, rest = url.partition("://")
    if separator:
        host, _, path = rest.partition("/")
        if scheme == "file":
            return None
    else:
        host, separator, path = url.partition(":")  # git@host:owner/name.git
        if not separator or "/" in host or len(host) == 1:
            return None
    path = path.strip("/").removesuffix(".git")
    return path if host and path else None


def _remote(root: str) -> str | None:
    """The path of the repository's `origin`, or of its first remote."""
    url = _remote_url(root)
    return None if url is None else owner_and_name(url)


def _remote_url(root: str) -> str | None:
    """The URL of the repository's `origin`, or of its first remote. Git itself would take longer to start."""
    urls: dict[str, str] = {}
    section = ""
    for line in _lines(os.path.join(_git_folder(root), "config")):
        if line.startswith("["):
            section = line.partition("]")[0][1:]
        key, separator, value = line.partition("=")
        if separator and key.strip().lower() == "url" and section.startswith('remote "'):
            urls.setdefault(section[8:].rstrip('"'), value.strip().strip('"'))
    return urls.get("origin") or next(iter(urls.values()), None)


def _work_folder(root: str) -> str:
    """The folder in which Git keeps the state of this working tree."""
    path = os.path.join(root, ".git")
    return path if os.path.isdir(path) else os.path.join(root, _first_line(path).removeprefix("gitdir:").strip())


def _git_folder(root: str) -> str:
    """The folder with the repository's configuration: of a worktree, that of the main one."""
    path = _work_folder(root)
    common = _first_line(os.path.join(path, "commondir"))
    return os.path.join(path, common) if common else path


def _first_line(path: str) -> str:
    return next(iter(_lines(path)), "")


def _lines(path: str) -> list[str]:
    return [line.strip() for line in _beginning(path, 100_000).decode(errors="replace").splitlines()]


def _beginning(path: str, limit: int, *, links: bool = True) -> bytes:
    """The beginning of a plain file; nothing if it is none. `links`: a link is followed.

    It opens without waiting, because a pipe would hold up its reader for ever.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))
    except (OSError, ValueError):
        return b""
    try:
        return os.read(descriptor, limit) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)
