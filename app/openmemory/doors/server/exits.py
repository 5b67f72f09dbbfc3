"""The exit codes of the program, and an error on one line."""

from __future__ import annotations

from enum import IntEnum

from openmemory.errors import Invalid, OpenMemoryError, SetupError, Unauthenticated, Unavailable


class Exit(IntEnum):
    """The exit code of a command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 3
    INTERRUPTED = 130


def exit_of(error: OpenMemoryError) -> Exit:
    """The exit code of an error. A missing key is a setup error: no retry helps until the settings change."""
    if isinstance(error, SetupError | Invalid | Unauthenticated):
        return Exit.USAGE
    return Exit.UNAVAILABLE if isinstance(error, Unavailable) else Exit.FAILED


def one_line(error: OpenMemoryError) -> str:
    """The message and its hint on one line."""
    words = error.message if error.hint is None else f"{error.message} ({error.hint})"
    return " ".join(words.split())
