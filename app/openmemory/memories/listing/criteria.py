"""The criteria of a list, split into what determines the SQL text and what is bound as parameters.

One compiled statement serves all callers of the same kind and all values of a filter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ARRAY,
    CTE,
    ColumnElement,
    Select,
    Text,
    Uuid,
    and_,
    bindparam,
    cast,
    func,
    literal_column,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import aliased

from openmemory.access.models import App
from openmemory.access.readable import readable_by
from openmemory.audit.access_log import READS
from openmemory.audit.models import MemoryAccessLog
from openmemory.identity.caller import Caller, Default
from openmemory.memories.models import HAS_METADATA, IS_ACTIVE, LOOKS_LIKE_KEY_VALUES, Category, Memory, MemoryCategory
from openmemory.memories.schemas import MemoryQuery
from openmemory.memories.state import State
from openmemory.serialization import exact_json

OWN_ASSIGNMENTS = MemoryCategory.user_id == bindparam("caller_user_id", type_=Uuid)
"""The category assignments of the caller's user. Execute with `caller.parameters`."""

_NO_LABELS: Any = literal_column("'{}'::text[]")
_ONE: Any = literal_column("1")
_TRIGRAM_INDEXES: tuple[tuple[ColumnElement[bool], set[State]], ...] = (
    (IS_ACTIVE, {State.ACTIVE}),
    (literal_column("memories.state IN ('paused', 'archived')"), {State.PAUSED, State.ARCHIVED}),
    (literal_column("memories.state = 'deleted'"), {State.DELETED}),
)
"""The conditions of the partial indexes of texts, each with its states. Deleted memories have none."""


@dataclass(frozen=True, slots=True)
class ListCriteria:
    """The criteria that determine the SQL text of a list. `filters` are names of `FILTERS`."""

    owner: bool
    default: Default
    everywhere: bool
    """True if the caller may see all namespaces."""
    states: tuple[State, ...]
    filters: frozenset[str] = frozenset()
    sort: str = "created_at"
    descending: bool = True

    @classmethod
    def of(cls, caller: Caller, query: MemoryQuery) -> ListCriteria:
        """Builds the criteria from a caller and a query."""
        states = tuple(state for state in State if state in query.states)
        filters = frozenset(name for name, value in _values(query).items() if value)
        return cls(caller.owner, caller.default, caller.everywhere, states, filters, query.sort, query.descending)

    @property
    def caller(self) -> Caller:
        """A generic caller with the same rights, for building statements."""
        return Caller.anyone(owner=self.owner, default=self.default, everywhere=self.everywhere)

    @property
    def readable(self) -> ColumnElement[bool]:
        """The memories in the requested states that the caller may read."""
        return readable_by(self.caller, Memory, states=self.states)

    def matching(self, *, text: bool = True) -> ColumnElement[bool]:
        """The matching memories that the caller may read. With `text=False` the text filter is ignored."""
        filters = [filter_() for name, filter_ in FILTERS.items() if name in self.filters]
        if "disputed" in self.filters:
            filters.append(is_disputed(self.caller))
        if text and "text" in self.filters:
            filters.append(_contains(self.states))
        if text and "short_text" in self.filters:
            filters.append(Memory.folded.like(func.lower(_bound("short_text", Text()))))
        return and_(self.readable, *filters)


def parameters(caller: Caller, query: MemoryQuery) -> dict[str, Any]:
    """The parameters of the statements for a caller and a query."""
    return caller.parameters | {f"asked_{name}": value for name, value in _values(query).items()}


def like_pattern(part: str) -> str:
    """The LIKE pattern for texts that contain `part`. Escapes special characters."""
    return "%" + re.sub(r"([%_\\])", r"\\\1", part) + "%"


def facts_of(caller: Caller) -> CTE:
    """The key-value facts in active memories that the caller may read: `id`, `namespace`, `updated_at`, `key`, `value`.

    Memories that are flagged as prompt injection count as little as in a search.
    """
    fact = aliased(Memory)
    apps = select(App.id).where(App.owner_id == bindparam("caller_user_id", type_=Uuid))
    own: Any = fact.app_id.in_(apps), fact.labels == _NO_LABELS, literal_column(f"({LOOKS_LIKE_KEY_VALUES})")
    columns = fact.id, fact.namespace, fact.updated_at, fact.content
    texts = select(*columns).where(readable_by(caller, fact), *own).cte("fact_texts")
    pair: Any = func.regexp_split_to_table(texts.c.content, literal_column(r"'\|'"))
    pairs = pair.table_valued("pair", name="pairs").render_derived()
    pair = pairs.c.pair
    equals = func.strpos(pair, literal_column("'='"))
    key = func.lower(func.btrim(func.left(pair, equals - _ONE))).label("key")
    value = func.btrim(func.substr(pair, equals + _ONE)).label("value")
    facts = select(texts.c.id, texts.c.namespace, texts.c.updated_at, key, value)
    return facts.select_from(texts.join(pairs, true())).cte("facts")


