"""The project of a folder, as the namespace of its memories. Imports little: see `openmemory.cli.hook`."""

from __future__ import annotations

import os

NAMESPACE_FILE = ".openmemory"
"""A file in a project whose first line names its namespace."""


def namespace(folder: str) -> str | None:
    """The namespace of the project that a folder belongs to. None if it is no project: a home, or the root.

    The first of: the first line of `.openmemory` in the folder or above it, up to the root of its Git repository; the
    path of that repository's remote, such as `owner/name`; the name of the repository's folder, or of the folder.
    """
    folder = os.path.abspath(folder)
    root = repository(folder)
    at = folder
    while True:
        if named := _first_line(os.path.join(at, NAMESPACE_FILE)):
            return named
        if root is None or at == root:
            break
        at = os.path.dirname(at)
    if root is not None and (remote := _remote(root)):
        return remote
    if root is None and folder == os.path.abspath(os.path.expanduser("~")):
        return None
    return os.path.basename(root or folder) or None


def described(folder: str) -> dict[str, str]:
    """The project of a folder: its root, and of a Git repository the remote, the branch and the commit."""
    root = repository(os.path.abspath(folder))
    if root is None:
        return {"root": os.path.abspath(folder)}
    found: dict[str, str | None] = {"root": root, "repo": without_credentials(_remote_url(root) or "")}
    git, shared = _work_folder(root), _git_folder(root)
    head = _first_line(os.path.join(git, "HEAD"))
    if head.startswith("ref: "):
        ref = head[5:].strip()
        found["branch"] = ref.removeprefix("refs/heads/")
        head = _first_line(os.path.join(shared, ref)) or _packed(shared, ref)
    found["head"] = head if len(head) in (40, 64) and set(head) <= set("0123456789abcdef") else None
    return {name: value for name, value in found.items() if value}


def without_credentials(url: str) -> str:
    """A URL without its user and password."""
    scheme, found, rest = url.partition("://")
    if not found:
        return url
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _packed(git: str, ref: str) -> str:
    lines = (line.split(" ") for line in _lines(os.path.join(git, "packed-refs")))
    return next((parts[0] for parts in lines if len(parts) == 2 and parts[1] == ref), "")


def here(given: str | None) -> str:
    """The namespace that an option names, otherwise that of the working folder."""
    return given or namespace(os.getcwd()) or "default"


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
    scheme, found, rest = url.partition("://")
    if found:
        host, _, path = rest.partition("/")
        if scheme == "file":
            return None
    else:
        host, found, path = url.partition(":")  # git@host:owner/name.git
        if not found or "/" in host or len(host) == 1:
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
        key, found, value = line.partition("=")
        if found and key.strip().lower() == "url" and section.startswith('remote "'):
            urls.setdefault(section[8:].rstrip('"'), value.strip().strip('"'))
    return urls.get("origin") or next(iter(urls.values()), None)


def _work_folder(root: str) -> str:
    """The folder with what Git knows of this working tree."""
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
    try:
        with open(path, encoding="utf-8") as file:
            return [line.strip() for line in file.read(100_000).splitlines()]
    except (OSError, UnicodeDecodeError):
        return []
