"""Read access: the one SQL predicate that every read over every protocol goes through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    Uuid,
    and_,
    bindparam,
    case,
    cast,
    column,
    exists,
    false,
    func,
    literal_column,
    or_,
    select,
    table,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, array

from openmemory.access.models import AccessControl, App
from openmemory.identity.caller import UNKNOWN, Caller

_CATEGORIES = table("memory_categories", column("memory_id"), column("category_id"), column("automatic"))
_TEXTS: ColumnElement[Any] = literal_column("'{}'::text[]")


def readable_by(
    caller: Caller, rows: Any, *, states: Sequence[str] = ("active",), allowed: ColumnElement[bool] | None = None
) -> ColumnElement[bool]:
    """Returns a predicate over `rows` that selects the rows `caller` may read.

    `rows` is a mapped class with id, user_id, app_id, namespace, state, expires_at and valid_until, and perhaps with
    the apps that wrote the present text and metadata (see `Memory`). The predicate
    binds `caller_user_id`, `caller_app_id` and `caller_namespaces`: execute it with `caller.parameters`. The statement
    is therefore the same for all callers of one kind, and is compiled once.

    1. The row must belong to the caller's user, be in one of `states`, not be expired, and lie in a namespace that the
       caller's credential can access. It must still be valid, unless it is archived or deleted (superseded rows are).
    2. The user themself reads all of these. For an app, these rules follow:
    3. A paused app reads nothing. An app without a row yet is treated as a new app.
    4. One rule decides among those that apply to the row (to itself, its apps, namespace, categories, or everything).
       A rule for this app takes precedence over a rule for every app, and a deny over an allow. A rule that allows a
       category does not apply to rows that only the service assigned to it, and one that allows an app not to rows
       that hold another app's text (`counts`).
    5. If no rule applies: under `own_app` an app reads what it wrote (`wrote`). Under `user` it reads everything,
       unless it has allow rules of its own, which then list all that it reads.

    `allowed` replaces points 4 and 5: an equivalent condition on sets, for statements that read many rows.
    """
    mine = and_(
        rows.user_id == bindparam("caller_user_id"),
        is_visible(rows),
        or_(*(rows.state == _constant(state, "::memory_state") for state in states)),
        or_(rows.expires_at.is_(None), rows.expires_at > func.now()),
        _valid(rows, states),
    )
    if caller.owner:
        return mine
    return and_(mine, is_not_paused(), _allowed(caller, rows) if allowed is None else allowed)


def text_readable_by(caller: Caller, rows: Any, writer: ColumnElement[Any]) -> ColumnElement[bool]:
    """Returns a predicate over rows that the caller may read: true if it still might if `writer`, the id of an app, had
    written their text. For texts of former revisions."""
    return true() if caller.owner else _allowed(caller, _Written(rows.id, rows.namespace, writer))


class _Written(NamedTuple):
    """A row with the text of another app."""

    id: Any
    namespace: Any
    app_id: ColumnElement[Any]


def _allowed(caller: Caller, rows: Any) -> ColumnElement[bool]:
    """The rows that the rules of an app allow: points 4 and 5 of `readable_by`."""
    app: ColumnElement[Any] = bindparam("caller_app_id", type_=Uuid)
    of_this_app = and_(
        AccessControl.user_id == bindparam("caller_user_id"),
        or_(AccessControl.subject_id == app, AccessControl.subject_id.is_(None)),
    )
    every_app = AccessControl.user_id == bindparam("caller_user_id"), AccessControl.subject_id.is_(None)
    has_rules = or_(
        _is_there(AccessControl.subject_id == app, order=(AccessControl.effect, AccessControl.object_key)),
        _is_there(*every_app, order=(AccessControl.object_key, AccessControl.effect)),
    )
    has_allow_rules = _is_there(
        AccessControl.subject_id == app,
        AccessControl.effect == _constant("allow"),
        order=(AccessControl.effect, AccessControl.object_key),
    )
    verdict = (
        select(AccessControl.effect)
        .where(of_this_app, AccessControl.object_key == func.any(keys_of(rows)), counts(rows))
        .order_by(AccessControl.subject_id.is_(None), AccessControl.effect == _constant("allow"))
        .limit(literal_column("1"))
        .correlate_except(AccessControl)
        .scalar_subquery()
    )
    unruled = wrote(rows, app) if caller.default == "own_app" else ~has_allow_rules
    ruled = func.coalesce(verdict, case((unruled, _constant("allow")), else_=_constant("deny"))) == _constant("allow")
    # Evaluated once per statement, not per row: if there are no rules, the verdict is never computed.
    return case((has_rules, ruled), else_=unruled)


def _valid(rows: Any, states: Sequence[str]) -> ColumnElement[bool]:
    """Rows in use must be valid now; archived or deleted rows may have been valid in the past."""
    holds = or_(rows.valid_until.is_(None), rows.valid_until > func.now())
    before = [state for state in states if state in ("archived", "deleted")]
    return or_(holds, *(rows.state == _constant(state, "::memory_state") for state in before))


def is_visible(rows: Any) -> ColumnElement[bool]:
    """The rows in the namespaces that the caller's credential can access. Part of `readable_by`."""
    namespaces: ColumnElement[Any] = bindparam("caller_namespaces", type_=ARRAY(Text))
    return or_(namespaces.is_(None), rows.namespace == func.any(namespaces))


