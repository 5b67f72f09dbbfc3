"""The access rules of an app in the SQL of lexical retrieval. Only readable memories are ranked and affect term
weights.

The SQL looks rows up in sets that are hashed once per statement. A thousand rules cost as much as one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import orjson

from openmemory.access.rules import ALL, RuleObjects, Rules
from openmemory.index.entries import array_of
from openmemory.index.models import ItemKind

_MEMBERS = {
    "memories": "m.id in (table {name})",
    "apps": "{wrote}",
    "namespaces": "m.namespace in (table {name})",
    "categories": "coalesce((select bool_or(c.category_id in (table {name})) from memory_categories c"
    " where c.memory_id = m.id{guesses}), false)",
}
"""From the fastest to the slowest lookup. The planner might turn an EXISTS into a list of all memories in these
categories, also those of other users."""

# Any app that had a part in a memory may hide it, and only the app of its text may show it (`readable.wrote`).
_HAD_A_PART = {
    ItemKind.MEMORY: "coalesce(m.app_id in (table {name}) or m.text_app_id in (table {name})"
    " or m.metadata_app_id in (table {name}), false)",
    ItemKind.PASSAGE: "m.app_id in (table {name})",
}
_WROTE = {
    ItemKind.MEMORY: "(coalesce(m.text_app_id, m.app_id) in (table {name})"
    " or (m.text_by_user and m.app_id in (table {name})))",
    ItemKind.PASSAGE: "m.app_id in (table {name})",
}

_PARTS = ("denied", "allowed", "hidden", "shared")

_SETS = dict.fromkeys(_MEMBERS, "select unnest(cast(:in_{name} as uuid[]))") | {
    "namespaces": "select jsonb_array_elements_text(cast(:in_{name} as jsonb))"
}


class RuleSets(NamedTuple):
    """The kinds of sets in an app's rules. Many apps have the same kinds, so they share statements. Empty: no rules."""

    denied: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    shares_everything: bool = True

    def condition(self, of: ItemKind) -> str:
        """The condition for rows `m` that the rules allow, empty without rules. Uses the parameters from `binds`."""
        shared = "true" if self.shares_everything else _any(self, "shared", of)
        second = f"(not {_any(self, 'hidden', of)} and {shared})" if self.hidden else shared
        either = f"({_any(self, 'allowed', of)} or {second})" if self.allowed else second
        parts = [f"not {_any(self, 'denied', of)}"] if self.denied else []
        return " and ".join([*parts, *([] if either == "true" else [either])])

    @property
    def sets(self) -> str:
        """The sets as the beginning of a WITH clause. Uses the parameters from `binds`."""
        return "".join(
            f"{_name(part, kind)} as materialized ({_SETS[kind].format(name=_name(part, kind))}), "
            for part in _PARTS
            for kind in getattr(self, part)
        )


UNRULED = RuleSets()


@lru_cache(maxsize=64)
def sets_of(rules: Rules) -> RuleSets:
    """The sets of the rules, named as in `in_sets`."""
    if rules == ALL:
        return UNRULED
    return RuleSets(
        _present(rules.denied),
        _present(rules.allowed),
        _present(rules.hidden),
        _present(rules.shared),
        rules.shared.everything,
    )


@lru_cache(maxsize=64)
def binds(rules: Rules) -> dict[str, str]:
    """The sets as PostgreSQL parameters. Cached, because formatting a thousand ids takes a while."""
    return {
        f"in_{_name(part, kind)}": orjson.dumps(sorted(members)).decode() if kind == "namespaces" else array_of(members)
        for part in _PARTS
        for kind in _MEMBERS
        if (members := getattr(getattr(rules, part), kind))
    }


def _present(objects: RuleObjects) -> tuple[str, ...]:
    return tuple(kind for kind in _MEMBERS if getattr(objects, kind))


def _name(part: str, kind: str) -> str:
    return f"{part}_{kind}"


def _any(ruled: RuleSets, part: str, of: ItemKind) -> str:
    # A category that only the service has assigned may hide a memory from an app, but never reveal one.
    hides = part in ("denied", "hidden")
    guesses, wrote = ("", _HAD_A_PART[of]) if hides else (" and not c.automatic", _WROTE[of])
    members = (
        _MEMBERS[kind].format(name=_name(part, kind), guesses=guesses, wrote=wrote.format(name=_name(part, kind)))
        for kind in getattr(ruled, part)
    )
    return f"({' or '.join(members)})"
