"""Statements that read many memories for one answer. They look the access rules up in sets.

`readable_by` reads the rules for each memory, which takes seconds if an app may read few of many. Sets have the same
effect. What is shown is still read back through `readable_by`, so wrong sets could cost results, but never leak a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Uuid, column

from openmemory.access.rule_cache import revision_of
from openmemory.access.rules import ALL
from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Tx
from openmemory.identity.caller import Default
from openmemory.index.models import ItemKind
from openmemory.memories.models import Memory
from openmemory.search.context import SearchContext
from openmemory.search.sql.acl import RuleSets, binds, sets_of
from openmemory.search.sql.filter import Shape

MakeStatement = Callable[[bool, Default, bool, RuleSets, Shape], CompiledStatement]
"""Makes the statement for the user or an app, the default of apps, now or as of a time, and a shape of rules and
filter."""


def rules_revision(owner: bool) -> ColumnElement[int | None]:
    """The revision of the rules, as the first column of a statement for `ruled_rows`. Null for the user, who has no
    rules, and for a paused app."""
    user, app = ":caller_user_id", ":caller_app_id"
    current = bound("SELECT null" if owner else revision_of(user, app), {user[1:]: Uuid(), app[1:]: Uuid()})
    return current.columns(column("revision", BigInteger())).scalar_subquery()


def allowed_memories(sets: RuleSets, *, in_order: bool = False) -> ColumnElement[bool]:
    """The memories that the rules allow, for `findable`.

    A set of allowed memories or namespaces may be joined, so PostgreSQL may begin with it. `in_order`: it is not. The
    statement reads memories in the order of an index until it has enough.
    """
    condition = sets.condition(ItemKind.MEMORY, Memory.__tablename__)
    allowed: Any = bound(f"({condition}) is true" if in_order else condition, {})
    return allowed  # type: ignore[no-any-return]


async def ruled_rows(
    tx: Tx, context: SearchContext, make: MakeStatement, values: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Returns the rows of a statement by the current rules, without its first column, which is `rules_revision`.

    The cached rules are tried first. If they are outdated, the statement is repeated, so no answer follows old rules.
    It must return at least one row. The parameters of the filter and the time of the query are added to `values`.
    """
    caller, rulebook, as_of = context.caller, context.rulebook, context.query.as_of
    parameters = {**context.filter.parameters, "as_of": as_of, **values}
    rules = ALL if caller.owner else rulebook.from_cache(caller)
    while True:
        if rules is None:
            rules = await rulebook.of(tx, caller)
        statement = make(caller.owner, caller.default, as_of is not None, sets_of(rules), context.filter.shape)
        rows = await statement.rows(tx, parameters | binds(rules))
        revision = rows[0][0]
        # A paused app reads nothing, whatever its rules.
        if revision is None or rulebook.still(caller, revision) is rules:
            return [row[1:] for row in rows]
        rules = None
