"""The read access of an app as sets. The index and the word search get these sets, so that few of their candidates are
rejected later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from openmemory.identity.caller import Default


@dataclass(frozen=True, slots=True)
class RuleObjects:
    """The objects of rules: certain memories; those of certain apps, namespaces or categories; or everything."""

    memories: frozenset[UUID] = frozenset()
    apps: frozenset[UUID] = frozenset()
    namespaces: frozenset[str] = frozenset()
    categories: frozenset[UUID] = frozenset()
    everything: bool = False

    def __bool__(self) -> bool:
        return self.everything or len(self) > 0

    def __len__(self) -> int:
        return len(self.memories) + len(self.apps) + len(self.namespaces) + len(self.categories)

    def __or__(self, other: RuleObjects) -> RuleObjects:
        if not self or not other:
            return self or other
        if self.everything or other.everything:
            return EVERYTHING
        return RuleObjects(
            self.memories | other.memories,
            self.apps | other.apps,
            self.namespaces | other.namespaces,
            self.categories | other.categories,
        )


NOTHING = RuleObjects()
EVERYTHING = RuleObjects(everything=True)


@dataclass(frozen=True, slots=True)
class Rules:
    """An app may read what is not `denied` and either `allowed`, or `shared` and not `hidden`.

    `denied` and `allowed` come from the rules for the app; `hidden` and `shared` from those for every app and from the
    default. They express the precedence of `readable_by` as sets. An app without rules has `ALL`.
    """

    denied: RuleObjects = NOTHING
    allowed: RuleObjects = NOTHING
    hidden: RuleObjects = NOTHING
    shared: RuleObjects = EVERYTHING

    def __len__(self) -> int:
        return len(self.denied) + len(self.allowed) + len(self.hidden) + len(self.shared)

    @property
    def nothing(self) -> bool:
        """Returns True if there is nothing at all that the app may read."""
        return self.denied.everything or not (self.allowed or self.shared)

    def smallest(self) -> Rules:
        """Returns equivalent rules with as few sets as possible, so that most apps have one to check."""
        denied, allowed, hidden, shared = self.denied, self.allowed, self.hidden, self.shared
        if allowed.everything:
            allowed, hidden, shared = NOTHING, NOTHING, EVERYTHING
        if hidden.everything or not shared:
            hidden, shared = NOTHING, NOTHING
        if not hidden:
            allowed, shared = NOTHING, allowed | shared
        elif not allowed:
            denied, hidden = denied | hidden, NOTHING
        return NONE if denied.everything or not (allowed or shared) else Rules(denied, allowed, hidden, shared)


ALL = Rules()
NONE = Rules(shared=NOTHING)


class Rule(NamedTuple):
    """Rules of one effect about objects of one type, for the app itself (`own`) or for every app."""

    own: bool
    effect: str
    object_type: str
    ids: Iterable[UUID | None]
    names: Iterable[str | None]


def in_sets(rules: Iterable[Rule], app: UUID, default: Default) -> Rules:
    """Combines the rules for an app and the default into sets, with the precedence of `readable_by`."""
    sets = {(own, effect): NOTHING for own in (True, False) for effect in ("deny", "allow")}
    for rule in rules:
        sets[rule.own, rule.effect] |= _objects(rule)
    denied, allowed = sets[True, "deny"], sets[True, "allow"]
    hidden, shared = sets[False, "deny"], sets[False, "allow"]
    if default == "own_app":
        shared |= RuleObjects(apps=frozenset({app}))
    elif not allowed:
        shared = EVERYTHING
    return Rules(denied, allowed, hidden, shared).smallest()


def _objects(rule: Rule) -> RuleObjects:
    ids = frozenset(id_ for id_ in rule.ids if id_ is not None)
    match rule.object_type:
        case "memory":
            return RuleObjects(memories=ids)
        case "app":
            return RuleObjects(apps=ids)
        case "category":
            return RuleObjects(categories=ids)
        case "namespace":
            return RuleObjects(namespaces=frozenset(name for name in rule.names if name is not None))
        case _:
            return EVERYTHING