def was_visible(rows: Any) -> ColumnElement[bool]:
    """The rows whose query was limited to namespaces that the caller's credential can access. `rows` is a mapped
    class with namespaces, which are null if the query was not limited."""
    namespaces: ColumnElement[Any] = bindparam("caller_namespaces", type_=ARRAY(Text))
    return or_(namespaces.is_(None), func.coalesce(rows.namespaces.contained_by(namespaces), false()))


def is_not_paused() -> ColumnElement[bool]:
    """True if the calling app is not paused: part of `readable_by` for apps. An unknown app counts as not paused."""
    app: ColumnElement[Any] = bindparam("caller_app_id", type_=Uuid)
    mine = App.id == app, App.owner_id == bindparam("caller_user_id")
    return or_(app == _constant(str(UNKNOWN), "::uuid"), exists().where(*mine, App.is_active).correlate(None))


def _is_there(*which: ColumnElement[bool], order: Sequence[Any]) -> ColumnElement[bool]:
    """An SQL expression that is true if such a rule exists.

    It reads in the `order` of an index, to avoid a full sort. For an EXISTS, the planner expects that the first rows of
    the whole table settle it, which is never true for an app without rules.
    """
    first: Select[Any] = select(literal_column("true")).where(*which).order_by(*order).limit(literal_column("1"))
    return func.coalesce(first.correlate(None).scalar_subquery(), false())


def _constant(value: str, cast: str = "") -> ColumnElement[Any]:
    """A constant as a literal in the statement, so that partial indexes match with any plan."""
    return literal_column(f"'{value}'{cast}")


def counts(rows: Any) -> ColumnElement[bool]:
    """True if a rule whose key matches the row applies to it. A rule that allows a category does not apply if the
    service assigned that category, and one that allows an app does not if another app wrote the text.

    An automatic assignment may hide a memory from an app, but never reveal one. So may an app that had a part in it.
    """
    automatic = (
        select(_CATEGORIES.c.automatic)
        .where(_CATEGORIES.c.memory_id == rows.id, _CATEGORIES.c.category_id == AccessControl.object_id)
        .correlate_except(_CATEGORIES)
        .scalar_subquery()
    )
    sort = AccessControl.object_type
    return or_(
        AccessControl.effect == _constant("deny"),
        and_(
            or_(sort != _constant("category"), automatic.is_not(literal_column("true"))),
            or_(sort != _constant("app"), wrote(rows, AccessControl.object_id)),
        ),
    )


def wrote(rows: Any, app: Any) -> ColumnElement[bool]:
    """The rows whose present text is an app's: it wrote the text, or it added the row and the user corrected the
    text."""
    if not hasattr(rows, "text_app_id"):
        its: ColumnElement[bool] = rows.app_id == app
        return its
    return or_(func.coalesce(rows.text_app_id, rows.app_id) == app, and_(rows.text_by_user, rows.app_id == app))


def keys_of(rows: Any) -> ColumnElement[Any]:
    """Every `access_controls.object_key` of rules that may apply to the row."""
    own = array(
        [
            _constant("all", "::text"),
            _constant("memory:").concat(cast(rows.id, Text)),
            *(_constant("app:").concat(cast(app_id, Text)) for app_id in _writers(rows)),
            _constant("namespace:").concat(rows.namespace),
        ]
    )
    in_categories = (
        select(func.array_agg(_constant("category:").concat(cast(_CATEGORIES.c.category_id, Text))))
        .where(_CATEGORIES.c.memory_id == rows.id)
        .correlate_except(_CATEGORIES)
        .scalar_subquery()
    )
    return func.array_cat(own, func.coalesce(in_categories, _TEXTS))


def _writers(rows: Any) -> list[ColumnElement[Any]]:
    """The apps that had a part in the row. Null stands for the first one."""
    return [
        rows.app_id, *(getattr(rows, name) for name in ("text_app_id", "metadata_app_id") if hasattr(rows, name)),
    ]  # fmt: skip
