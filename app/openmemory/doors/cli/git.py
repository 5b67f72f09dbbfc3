"""Asks Git about the repository of a folder, without running anything that the repository names."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

from openmemory.errors import OpenMemoryError

_SECONDS = 60.0
"""The time that one call may take."""

_SOON = 2.0
"""The time after which a call is slow. Most end within a tenth of a second."""

_READ = {".gitignore", ".gitattributes", ".gitmodules", ".git"}
"""The files of a working tree that Git reads for itself."""

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


class GitError(OpenMemoryError):
    """Git is installed, and cannot answer a question about this repository."""

    code = "git_failed"


def git(folder: Path, *arguments: str, data: bytes = b"") -> str | None:
    """Runs Git in a folder and returns its output; None if Git is not there. Nothing else starts Git.

    Only commands that read the repository and convert no contents are safe: filters and text conversions of a
    repository are programs. A folder above this one is no repository of it.

    Raises:
        GitError: it refused, or took too long.
    """
    from openmemory.config.settings import environment  # imports pydantic

    path = os.pathsep.join(filter(os.path.isabs, environment().get("PATH", os.defpath).split(os.pathsep)))
    if (program := shutil.which("git", path=path)) is None:
        return None
    # What the caller's Git is set to, for example in a hook of a commit, is about another repository.
    variables = {name: value for name, value in environment().items() if not name.startswith("GIT_")}
    own = {"PATH": path, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    try:
        with subprocess.Popen(  # noqa: S603 - the program is fixed
            [program, *_OPTIONS, "-C", str(folder), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables | _ENVIRONMENT | own,
            cwd="/",
        ) as running:  # fmt: skip
            output, problem = _communicate(running, folder, data)
    except subprocess.TimeoutExpired:
        raise GitError(f"Git did not answer within {_SECONDS:.0f} seconds about {folder}.") from None
    except _Blocked as blocked:
        raise GitError(f"Git cannot read {folder}: {blocked} is a pipe, and Git would wait for its writer.") from None
    except OSError as error:
        raise GitError(f"{program} cannot be started: {error.strerror}") from None
    code = running.returncode
    if code and not (code == 1 and "check-ignore" in arguments):  # none is ignored
        message = problem.decode(errors="replace").strip().partition("\n")[0]
        raise GitError(f"Git cannot read {folder}: {message or f'exit code {code}'}")
    return output.decode(errors="surrogateescape")


class _Blocked(Exception):
    """A file for whose writer Git waits."""


def _communicate(running: subprocess.Popen[bytes], folder: Path, data: bytes) -> tuple[bytes, bytes]:
    """The output and the errors of Git, once it has ended. Git that takes longer than most may wait at a pipe."""
    try:
        try:
            return running.communicate(data, timeout=min(_SOON, _SECONDS))
        except subprocess.TimeoutExpired:
            until = time.monotonic() + max(0.0, _SECONDS - _SOON)
            if (pipe := _pipe(folder, until)) is not None:
                raise _Blocked(pipe) from None
            return running.communicate(timeout=max(0.0, until - time.monotonic()))
    except BaseException:
        running.kill()
        raise


def _pipe(folder: Path, until: float) -> str | None:
    """The first pipe among the files that Git opens to list a folder: those that say what is ignored, and its own.

    It looks until a time of the monotonic clock.
    """
    for parent, folders, names in os.walk(folder):
        own = ".git" in Path(parent).parts[len(folder.parts) :]
        for name in names:
            path = Path(parent, name)
            if (own or name in _READ) and stat.S_ISFIFO(_mode(path)):
                return str(path)
        if own:  # the contents of commits are in files that Git has written
            folders[:] = [one for one in folders if one != "objects"]
        if time.monotonic() > until:
            break
    return None


def _mode(path: Path) -> int:
    """Returns the mode of a path; 0 if nothing is there. Links are followed, as Git does in its own folder."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0
