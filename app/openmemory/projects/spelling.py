"""Finds the project that a name nearly names, so that a slip does not begin a second project."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

from sqlalchemy import ColumnElement, Text, cast, exists, func, literal_column, or_, select, union
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.access.readable import readable_by
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.memories.models import Memory
from openmemory.projects.models import Project
from openmemory.sources.models import Source

LIKENESS = 0.8
"""The share of equal characters from which two names are near, as `difflib` counts it: `tidepol` and `tidepool`."""

_MAX_NAMES = 1_000
"""The number of names that are compared."""

_TABLES: tuple[Any, ...] = (Memory, Source, Project)


async def near(tx: Tx, caller: Caller, name: str, others: Collection[str] = ()) -> str | None:
    """The name of a project that is near a name under which the caller may read nothing. None if there is none.

    What a rule hides from the caller counts as nothing. `others`: further names that may be meant.
    """
    if await tx.scalar(select(_holds(caller, name)), caller.parameters):
        return None
    names = [select(rows.namespace).where(readable_by(caller, rows)).distinct() for rows in _TABLES]
    query = union(*names).limit(literal_column(str(_MAX_NAMES)))
    candidates = await tx.scalars(query, caller.parameters)
    return nearest(name, {*candidates, *others})


async def readable_names(tx: Tx, caller: Caller, names: Collection[str]) -> set[str]:
    """Those of the names under which the caller may read something."""
    name = func.unnest(cast(list(names), ARRAY(Text))).column_valued("name")
    return {*await tx.scalars(select(name).where(_holds(caller, name)), caller.parameters)}


def _holds(caller: Caller, name: Any) -> ColumnElement[bool]:
    """True if the caller may read something under a name."""
    return or_(*(exists().where(readable_by(caller, rows), rows.namespace == name) for rows in _TABLES))


def nearest(name: str, candidates: Collection[str]) -> str | None:
    """The known name that is most like this one in any case. Otherwise it is the only one with the same last part."""
    folded = {one.casefold(): one for one in sorted(candidates)}
    lowercase = name.casefold()
    if close := get_close_matches(lowercase, folded, n=1, cutoff=LIKENESS):
        return folded[close[0]]
    last = lowercase.rpartition("/")[2]
    same = [one for fold, one in folded.items() if last in (fold, fold.rpartition("/")[2])]
    return same[0] if len(same) == 1 else None
