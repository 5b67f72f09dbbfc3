"""PostgreSQL: the engine, transactions, and what a failure of it means."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import orjson
from psycopg import AsyncConnection as AsyncPgConnection
from psycopg import errors as pg
from sqlalchemy import DateTime, MetaData, exc
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.orm import DeclarativeBase

from app.config import Database as DatabaseSettings
from app.errors import SetupError, Unavailable

Tx = AsyncConnection
"""A connection inside a transaction. Inner functions take it first and never commit."""

_AWAY = (
    pg.OperationalError,
    pg.InterfaceError,
    pg.QueryCanceled,
    pg.AdminShutdown,
    pg.CrashShutdown,
    pg.CannotConnectNow,
    pg.TooManyConnections,
    pg.InsufficientResources,
    pg.ReadOnlySqlTransaction,
)


class Base(DeclarativeBase):
    """Base of every table."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {datetime: DateTime(timezone=True), dict[str, Any]: JSONB}  # noqa: RUF012


def _session(settings: DatabaseSettings) -> dict[str, str]:
    """What every connection sets. Our few statements are prepared and alike for all callers: planning each anew, or
    compiling it, costs more than it saves (a search among 10,000 memories: 4.1 ms of CPU instead of 1.8)."""
    return {
        "statement_timeout": f"{settings.statement_timeout}s",
        "timezone": "UTC",
        "plan_cache_mode": "force_generic_plan",
        "jit": "off",
    }


def normal_url(url: str) -> str:
    """Any usual spelling of a PostgreSQL address as SQLAlchemy and psycopg take it.

    Raises:
        SetupError: it is not a PostgreSQL address; the message never repeats it, it may hold a password.
    """
    try:
        parsed = make_url(url)
    except exc.ArgumentError:
        raise SetupError("database.url: not an address; valid is postgresql://user:password@host:5432/name") from None
    if parsed.drivername.partition("+")[0] not in {"postgresql", "postgres"}:
        raise SetupError(
            f"database.url: {parsed.drivername!r} is not supported; valid is postgresql://user:password@host:5432/name"
        )
    return parsed.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


def most_connections(settings: DatabaseSettings, *, processes: int) -> int:
    """How many connections so many processes may have open at once: two pools that may each grow to twice their size,
    the one on which they listen, and a few for looking after the schema."""
    return processes * (4 * settings.pool_size + 1) + 4


class Database:
    """A pool of connections to one PostgreSQL."""

    def __init__(self, url: str, settings: DatabaseSettings) -> None:
        self.url = normal_url(url)
        self._connect_timeout = settings.connect_timeout
        options: dict[str, Any] = {
            "pool_size": settings.pool_size,
            "max_overflow": settings.pool_size,
            "pool_timeout": settings.connect_timeout,
            "pool_recycle": 1800,
            # The connection used last is used first: few ever get opened, and theirs are the warm ones.
            "pool_use_lifo": True,
            "hide_parameters": True,
            "json_serializer": lambda value: orjson.dumps(value).decode(),
            "json_deserializer": orjson.loads,
            "connect_args": {
                "connect_timeout": settings.connect_timeout,
                "application_name": "openmemory",
                "options": " ".join(f"-c {name}={value}" for name, value in _session(settings).items()),
            },
        }
        self.engine: AsyncEngine = create_async_engine(self.url, **options)
        # A pool of its own: switching the mode of a connection for every statement costs as much as a short statement.
        self._statements = create_async_engine(
            self.url, isolation_level="AUTOCOMMIT", pool_reset_on_return=None, **options
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """One transaction: committed when the block ends, rolled back when it raises.

        Raises:
            Unavailable: PostgreSQL is away, starting, full or too slow. Nothing was written, unless the answer to
                the commit itself was lost: then the write may stand, and repeating it must be safe.
        """
        with _outage():
            async with self.engine.begin() as tx:
                yield tx

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Tx]:
        """A connection on which every statement is its own transaction: saves BEGIN and COMMIT round trips."""
        with _outage():
            async with self._statements.connect() as connection:
                yield connection

    async def dedicated(self) -> AsyncPgConnection:
        """A connection of the driver outside the pools, for what belongs to one connection: LISTEN, advisory locks.

        It commits every statement; whoever asks for it closes it.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        arguments, options = self.engine.dialect.create_connect_args(self.engine.url)
        with _outage():
            return await AsyncPgConnection.connect(
                *arguments,
                **options,
                autocommit=True,
                connect_timeout=self._connect_timeout,
                application_name="openmemory",
            )

    async def close(self) -> None:
        """Close every connection."""
        await self.engine.dispose()
        await self._statements.dispose()


class _outage:
    """Translates what the driver raises when PostgreSQL is away; everything else passes."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, exc.TimeoutError):
            raise Unavailable("The database has no free connection.", code="database_unavailable") from error
        if isinstance(error, exc.DBAPIError) and (error.connection_invalidated or isinstance(error.orig, _AWAY)):
            raise Unavailable("The database does not answer.", code="database_unavailable") from error
        if isinstance(error, pg.OperationalError | pg.InterfaceError | ConnectionError):
            raise Unavailable("The database does not answer.", code="database_unavailable") from error


def violated(error: exc.IntegrityError) -> str:
    """The name of the constraint that an integrity error is about."""
    diagnostics = getattr(error.orig, "diag", None)
    return getattr(diagnostics, "constraint_name", None) or ""
