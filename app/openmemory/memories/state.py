"""The states of a memory."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a memory is in its life. Erased memories have no row."""

    ACTIVE = "active"
    PAUSED = "paused"
    ARCHIVED = "archived"
    DELETED = "deleted"
