"""The progress of a capture. It stands apart from the tables, so that schemas need no SQLAlchemy."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """The progress of a capture. Facts were extracted from `done` ones. The language model could not read `failed`
    ones, which it is asked about again, ever more rarely. `undone` were taken back, or never begun."""

    PENDING = "pending"
    WORKING = "working"
    DONE = "done"
    FAILED = "failed"
    UNDONE = "undone"


WAITS = (Status.PENDING, Status.WORKING)
"""Statuses of captures that are not finished."""

UNREAD = (*WAITS, Status.FAILED)
"""Statuses of captures from which no facts were extracted yet."""
