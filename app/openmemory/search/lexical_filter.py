"""The filters of lexical retrieval, and their SQL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from openmemory.access.rules import ALL, Rules
from openmemory.database.sql_files import sql_template
from openmemory.index.entries import array_of
from openmemory.index.models import ItemKind
from openmemory.search import acl_sql
from openmemory.search.acl_sql import UNRULED, RuleSets, sets_of

NEWEST = 2_000
"""The number of newest memories in which short parts of words are looked for."""
AMONG = 2 * NEWEST
"""The number of newest memories that are scanned for those that an app's rules allow."""
FORMS = "(select unnest(forms) as form from (select former || language as forms from lexicon) x offset 0) form"
"""The languages of the memories' words: the configured one, and former ones during a backfill."""


def words_of(text: str) -> str:
    """The SQL expression for the words of a text in one of the `FORMS`."""
    return f"lexical_words(form::regconfig, {text})"


KEYS = "lexical_keys(m.user_id, m.namespace, m.words)"
"""SQL: what the index of the lexemes contains of a memory. It has a hash for each scope and lexeme, so that a lookup
reads no other user's memories. A scope is the whole memory of a user or one namespace of it."""


@dataclass(frozen=True, slots=True)
class LexicalFilter:
    """Limits the search. Empty tuples and None mean "anywhere", but empty `ids` mean none. `since` and `until` are
    inclusive."""

    user: UUID
    namespaces: tuple[str, ...] = ()
    thread: str | None = None
    kinds: tuple[str, ...] = ()
    apps: tuple[UUID, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    rules: Rules = ALL
    ids: tuple[UUID, ...] | None = None
    kind: ItemKind = ItemKind.MEMORY

    @property
    def nothing(self) -> bool:
        """Returns True if no memory can match."""
        return self.ids == () or self.rules.nothing

    @property
    def binds(self) -> dict[str, Any]:
        """The parameters of the filters."""
        return {
            "in_user": self.user,
            "in_namespaces": list(self.namespaces),
            "in_thread": self.thread,
            "in_kinds": list(self.kinds),
            "in_apps": list(self.apps),
            "in_since": self.since,
            "in_until": self.until,
            "in_ids": array_of(self.ids or ()),
            **acl_sql.binds(self.rules),
        }


@dataclass(frozen=True, slots=True)
class FilterSet:
    """The filters that a statement has: one statement text per combination, prepared once per connection."""

    namespaces: bool
    thread: bool
    kinds: bool
    apps: bool
    since: bool
    until: bool
    ruled: RuleSets = UNRULED
    listed: bool = False
    kind: ItemKind = ItemKind.MEMORY

    @classmethod
    def of(cls, where: LexicalFilter) -> FilterSet:
        return cls(
            bool(where.namespaces),
            where.thread is not None,
            bool(where.kinds),
            bool(where.apps),
            where.since is not None,
            where.until is not None,
            sets_of(where.rules),
            where.ids is not None,
            where.kind,
        )

    @property
    def sets(self) -> str:
        """The lookup sets, as the beginning of a WITH clause."""
        listed = "listed as materialized (select unnest(cast(:in_ids as uuid[])) as id), " if self.listed else ""
        return self.ruled.sets + listed

    @property
    def rows(self) -> str:
        """The memories to search: if ids are listed, only those are read, one by one."""
        table = f"{self.kind.table} m"
        return f"(select m.* from listed join {table} using (id) offset 0) m" if self.listed else table  # noqa: S608 - only names are put in

    @property
    def scope(self) -> str:
        """The user, and the namespaces searched."""
        return "m.user_id = :in_user" + (" and m.namespace = any(:in_namespaces)" if self.namespaces else "")

    @property
    def filters(self) -> str:
        """Every filter except `state`, which stays beside the index condition so that partial indexes apply."""
        parts = {
            "m.thread_id = :in_thread": self.thread,
            "m.kind = any(:in_kinds)": self.kinds,
            "m.app_id = any(:in_apps)": self.apps,
            "m.created_at >= :in_since": self.since,
            "m.created_at <= :in_until": self.until,
            self.ruled.condition(self.kind): self.ruled != UNRULED,
        }
        wanted = (condition for condition, on in parts.items() if on)
        return " and ".join((self.scope, "(m.expires_at is null or m.expires_at > now())", *wanted))

    @property
    def allowed(self) -> str:
        """The condition of the rules."""
        return "true" if self.ruled == UNRULED else self.ruled.condition(self.kind)

    @property
    def counted(self) -> str:
        """The memories of a small scope for its statistics. With rules, only those that the rules allow, so that scores
        reveal nothing about the others."""
        return f"{self.scope} and {self.allowed}"

    @property
    def newest(self) -> str:
        """The newest memories first. Rules may allow few, so with rules only `AMONG` of the newest are scanned."""
        latest = f"{self.rows} where {self.filters} and m.state = 'active' order by m.created_at desc"
        if self.ruled == UNRULED or self.listed:
            return latest
        newest = (
            f"{self.kind.table} m where {self.scope} and m.state = 'active' order by m.created_at desc limit {AMONG}"
        )
        return f"(select m.* from {newest}) m where {self.filters}"  # noqa: S608 - as below

    @property
    def scopes(self) -> str:
        """The names of the searched scopes in the statistics."""
        return ":in_namespaces" if self.namespaces else "array['']"

    @property
    def seeds(self) -> str:
        """The hashes of the searched scopes, as computed by `lexical_keys`."""
        if self.namespaces:
            return "array(select hashtextextended(n, uuid_hash_extended(:in_user, 0)) from unnest(:in_namespaces) n)"
        return "array[uuid_hash_extended(:in_user, 0)]"

    def statement(self, name: str, **parts: object) -> str:
        """A statement of `sql/` for memories that pass the filters."""
        filters = {
            "sets": self.sets,
            "rows": self.rows,
            "filters": self.filters,
            "newest": self.newest,
            "newest_read": NEWEST,
            "seeds": self.seeds,
            "keys": KEYS,
        }
        return sql_template("openmemory.search", name).substitute(filters | parts)
