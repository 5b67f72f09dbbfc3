"""Compares the schema of a database with the one that the migrations of this version make."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, text

from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql

SCRIPTS = Path(__file__).parents[1] / "migrations"
"""In a checkout, a link to `alembic/`."""

FILE = SCRIPTS / "schema.txt"
"""Every line of the catalogue after the newest migration."""

_SHOWN = 5

_CATALOGUE = text(load_sql(__name__, "catalogue"))


@cache
def expected() -> frozenset[str]:
    """Returns what this version needs: tables, columns, indexes, constraints, triggers, functions and types."""
    return frozenset(FILE.read_text(encoding="utf-8").splitlines())


def catalogue(connection: Connection) -> set[str]:
    """Returns what a database has, in the form of `expected`."""
    return set(connection.scalars(_CATALOGUE))


def lacking(connection: Connection) -> list[str]:
    """Returns what a database lacks of `expected`, tables first. Additional things are allowed."""
    return sorted(expected() - catalogue(connection), key=lambda line: (not line.startswith("table "), line))


async def lacking_now(tx: Tx) -> list[str]:
    """Returns what a database lacks of `expected`."""
    return await tx.run_sync(lacking)


def needed(lacking: Iterable[str]) -> list[str]:
    """Returns the things without which answers would be wrong or fail. Without a plain index they are only late."""
    return [line for line in lacking if not line.startswith("index ")]


def in_words(lacking: list[str]) -> str:
    """Returns the things as part of a sentence: the first ones, and how many there are."""
    more = len(lacking) - _SHOWN
    return ", ".join(lacking[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
