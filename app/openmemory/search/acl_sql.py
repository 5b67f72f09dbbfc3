"""The rules of an app in the SQL of lexical retrieval, so that only what it may read is ranked, and weighs words.

Rows are looked up in sets that are hashed once for a statement, which costs the same for a thousand rules as for one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import orjson

from openmemory.access.rules import ALL, Objects, Rules
from openmemory.index.sync.entries import array_of

_MEMBERS = {
    "memories": "m.id in (table {name})",
    "apps": "m.app_id in (table {name})",
    "namespaces": "m.namespace in (table {name})",
    "categories": "coalesce((select bool_or(c.category_id in (table {name})) from memory_categories c"
    " where c.memory_id = m.id{guesses}), false)",
}
"""From the quickest to the slowest to look up. An EXISTS might be turned into a list of all that is filed under the
categories, by other users too."""

_PARTS = ("denied", "allowed", "hidden", "shared")

_SETS = dict.fromkeys(_MEMBERS, "select unnest(cast(:in_{name} as uuid[]))") | {
    "namespaces": "select jsonb_array_elements_text(cast(:in_{name} as jsonb))"
}


class Ruled(NamedTuple):
    """Which sets the rules of an app have: the same for many, so that they share statements. Empty: no rules."""

    denied: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    shares_everything: bool = True

    @property
    def condition(self) -> str:
        """What rows `m` the rules let through; empty without rules. Binds what `binds` gives."""
        shared = "true" if self.shares_everything else _any(self, "shared")
        second = f"(not {_any(self, 'hidden')} and {shared})" if self.hidden else shared
        either = f"({_any(self, 'allowed')} or {second})" if self.allowed else second
        parts = [f"not {_any(self, 'denied')}"] if self.denied else []
        return " and ".join([*parts, *([] if either == "true" else [either])])

    @property
    def sets(self) -> str:
        """The sets as the beginning of a WITH. Binds what `binds` gives."""
        return "".join(
            f"{_name(part, kind)} as materialized ({_SETS[kind].format(name=_name(part, kind))}), "
            for part in _PARTS
            for kind in getattr(self, part)
        )


UNRULED = Ruled()


@lru_cache(maxsize=64)
def sets_of(rules: Rules) -> Ruled:
    """The sets that rules have, as `in_sets` makes them."""
    if rules == ALL:
        return UNRULED
    return Ruled(
        _present(rules.denied),
        _present(rules.allowed),
        _present(rules.hidden),
        _present(rules.shared),
        rules.shared.everything,
    )


@lru_cache(maxsize=64)
def binds(rules: Rules) -> dict[str, str]:
    """The sets as PostgreSQL reads them. Kept, because writing out a thousand ids takes a while."""
    return {
        f"in_{_name(part, kind)}": orjson.dumps(sorted(members)).decode() if kind == "namespaces" else array_of(members)
        for part in _PARTS
        for kind in _MEMBERS
        if (members := getattr(getattr(rules, part), kind))
    }


def _present(objects: Objects) -> tuple[str, ...]:
    return tuple(kind for kind in _MEMBERS if getattr(objects, kind))


def _name(part: str, kind: str) -> str:
    return f"{part}_{kind}"


def _any(ruled: Ruled, part: str) -> str:
    # What only the service has filed under a category may be kept from an app by it, and not shown.
    guesses = "" if part in ("denied", "hidden") else " and not c.automatic"
    members = (_MEMBERS[kind].format(name=_name(part, kind), guesses=guesses) for kind in getattr(ruled, part))
    return f"({' or '.join(members)})"
