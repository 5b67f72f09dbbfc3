"""Decides if two stored items say the same: the one judgement of everything that drops, merges or lists duplicates."""

from __future__ import annotations

from typing import NamedTuple

from openmemory.dedup.paraphrases import ComparedText, TextComparison, compared


class ComparedItem(NamedTuple):
    """The parts of an item that are compared. `key`: the key under which its value is set, or that a client gave it."""

    namespace: str
    key: str | None
    text: ComparedText


def item(namespace: str, key: str | None, text: str) -> ComparedItem:
    """An item to compare. Its features are computed once, for however many comparisons."""
    return ComparedItem(namespace, key, ComparedText(text))


def sameness(older: ComparedItem, newer: ComparedItem) -> TextComparison:
    """Compares a newer item with an older one.

    Only items of one namespace and one key say the same, and only if their numbers, names, negations and signs agree.
    A value under a key is therefore never the same as a memory without one.
    """
    if older.namespace != newer.namespace:
        return TextComparison(None, "namespace")
    if older.key != newer.key:
        return TextComparison(None, "key")
    return compared(older.text, newer.text)
