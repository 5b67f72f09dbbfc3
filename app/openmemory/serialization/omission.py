"""Conditions on which a field is left out of an answer."""

from __future__ import annotations


def is_none(value: object) -> bool:
    """Returns True for a value that is None."""
    return value is None
