"""Compiled statements of the hot path, passed directly to the driver.

Executing through SQLAlchemy costs 0.6 ms of Python and more for a long statement, most of it spent on recomputing what
the last call computed: the cache key, the parameters' order, the placeholders. A search has two such statements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
from psycopg import AsyncRawCursor
from psycopg.rows import namedtuple_row, tuple_row
from sqlalchemy import ClauseElement, Text, TextClause, bindparam, exc, text
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.types import TypeEngine

from openmemory.database.engine import Tx
from openmemory.database.pool import driver_of

_DIALECT = PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]


def bound(sql: str, types: Mapping[str, TypeEngine[Any]]) -> TextClause:
    """Returns SQL text whose `:names` are parameters of these types; those without a type are texts."""
    names = sorted(set(re.findall(r"(?<![:\w]):(\w+)", sql)))
    return text(sql).bindparams(*(bindparam(name, type_=types.get(name, Text())) for name in names))


class CompiledStatement:
    """One compiled statement with named parameters, whose rows are named tuples.

    `plain`: rows are tuples, which is faster for many rows. `binary`: values come in the server's binary format, which
    halves the size of bytes and is no faster for other types. `prepare`: the server stores the prepared statement.

    Raises:
        ValueError: a parameter is a list that must be expanded, as for `in_()`; use `= any(array)` instead.
    """

    def __init__(
        self, statement: ClauseElement, *, plain: bool = False, binary: bool = False, prepare: bool = True
    ) -> None:
        self._prepare = prepare
        self._binary = binary
        self._row_factory: Any = tuple_row if plain else namedtuple_row
        compiled: Any = statement.compile(dialect=_DIALECT)
        if "POSTCOMPILE" in (sql := str(compiled)):
            raise ValueError(f"the text of this statement depends on its parameters: {sql}")
        self._sql = sql.encode()
        self._defaults: dict[str, Any] = dict(compiled.params)
        self._parameters: list[tuple[str, Callable[[Any], Any] | None]] = [
            (name, compiled.binds[name].type.dialect_impl(_DIALECT).bind_processor(_DIALECT))
            for name in compiled.positiontup or ()
        ]

    async def rows(self, tx: Tx, values: Mapping[str, Any]) -> list[Any]:
        """Execute it. `values` must hold every parameter for which the statement has no value.

        Raises:
            sqlalchemy.exc.DBAPIError: as SQLAlchemy would raise it; a broken connection is invalidated.
        """
        arguments = self._arguments(values)
        driver = await driver_of(tx)
        cursor = AsyncRawCursor(driver, row_factory=self._row_factory)
        try:
            await cursor.execute(self._sql, arguments, prepare=self._prepare, binary=self._binary)
            return await cursor.fetchall()
        except psycopg.Error as error:
            if broken := driver.closed:
                await tx.invalidate(error)
            raise exc.DBAPIError.instance(
                None, None, error, psycopg.Error, hide_parameters=True, connection_invalidated=broken
            ) from error

    async def plan(self, tx: Tx, values: Mapping[str, Any], options: str = "COSTS OFF") -> str:
        """Returns PostgreSQL's plan, as EXPLAIN prints it with these options."""
        cursor = AsyncRawCursor(await driver_of(tx))
        await cursor.execute(f"EXPLAIN ({options}) ".encode() + self._sql, self._arguments(values), prepare=False)
        return "\n".join(row[0] for row in await cursor.fetchall())

    def _arguments(self, values: Mapping[str, Any]) -> list[Any]:
        defaults = self._defaults
        arguments = []
        for name, process in self._parameters:
            value = values[name] if name in values else defaults[name]
            arguments.append(value if process is None else process(value))
        return arguments
