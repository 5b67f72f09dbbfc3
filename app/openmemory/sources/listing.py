"""Pages of sources: the checks, the filter by namespace, and the two queries that every list makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, case, exists, func, null, select

from openmemory.access.models import App
from openmemory.access.readable import readable_by
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.memories import validation
from openmemory.sources.models import Passage, Source

MAX_PAGE_SIZE = 100


def check_page(page: int, size: int) -> None:
    """Checks the number of a page and its size.

    Raises:
        Invalid: one of them is out of range.
    """
    validation.between(page, "page", 1, 1_000_000)
    validation.between(size, "size", 1, MAX_PAGE_SIZE)


def within(namespaces: Sequence[str], limits: LimitSettings, rows: Any = Source) -> list[ColumnElement[bool]]:
    """The condition that sources or passages are in one of these namespaces. Empty means all.

    Raises:
        Invalid: a name is invalid.
    """
    names = [validation.name(name, "namespace", limits) for name in namespaces]
    return [rows.namespace.in_(names)] if names else []


def by_namespace(namespaces: Sequence[str]) -> list[ColumnElement[Any]]:
    """The order of these namespaces."""
    if len(namespaces) < 2:
        return []
    places = {name.strip(): place for place, name in reversed(list(enumerate(namespaces)))}
    return [case(places, value=Source.namespace)]


def summary(caller: Caller) -> ColumnElement[str | None]:
    """The summary of a source. It is its first passage too, so it is null if the caller may not read that."""
    first = exists().where(Passage.source_id == Source.id, Passage.position == 1, readable_by(caller, Passage))
    return case((first, Source.summary), else_=null()).label("summary")


async def page_of(
    tx: Tx,
    caller: Caller,
    columns: Sequence[Any],
    which: Sequence[ColumnElement[bool]],
    order: Sequence[Any],
    *,
    page: int,
    size: int,
) -> tuple[Sequence[Any], int]:
    """The rows of one page of sources with their apps, and the number of all."""
    total = await tx.scalar(select(func.count()).select_from(Source).where(*which), caller.parameters) or 0
    rows = select(*columns).join(App, App.id == Source.app_id).where(*which)
    some = rows.order_by(*order).offset((page - 1) * size).limit(size)
    return (await tx.execute(some, caller.parameters)).all(), total
