"""The projects that a call of a tool writes to and reads.

A client may have a project, which is that of its folder. A call without a name writes to it, and reads it and what is
the person's. Without one, a call writes for the person and reads everything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from openmemory.errors import Invalid
from openmemory.identity.names import PERSON, is_path, one_word

ALL = "*"
"""The name that means every project, where something is read."""

ABOUT_PERSON = "person"

_SEPARATOR = re.compile(r"[/\\]")


@dataclass(frozen=True, slots=True)
class ClientProject:
    """The project of a client, and the folder of the project on its machine, as far as the client names them."""

    name: str | None = None
    folder: str | None = None

    def resolve(self, name: str, field: str) -> str:
        """The project that a call names. A path in the folder of the client's project means that project.

        Without a project, the folder of the client is the person's, and a path elsewhere is a name like any other.

        Raises:
            Invalid: the path is of another folder, or the name means all projects where one is needed.
        """
        if name == ALL and field != "namespace":
            raise Invalid(field, "must be one project, not *")
        if not is_path(name):
            return name
        path = name.rstrip("/\\") or name
        if self.name is None:
            return PERSON if path == "." else name
        folder = (self.folder or "").rstrip("/\\")
        within = path == folder or (folder != "" and path.startswith((f"{folder}/", f"{folder}\\")))
        upward = path != ".." and ".." in _SEPARATOR.split(path)
        if upward or not (within or _is_relative(path)):
            raise Invalid(field, f"must be a project, such as {self.name}, not a path outside of its folder")
        return self.name

    def target(self, name: str | None, about: str | None = None) -> str:
        """The namespace that a call writes to.

        Raises:
            Invalid: the name means all projects, `about` is unknown, or a project is named for what is about the
                person.
        """
        if name == ALL:
            raise Invalid("namespace", "must be one project; * is for what only reads")
        if about not in (None, "project", ABOUT_PERSON):
            raise Invalid("about", "must be person, or left out for the project")
        if about == ABOUT_PERSON:
            if name not in (None, PERSON):
                raise Invalid("about", "must not be person where a project is named")
            return PERSON
        return name or self.name or PERSON

    def read(self, name: str | None) -> tuple[str, ...]:
        """The namespaces that a call reads, the first one first. Empty means all."""
        if name is not None:
            return () if name == ALL else (name,)
        return () if self.name is None else (self.name, PERSON)

    def implicit(self, name: str | None) -> str | None:
        """The project of the call, or else that of the client. Answers about it need not name it."""
        return name or self.name

    def elsewhere(self, name: str | None) -> str | None:
        """A note for an empty answer that other projects were not read. None if they were, or if the call named one."""
        if self.name is None or name is not None:
            return None
        project_name = one_word(self.name, "the project")
        return f"Only {project_name} and what is of no project was searched; namespace=* searches all."

    def format_target(self, namespace: str) -> str:
        """Returns where something was written, after a blank. Empty for a client without a project."""
        if self.name is None:
            return ""
        return f" [{'of no project' if namespace == PERSON else one_word(namespace, 'of the project')}]"


NO_PROJECT = ClientProject()


def _is_relative(path: str) -> bool:
    return path in (".", "..") or path.startswith(("./", "../", ".\\", "..\\"))