def disputes_of(facts: CTE) -> Select[Any]:
    """The keys, each with its namespace, to which several memories give different values."""
    key = facts.c.namespace, facts.c.key
    several = (func.count(each.distinct()) > _ONE for each in (facts.c.value, facts.c.id))
    return select(*key).group_by(*key).having(and_(*several))


def is_disputed(caller: Caller) -> ColumnElement[bool]:
    """Matches the key-value facts that disagree on a key with others of their namespace that the caller may read."""
    facts = facts_of(caller)
    disputes = disputes_of(facts).cte("disputes")
    same = and_(disputes.c.namespace == facts.c.namespace, disputes.c.key == facts.c.key)
    return Memory.id.in_(select(facts.c.id).join(disputes, same))


def is_unread() -> ColumnElement[bool]:
    """Matches the memories that no app has read. Reads by the user are not in the access log.

    A subquery for each row uses the index of the log even if the planner would rather scan the whole log.
    """
    types = ", ".join(f"'{each}'" for each in sorted(READS))
    read = (
        select(literal_column("1"))
        .where(MemoryAccessLog.memory_id == Memory.id, literal_column(f"access_type IN ({types})"))
        .limit(literal_column("1"))
        .correlate(Memory)
        .scalar_subquery()
    )
    return read.is_(None)


def _values(query: MemoryQuery) -> dict[str, Any]:
    # A memory has a category at most once: for one category, the planner checks for no duplicates.
    one = query.category_ids[0] if len(query.category_ids) == 1 else None
    pattern = like_pattern(query.text) if query.text else None
    has_trigrams = re.search(r"\w{3}", query.text or "") is not None
    return {
        "text": pattern if has_trigrams else None,
        "short_text": None if has_trigrams else pattern,
        "app_ids": list(query.app_ids),
        "namespaces": list(query.namespaces),
        "threads": list(query.threads),
        "kinds": list(query.kinds),
        "created_from": query.created_from,
        "created_to": query.created_to,
        "category_id": one,
        "category_ids": [] if one else list(query.category_ids),
        "categories": list(query.categories),
        "expiring": query.expiring,
        "flagged": query.flagged,
        "disputed": query.disputed,
        "unread": query.unread,
        "successor": query.successor,
        "metadata": exact_json.dumps(dict(query.metadata)).decode() if query.metadata else None,
    }


def _bound(name: str, type_: Any) -> Any:
    return bindparam(f"asked_{name}", type_=type_)


def _any(name: str, of: Any) -> Any:
    return func.any(_bound(name, ARRAY(of)))


def _contains(states: tuple[State, ...]) -> ColumnElement[bool]:
    """Matches texts that contain the search text, ignoring case. The states are named as in the trigram indexes."""
    contains = Memory.content.ilike(_bound("text", Text()))
    return or_(*(and_(condition, contains) for condition, of in _TRIGRAM_INDEXES if of & set(states)))


def _has_category(category: ColumnElement[bool]) -> ColumnElement[bool]:
    return Memory.id.in_(select(MemoryCategory.memory_id).where(OWN_ASSIGNMENTS, category))


def _requested_categories() -> Any:
    """The ids of the requested categories, as an array: for a join, the planner would expect few assignments."""
    return func.array(select(Category.id).where(Category.name == _any("categories", Text())).scalar_subquery())


FILTERS: dict[str, Callable[[], ColumnElement[bool]]] = {
    "app_ids": lambda: Memory.app_id == _any("app_ids", Uuid()),
    "namespaces": lambda: Memory.namespace == _any("namespaces", Text()),
    "threads": lambda: Memory.thread_id == _any("threads", Text()),
    "kinds": lambda: Memory.kind == _any("kinds", Text()),
    "created_from": lambda: Memory.created_at >= _bound("created_from", Memory.created_at.type),
    "created_to": lambda: Memory.created_at <= _bound("created_to", Memory.created_at.type),
    "category_id": lambda: _has_category(MemoryCategory.category_id == _bound("category_id", Uuid())),
    "category_ids": lambda: _has_category(MemoryCategory.category_id == _any("category_ids", Uuid())),
    "categories": lambda: _has_category(MemoryCategory.category_id == func.any(_requested_categories())),
    "expiring": lambda: Memory.expires_at.is_not(None),
    "successor": lambda: Memory.superseded_by == _bound("successor", Uuid()),
    "metadata": lambda: and_(HAS_METADATA, Memory.metadata_.contains(cast(_bound("metadata", Text()), JSONB))),
    "flagged": lambda: Memory.labels != _NO_LABELS,
    "unread": is_unread,
}
"""The filters of a list, by the name of the parameter that they bind. `disputed` and the two of texts are
in `ListCriteria.matching`."""
