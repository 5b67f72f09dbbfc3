"""The rows that a search by words reads, and their SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from openmemory.access.rules import ALL, Rules
from openmemory.index.entries import array_of
from openmemory.index.models import ItemKind
from openmemory.search.sql import acl
from openmemory.search.sql.acl import RuleSets, sets_of
from openmemory.search.sql.filter import Shape

FORMS = "(select unnest(former || language) as form from lexicon offset 0) form"
"""SQL: the languages of the words: the configured one, and former ones during a backfill."""


def words_of(text: str) -> str:
    """The SQL expression for the words of a text in one of the `FORMS`."""
    return f"lexical_words(form::regconfig, {text})"


def keys_of(rows: str) -> str:
    """SQL: what the index of the lexemes contains of a row. It has a hash for each scope and lexeme, so that a lookup
    reads no other user's rows. A scope is everything of a user or one namespace of it."""
    return f"lexical_keys({rows}.user_id, {rows}.namespace, {rows}.words)"


@dataclass(frozen=True, slots=True)
class LexicalFilter:
    """The rows of a user that meet a filter and that the rules of an app allow. Empty namespaces mean all, but empty
    `ids` mean none. `shape` and `parameters` are those of `sql.filter.predicate`."""

    user: UUID
    namespaces: tuple[str, ...] = ()
    rules: Rules = ALL
    ids: tuple[UUID, ...] | None = None
    kind: ItemKind = ItemKind.MEMORY
    shape: Shape = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nothing(self) -> bool:
        """Returns True if no row can match."""
        return self.ids == () or self.rules.nothing

    @property
    def scope(self) -> ScopeSql:
        """The SQL of the user, the namespaces and the rules."""
        return ScopeSql(self.kind, bool(self.namespaces), sets_of(self.rules))

    @property
    def binds(self) -> dict[str, Any]:
        """The parameters of the filters."""
        return {
            **self.parameters,
            "caller_user_id": self.user,
            "in_user": self.user,
            "in_namespaces": list(self.namespaces),
            "in_ids": array_of(self.ids or ()),
            **acl.binds(self.rules),
        }


class ScopeSql(NamedTuple):
    """The conditions that decide the SQL of a search. Each combination has one SQL text for all queries.
    `namespaces`: only some are searched."""

    kind: ItemKind
    namespaces: bool = False
    rule_sets: RuleSets = RuleSets()

    def condition(self, rows: str) -> str:
        """The rows of the user and the namespaces."""
        return f"{rows}.user_id = :in_user" + (
            f" and {rows}.namespace = any(:in_namespaces)" if self.namespaces else ""
        )

    def allowed(self, rows: str) -> str:
        """The rows that the rules allow."""
        return self.rule_sets.condition(self.kind, rows)

    @property
    def names(self) -> str:
        """The names of the searched scopes in the statistics."""
        return ":in_namespaces" if self.namespaces else "array['']"

    @property
    def seeds(self) -> str:
        """The hashes of the searched scopes, as computed by `lexical_keys`."""
        if self.namespaces:
            return "array(select hashtextextended(n, uuid_hash_extended(:in_user, 0)) from unnest(:in_namespaces) n)"
        return "array[uuid_hash_extended(:in_user, 0)]"
