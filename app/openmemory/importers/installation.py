"""Reads the tables of an old OpenMemory, which are the same in SQLite and in PostgreSQL."""

from __future__ import annotations

from openmemory.importers.databases import ForeignDatabase, Show, must_have, read
from openmemory.importers.source import BadSource
from openmemory.importers.staging import OLD_TABLES, Staging

_NEEDED = ("users", "apps", "memories")
_OURS = "index_generations"
"""A table that only this service has."""


def stage(database: ForeignDatabase, staging: Staging, show: Show) -> None:
    """Stages all users with all of their data.

    Raises:
        BadSource: it is not a database of OpenMemory.
    """
    if _OURS in database.columns:
        raise BadSource(
            "is a database of this service", hint="`openmemory export` writes an archive, which can be imported"
        )
    must_have(database, "OpenMemory", dict.fromkeys(_NEEDED, ("id",)))
    for table, row in read(database, OLD_TABLES, show):
        staging.add(table, row)
    if "configs" in database.columns and database.count("configs"):
        staging.general_notes.append(
            "The configuration is not imported, because it may contain keys; `openmemory config` shows the current one."
        )
