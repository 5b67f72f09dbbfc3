"""The projects that a command writes to and reads.

A command writes to the project of its folder, and reads that project and what is the person's. A line on standard error
says so. `--namespace` names another project. In a folder of no project, such as a home folder, a command writes for the
person and reads everything.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from openmemory.identity.names import PERSON, is_path

_option_projects: list[str] = []


def take_option_projects() -> list[str]:
    """The projects that options have named since the last call, once each."""
    names = list(dict.fromkeys(_option_projects))
    _option_projects.clear()
    return names


def of_folder(folder: str = ".") -> str | None:
    """The project of a folder; None if it has none. On a terminal, the user is asked about one that they have not
    confirmed for the folder."""
    from openmemory.doors.cli.trust import choose_namespace

    return choose_namespace(os.path.realpath(folder))


def here(namespace: str | None, folder: str = ".") -> str:
    """The project that an option names, or that of the folder, or the namespace of the person."""
    return _resolve(namespace) if namespace else of_folder(folder) or PERSON


def target(namespace: str | None, about: str | None = None) -> str:
    """The namespace that a command writes to. It is shown if it is that of the folder.

    Raises:
        Invalid: `about` is neither person nor project, or a project is named for what is about the person.
    """
    from openmemory.errors import Invalid

    if about not in (None, "person", "project"):
        raise Invalid("--about", f"must be person or project, not {about!r}")
    if about == "person":
        if namespace:
            raise Invalid("--about", "must not be person where --namespace names a project")
        return PERSON
    if namespace:
        return _resolve(namespace)
    if (project := of_folder()) is None:
        return PERSON
    _show(f"Project of this folder: {project}.")
    return project


def read(namespace: str | None, *, all_projects: bool | None = None) -> list[str] | None:
    """The namespaces that a command reads, the first one first. That of the folder is shown. None: all.

    `all_projects`: None if the command has no such option.

    Raises:
        Invalid: one project is named, and all are asked for.
    """
    if names := _options([namespace] if namespace else [], all_projects=bool(all_projects)):
        return names
    if all_projects or (project := of_folder()) is None:
        return None
    more = "" if all_projects is None else " --all-projects reads all."
    _show(f"Project of this folder: {project}, with what is of no project.{more}")
    return [project, PERSON]


def selection(namespaces: Sequence[str] | None, *, all_projects: bool) -> list[str] | None:
    """The namespaces in which a command changes memories; None means all. Without options, the command changes those of
    the folder's project, and shows its name.

    Raises:
        Invalid: one project is named, and all are asked for.
    """
    if names := _options(namespaces or (), all_projects=all_projects):
        return names
    if all_projects or (project := of_folder()) is None:
        return None
    _show(f"Project of this folder: {project}. --all-projects means all.")
    return [project]


def _options(namespaces: Sequence[str], *, all_projects: bool) -> list[str]:
    """The projects that options name."""
    from openmemory.errors import Invalid

    if namespaces and all_projects:
        raise Invalid("--all-projects", "must not be given where --namespace names a project")
    return [_resolve(namespace) for namespace in namespaces]


def _resolve(namespace: str) -> str:
    """The project that an option names. A folder stands for its project.

    Raises:
        Invalid: there is no such folder.
    """
    from openmemory.errors import Invalid

    if not is_path(namespace):
        _option_projects.append(namespace)
        return namespace
    folder = Path(namespace).expanduser()
    if not folder.is_dir():
        raise Invalid("--namespace", f"must be a project or a folder, and there is no folder {namespace!r}")
    return of_folder(str(folder)) or PERSON


@cache
def _show(line: str) -> None:
    """Shows a line once, however often a command asks."""
    from openmemory.doors.cli.output import note, plain

    note(plain(line))
