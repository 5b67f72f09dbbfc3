"""The access rules of an app in the SQL of lexical retrieval. Only readable rows are ranked and affect term weights.

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
    "memories": "{rows}.id in {members}",
    "apps": "{wrote}",
    "namespaces": "{rows}.namespace in {members}",
    "categories": "coalesce((select bool_or(c.category_id in {members}) from memory_categories c"
    " where c.memory_id = {rows}.id{guesses}), false)",
}
"""From the fastest to the slowest lookup. The planner might turn an EXISTS into a list of all memories in these
categories, also those of other users."""

# Any app that had a part in a memory may hide it, and only the app of its text may show it (`readable.wrote`).
_HAD_A_PART = {
    ItemKind.MEMORY: "coalesce({rows}.app_id in {members} or {rows}.text_app_id in {members}"
    " or {rows}.metadata_app_id in {members}, false)",
    ItemKind.PASSAGE: "{rows}.app_id in {members}",
}
_WROTE = {
    ItemKind.MEMORY: "(coalesce({rows}.text_app_id, {rows}.app_id) in {members}"
    " or ({rows}.text_by_user and {rows}.app_id in {members}))",
    ItemKind.PASSAGE: "{rows}.app_id in {members}",
}

_PARTS = ("denied", "allowed", "hidden", "shared")

_SETS = dict.fromkeys(_MEMBERS, "(select unnest(cast(:in_{name} as uuid[])))") | {
    "namespaces": "(select jsonb_array_elements_text(cast(:in_{name} as jsonb)))"
}


class RuleSets(NamedTuple):
    """The kinds of sets in an app's rules. Many apps have the same kinds, so they share statements. Empty: no rules."""

    denied: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    shares_everything: bool = True

    def condition(self, of: ItemKind, rows: str) -> str:
        """The condition for `rows` that the rules allow. Uses the parameters from `binds`."""
        shared = "true" if self.shares_everything else self._any("shared", of, rows)
        second = f"(not {self._any('hidden', of, rows)} and {shared})" if self.hidden else shared
        either = f"({self._any('allowed', of, rows)} or {second})" if self.allowed else second
        return f"not {self._any('denied', of, rows)} and {either}" if self.denied else either

    def _any(self, part: str, of: ItemKind, rows: str) -> str:
        # A category that only the service has assigned may hide a memory from an app, but never reveal one.
        hides = part in ("denied", "hidden")
        guesses, wrote = ("", _HAD_A_PART[of]) if hides else (" and not c.automatic", _WROTE[of])
        conditions = []
        for kind in getattr(self, part):
            members = _SETS[kind].format(name=f"{part}_{kind}")
            of_apps = wrote.format(rows=rows, members=members)
            conditions.append(_MEMBERS[kind].format(rows=rows, members=members, guesses=guesses, wrote=of_apps))
        return f"({' or '.join(conditions) or 'false'})"


@lru_cache(maxsize=64)
def sets_of(rules: Rules) -> RuleSets:
    """The sets of the rules, named as in `binds`."""
    if rules == ALL:
        return RuleSets()
    parts = {part: _present(getattr(rules, part)) for part in _PARTS}
    return RuleSets(**parts, shares_everything=rules.shared.everything)


@lru_cache(maxsize=64)
def binds(rules: Rules) -> dict[str, str]:
    """The sets as PostgreSQL parameters. Cached, because formatting a thousand ids takes a while."""
    return {
        f"in_{part}_{kind}": orjson.dumps(sorted(members)).decode() if kind == "namespaces" else array_of(members)
        for part in _PARTS
        for kind in _MEMBERS
        if (members := getattr(getattr(rules, part), kind))
    }


def _present(objects: RuleObjects) -> tuple[str, ...]:
    return tuple(kind for kind in _MEMBERS if getattr(objects, kind))
