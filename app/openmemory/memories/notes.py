"""Notes: memories whose first line is a title and whose other lines are a summary, with tags and entities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openmemory.memories.schemas import MemoryUpdate


def note_text(title: str, summary: str | None) -> str:
    """Returns the text of the memory that holds a note."""
    return f"{title}\n{summary}" if summary else title


def title_and_summary(text: str) -> tuple[str, str]:
    """Splits the text of a memory into a title and a summary, which may be empty."""
    title, _, summary = text.partition("\n")
    return title, summary


@dataclass(frozen=True, slots=True)
class NamesUpdate:
    """A change of a list of names such as tags. `replaced`: the whole new list; None keeps the present names."""

    replaced: Sequence[str] | None = None
    added: Sequence[str] = ()
    removed: Sequence[str] = ()

    def applied(self, present: Any) -> list[str]:
        """Returns the new list, without repetitions. `present` may be anything that a client stored."""
        names = self.replaced if self.replaced is not None else present if isinstance(present, list) else ()
        return [name for name in dict.fromkeys(map(str, (*names, *self.added))) if name not in self.removed]


@dataclass(frozen=True, slots=True)
class NoteUpdate:
    """A change of a note. None leaves a part unchanged; an empty summary removes it.

    An `Amendment`: `memories.update(caller, id, NoteUpdate(title="New"))` computes the change from the locked memory,
    so that updates at the same time add up.
    """

    title: str | None
    summary: str | None
    names: Mapping[str, NamesUpdate]
    """Changes of lists of names, by their field in the metadata."""

    def __call__(self, text: str, metadata: dict[str, Any]) -> MemoryUpdate:
        """Returns the change of a memory with this text and metadata."""
        title, summary = title_and_summary(text)
        new = {name: change.applied(metadata.get(name)) for name, change in self.names.items()}
        return MemoryUpdate(
            text=note_text(
                title if self.title is None else self.title, summary if self.summary is None else self.summary
            ),
            metadata=metadata | {name: value for name, value in new.items() if value or name in metadata},
        )
