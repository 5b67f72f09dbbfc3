"""Reads and writes registrations: the name, folder, repository, branch and commit of a namespace.

Each app has at most one registration of a namespace. What a rule hides from an app is neither changed by it nor in its
way, because a refusal would reveal to the app that there is something. Who may read several gets that of the first app.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, func, literal_column, select, update
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.dialects.postgresql import insert as pg_insert

from openmemory.access.readable import readable_by
from openmemory.database.engine import Tx
from openmemory.database.locks import lock
from openmemory.identity.caller import Caller
from openmemory.projects.models import Project

FIELDS = ("name", "root", "repo", "head", "branch")
"""The columns that describe a registered namespace."""

ORDER = (Project.created_at, Project.id)
"""Of several registrations of a namespace, the first counts: that of the app that registered it first."""


def counting(caller: Caller) -> Select[Any]:
    """Selects the registration that counts for the caller in each namespace, with its `FIELDS` and times."""
    fields = (getattr(Project, name) for name in FIELDS)
    return (
        select(Project.namespace, *fields, Project.updated_at)
        .ext(distinct_on(Project.namespace))
        .where(readable_by(caller, Project))
        .order_by(Project.namespace, *ORDER)
    )


def head(caller: Caller, namespace: str) -> ColumnElement[Any]:
    """The commit with which a namespace is registered for the caller, as a part of a statement."""
    return _first(caller, Project.head, namespace)


def _first(caller: Caller, column: Any, namespace: str) -> ColumnElement[Any]:
    mine = (Project.namespace == namespace) & readable_by(caller, Project)
    first = select(column).where(mine).order_by(*ORDER).limit(literal_column("1"))
    return first.correlate(None).scalar_subquery()


async def save(tx: Tx, caller: Caller, namespace: str, values: Mapping[str, str]) -> UUID:
    """Change the registration that counts for the caller, or add one of the calling app. Returns its id.

    `values` has some of `FIELDS`. The others stay as they are.

    Raises:
        IntegrityError: the user or the app does not exist any more.
    """
    await lock(tx, f"project {caller.user_id} {namespace}")
    changes = {**values, "updated_at": func.now()}
    there = _first(caller, Project.id, namespace)
    changed = update(Project).where(Project.id == there).values(changes).returning(Project.id)
    if (id_ := await tx.scalar(changed, caller.parameters)) is not None:
        return UUID(str(id_))
    owner = {"user_id": caller.user_id, "app_id": caller.app_id, "namespace": namespace}
    # A rule may hide from the app what it registered before.
    insert = pg_insert(Project).values({"name": namespace} | owner | dict(values))
    insert = insert.on_conflict_do_update(index_elements=["user_id", "namespace", "app_id"], set_=changes)
    id_ = await tx.scalar(insert.returning(Project.id))
    assert id_ is not None
    return UUID(str(id_))
