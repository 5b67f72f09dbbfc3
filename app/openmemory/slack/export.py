"""Reads the export of a workspace: a folder or a ZIP file, as Slack makes them.

    with opened(path) as export:
        for channel in export.channels:
            for day in export.days(channel):
                ...

Nothing is unpacked. Only names that the folder or the ZIP file lists are opened, and links are not followed.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from openmemory.errors import Invalid
from openmemory.slack.schemas import SlackChannel
from openmemory.slack.texts import Person, people_of

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\.json")
_LARGEST = 200_000_000
"""The number of bytes of one file that is read."""
_LISTS = {"channels.json": True, "groups.json": False, "mpims.json": False, "dms.json": False}
"""The lists of channels, and if everybody in the workspace may read those."""


class ExportFiles(Protocol):
    """The files of an export by their paths, which have at most one folder."""

    def names(self) -> list[str]:
        """All paths."""
        ...

    def read(self, name: str) -> bytes:
        """The content of a file."""
        ...


class ExportedChannel(NamedTuple):
    """A channel of an export, with the names of its files in the order of their days."""

    channel: SlackChannel
    files: list[str]


class SlackExport:
    """The channels, people and messages of an export."""

    def __init__(self, files: ExportFiles) -> None:
        self._files = files
        listed = files.names()
        self.people: Mapping[str, Person] = people_of(self._list("users.json") if "users.json" in listed else ())
        lists = [name for name in _LISTS if name in listed]
        if not lists:
            raise Invalid("path", "must be an export of Slack: a folder or a ZIP file with channels.json in it")
        days: dict[str, list[str]] = {}
        for name in sorted(listed):
            folder, slash, file = name.partition("/")
            if slash and _DAY.fullmatch(file):
                days.setdefault(folder, []).append(name)
        self.channels: list[ExportedChannel] = []
        for name in lists:
            for raw in self._list(name):
                if (entry := self._channel(raw, shared=_LISTS[name])) is not None:
                    folder, channel = entry
                    self.channels.append(ExportedChannel(channel, days.pop(folder, [])))
        self.unlisted = sorted(days)
        """Folders of messages of which no list says whose they are. They are not read."""
        self.names = {one.channel.id: one.channel.name for one in self.channels}

    def days(self, channel: ExportedChannel) -> Iterator[list[Any]]:
        """Yields the messages of each day, as JSON.

        Raises:
            Invalid: a file is no list of messages.
        """
        for name in channel.files:
            yield self._list(name)

    def _list(self, name: str) -> list[Any]:
        try:
            value = json.loads(self._files.read(name))
        except (ValueError, RecursionError) as error:
            raise Invalid(name, f"must be JSON: {str(error)[:100]}") from None
        if not isinstance(value, list):
            raise Invalid(name, "must be a list")
        return value

    def _channel(self, raw: Any, *, shared: bool) -> tuple[str, SlackChannel] | None:
        """The folder of a channel, and the channel."""
        if not isinstance(raw, Mapping) or not re.fullmatch(r"[A-Z0-9]{2,30}", id_ := str(raw.get("id"))):
            return None
        created = raw.get("created")
        name = raw.get("name")
        if isinstance(name, str) and name:
            return name, SlackChannel(id_, name[:200], shared, created if isinstance(created, int) else 0)
        members = raw.get("members")
        members = [one for one in members if isinstance(one, str)] if isinstance(members, list) else []
        return id_, SlackChannel(id_, direct_name(members, self.people) or id_.lower(), shared)


def direct_name(members: list[str], people: Mapping[str, Person]) -> str:
    """The name of a conversation without one: that of its members."""
    names = sorted(people[one].user_name or one if one in people else one for one in members)
    return f"dm-{'-'.join(names)}"[:200] if names else ""


@contextmanager
def opened(path: Path) -> Iterator[SlackExport]:
    """Opens an export.

    Raises:
        Invalid: it is none, or a file in it cannot be used.
    """
    if path.is_dir():
        yield SlackExport(_Folder(path))
        return
    try:
        with zipfile.ZipFile(path) as archive:
            yield SlackExport(_Zip(archive))
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Invalid("path", f"cannot be read as a folder or a ZIP file: {reason[:200]}") from None


class _Folder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        names = list[str]()
        for entry in self._folder.iterdir():
            if entry.is_symlink():
                continue
            if entry.is_file():
                names.append(entry.name)
            elif entry.is_dir():
                names += [
                    f"{entry.name}/{one.name}" for one in entry.iterdir() if one.is_file() and not one.is_symlink()
                ]
        return names

    def read(self, name: str) -> bytes:
        with (self._folder / name).open("rb") as file:
            return _read_bounded(name, file.read(_LARGEST + 1))


class _Zip:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        entries = [one for one in archive.namelist() if not one.endswith("/")]
        # Somebody who packs the folder again puts it in a folder.
        tops = {one.partition("/")[0] for one in entries if not one.startswith("__MACOSX/")}
        root = f"{next(iter(tops))}/" if len(tops) == 1 and not tops & set(_LISTS) else ""
        self._entries = {one.removeprefix(root): one for one in entries if one.startswith(root)}

    def names(self) -> list[str]:
        return list(self._entries)

    def read(self, name: str) -> bytes:
        with self._archive.open(self._entries[name]) as file:
            return _read_bounded(name, file.read(_LARGEST + 1))


def _read_bounded(name: str, content: bytes) -> bytes:
    if len(content) > _LARGEST:
        raise Invalid(name, f"must have at most {_LARGEST:,} bytes")
    return content
