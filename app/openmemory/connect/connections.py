"""Connects assistants and disconnects them: one entry in one file each, with a backup beside it."""

from __future__ import annotations

import difflib
import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from openmemory.connect.clients import AssistantClient, ServerAddress
from openmemory.connect.formats import FormatError, edited
from openmemory.errors import Invalid
from openmemory.resilience.atomic_files import replacing

_BACKUP = ".before-openmemory"
_MAX_FILE_BYTES = 50_000_000


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of one assistant's configuration. None as a text means that there is no file."""

    client: AssistantClient
    file: Path
    before: str | None
    after: str | None

    @property
    def needed(self) -> bool:
        """Returns True if the change makes a difference."""
        return self.before != self.after or self.exposed

    @property
    def exposed(self) -> bool:
        """Returns True if the file holds a key of ours afterwards, and others may read the file now."""
        ours = None if self.after is None else _entry(self.client, self.file, self.after)
        has_key = any(isinstance(part, dict) and part for part in (ours or {}).values())
        return has_key and os.name != "nt" and self.file.exists() and bool(self.file.stat().st_mode & 0o077)

    @property
    def connects(self) -> bool:
        """Returns True if our entry is in the file afterwards."""
        return self.after is not None and _entry(self.client, self.file, self.after) is not None

    @property
    def next_step(self) -> str:
        """The next step of the user, before the assistant sees the change."""
        removal = self.client.after_removal
        return self.client.then if self.connects or removal is None else removal

    def diff(self) -> str:
        """The change as a unified diff. Headers and variables of our entries are masked, because they hold keys."""
        texts = [text or "" for text in (self.before, self.after)]
        before, after = (text.splitlines(keepends=True) for text in texts)
        lines = difflib.unified_diff(before, after, str(self.file), str(self.file), n=2)
        masked = "".join(line if line.endswith("\n") else line + "\n" for line in lines)
        for text in texts:
            for part in (_entry(self.client, self.file, text) or {}).values():
                for secret in part.values() if isinstance(part, dict) else ():
                    masked = masked.replace(str(secret), "***")
        return masked


def connecting(client: AssistantClient, server: ServerAddress, file: Path) -> FileChange:
    """Plans to add our entry to the file, or to replace it.

    Raises:
        Invalid: the assistant cannot use this server, or its file cannot be edited safely.
    """
    if server.url and client.remote is None:
        raise Invalid(client.app, f"{client.title} reaches no service by URL")
    before = _read(client, file)
    return FileChange(client, file, before, _edit(client, file, before or "", server))


def disconnecting(client: AssistantClient, file: Path) -> FileChange:
    """Plans to take our entry out. A file that did not change since it was connected becomes what it was before.

    Raises:
        Invalid: the file cannot be edited safely.
    """
    before = _read(client, file)
    if before is None or _entry(client, file, before) is None:
        return FileChange(client, file, before, before)
    original = _read(client, _backup(file))
    for candidate in (original, None):
        if _is_connected_from(client, file, candidate or "", before):
            return FileChange(client, file, before, candidate)
    after = _edit(client, file, before, None)
    section = client.path[0]
    if client.kind.loads(after).get(section) == {} and section not in (client.kind.loads(original or "") or {}):
        after = _without_section(client, after)
    return FileChange(client, file, before, after)


def entry(client: AssistantClient, file: Path) -> dict[str, object] | None:
    """Our entry in a file, or None.

    Raises:
        Invalid: the file cannot be read.
    """
    text = _read(client, file)
    return None if text is None else _entry(client, file, text)


def apply(change: FileChange) -> None:
    """Writes a change. The file is replaced as a whole, and its first state is kept beside it until disconnecting.

    Raises:
        Invalid: the file changed since it was read, or cannot be written.
    """
    if _read(change.client, change.file) != change.before:
        raise Invalid(change.client.app, f"{change.file} has changed meanwhile; try again")
    target = change.file.resolve()  # a link to a file elsewhere stays a link
    try:
        _check_writable(target)
        if change.after is None:
            target.unlink()
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            if change.connects and change.before is not None and not _has_ours(change):
                write_atomically(_backup(change.file), change.before, like=target)
            write_atomically(target, change.after, like=target, private=change.exposed)
        if not change.connects:
            _backup(change.file).unlink(missing_ok=True)
    except OSError as error:
        raise Invalid(change.client.app, f"{change.file} cannot be written: {error.strerror}") from error


def inside(file: Path, folder: Path) -> Path:
    """The same file, of which no link leads out of a folder.

    Raises:
        Invalid: one does.
    """
    target, root = (Path(os.path.realpath(path)) for path in (file, folder))
    if target != root and root not in target.parents:
        raise Invalid(str(file), f"is a link, or behind one, that leads out of {root}: to {target}")
    return file


def _has_ours(change: FileChange) -> bool:
    return change.before is not None and _entry(change.client, change.file, change.before) is not None


def _is_connected_from(client: AssistantClient, file: Path, original: str, now: str) -> bool:
    """Returns True if connecting the original text gives exactly the present one."""
    ours = _entry(client, file, now)
    try:
        return ours is not None and edited(client.kind, original, client.path, ours) == now
    except FormatError:
        return False


def _without_section(client: AssistantClient, text: str) -> str:
    try:
        return edited(client.kind, text, client.path[:1], None)
    except FormatError:
        return text  # an empty section does no harm


def _edit(client: AssistantClient, file: Path, text: str, server: ServerAddress | None) -> str:
    try:
        return edited(client.kind, text, client.path, None if server is None else client.entry(server))
    except FormatError as error:
        raise Invalid(client.app, f"{file} is left as it is: {error}") from error


def _entry(client: AssistantClient, file: Path, text: str) -> dict[str, object] | None:
    try:
        document = client.kind.loads(text)
    except Exception as error:
        raise Invalid(client.app, f"{file} is left as it is: {' '.join(str(error).split())}") from error
    for key in client.path:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else None


def _backup(file: Path) -> Path:
    return file.with_name(file.name + _BACKUP)


def _read(client: AssistantClient, file: Path) -> str | None:
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise Invalid(client.app, f"{file} has more than {_MAX_FILE_BYTES:,} bytes")
        return file.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise Invalid(client.app, f"{file} is left as it is: it is not UTF-8") from error
    except OSError as error:
        raise Invalid(client.app, f"{file} cannot be read: {error.strerror}") from error


def _check_writable(file: Path) -> None:
    # Root could write it, but whoever made it read-only did not want that.
    if file.exists() and not (os.access(file, os.W_OK) and file.stat().st_mode & stat.S_IWUSR):
        raise PermissionError(errno.EACCES, "it is read-only")


def write_atomically(file: Path, text: str, *, like: Path, private: bool = False) -> None:
    """Replaces a file atomically. It gets the mode and owner of `like`, or is for its owner alone if there is none, or
    if it is to be `private`.

    Raises:
        OSError: it cannot be written.
    """
    _check_writable(file)
    with replacing(file, like=like, private=private) as written:
        written.write(text.encode())
