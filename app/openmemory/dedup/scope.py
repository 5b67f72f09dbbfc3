"""The memories that a new text may be merged into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, Text, and_, bindparam, select
from sqlalchemy import any_ as any_of

from openmemory.access.models import App
from openmemory.access.readable import readable_by
from openmemory.identity.caller import Caller
from openmemory.memories.models import Memory
from openmemory.memories.schemas import CheckedMemory


@dataclass(frozen=True, slots=True)
class SharedScope:
    """Memories of one namespace that count as one collection: any app of the user may have written them, under any of
    some kinds. A merged memory takes the kind, the categories and the expiry of the newer text.

    Usage: `Duplicates(..., scope=SharedScope(kinds=("decision", "insight"), fields=("user_id",)))`.
    """

    kinds: tuple[str, ...]
    fields: tuple[str, ...]
    """The fields of the metadata whose values must be the same."""

    def rewritable(self, caller: Caller) -> ColumnElement[bool]:
        """A condition: memories that a text may be merged into. Execute it with `caller.parameters` and `values`.

        Excludes memories that hold for a period only, and those flagged as prompt injection. An expiry is no obstacle:
        the newer text replaces it.
        """
        same = (Memory.metadata_[field].astext == bindparam(f"field_{field}", type_=Text) for field in self.fields)
        return and_(
            readable_by(caller, Memory),
            Memory.valid_from.is_(None),
            Memory.valid_until.is_(None),
            Memory.labels == bindparam("scope_labels", type_=ARRAY(Text)),
            Memory.namespace == bindparam("scope_namespace", type_=Text),
            Memory.kind == any_of(bindparam("scope_kinds", type_=ARRAY(Text))),
            Memory.app_id.in_(select(App.id).where(App.owner_id == bindparam("caller_user_id"))),
            *same,
        )

    def values(self, new: CheckedMemory) -> dict[str, Any]:
        """The parameters of `rewritable` for a new text."""
        fields = {f"field_{field}": str(new.metadata.get(field)) for field in self.fields}
        return fields | {"scope_namespace": new.namespace, "scope_kinds": list(self.kinds), "scope_labels": []}

    @staticmethod
    def admits(new: CheckedMemory) -> bool:
        """Returns True if a text may be merged: it does not read like instructions, nor holds for a period only."""
        return not new.labels and new.valid_from is None and new.valid_until is None


PIMEMENTO = SharedScope(("decision", "exclusion", "insight", "action", "anomaly"), ("namespace", "user_id"))
"""The memories that clients of Pimemento write: its types, and the fields within which it merges."""
