"""PostgreSQL: the engine, transactions, and what a failure of it means."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, cast

import psycopg
from psycopg import AsyncConnection as AsyncPgConnection
from psycopg import errors as pg
from sqlalchemy import DateTime, MetaData, event, exc, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.pool import NullPool

from openmemory.config.settings import Database as DatabaseSettings
from openmemory.database.liveness import Connection, Heart, ended
from openmemory.database.pool import Lender, PoolUse
from openmemory.errors import Overtaken, SetupError, Unavailable
from openmemory.serialization import exact_json

log = logging.getLogger(__name__)

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
    pg.IdleInTransactionSessionTimeout,
)

_GRACE = 2.0
"""Seconds beyond `statement_timeout` that PostgreSQL has to report that a statement was cancelled."""

_OLD = 1800
"""Seconds after which a connection is opened anew before it is used again."""

_SAID_EVERY = 30.0
"""Seconds between two lines of the log that say that PostgreSQL is away."""


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
        # So that what a vanished machine of ours locked is free again within a minute or so.
        "tcp_keepalives_idle": "30",
        "tcp_keepalives_interval": "10",
        "tcp_keepalives_count": "3",
        # What a client holds that vanished in the middle is free again. Nothing of ours is ever idle there.
        "idle_in_transaction_session_timeout": "60s",
        "timezone": "UTC",
        "plan_cache_mode": "force_generic_plan",
        "jit": "off",
    }


_PLANNED = "-c plan_cache_mode=force_custom_plan -c work_mem=16MB"
"""What connections set besides whose statements have as many good plans as filters and values. Their sorts are of ids
and stay in memory."""


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
    """How many connections so many processes may have open at once: three pools that may each grow to twice their
    size, the one on which they listen, and a few for looking after the schema."""
    return processes * (6 * settings.pool_size + 1) + 4


def reaching(url: URL, connect_timeout: int) -> dict[str, Any]:
    """How a server is to be reached, as far as the address does not say otherwise: a peer that is gone is noticed
    within some `connect_timeout`s, and of several hosts the one is taken that writes."""
    options = {
        "connect_timeout": connect_timeout,
        "application_name": "openmemory",
        "keepalives_idle": 4 * connect_timeout,
        "keepalives_interval": connect_timeout,
        "keepalives_count": 3,
        "tcp_user_timeout": 2_000 * connect_timeout,
        # Every request writes, if only who read what: a server that only reads is as good as away.
        "target_session_attrs": "read-write",
    }
    return {name: value for name, value in options.items() if name not in url.query}


class Database:
    """A pool of connections to one PostgreSQL.

    Whatever happens to the server, nobody waits longer than about two `connect_timeout`s for a connection and as long
    for an answer, unless the server still gives signs of life: then a little more than `statement_timeout`.
    """

    def __init__(self, url: str, settings: DatabaseSettings) -> None:
        self.url = normal_url(url)
        self._settings = settings
        self._heart = Heart(self._touch)
        parsed = make_url(self.url)
        given = str(parsed.query.get("options", ""))
        session = [f"-c {name}={value}" for name, value in _session(settings).items()]
        self._reaching = reaching(parsed, settings.connect_timeout) | {"options": " ".join([given, *session]).strip()}
        options: dict[str, Any] = {
            "hide_parameters": True,
            "json_serializer": exact_json.for_jsonb,
            "json_deserializer": exact_json.loads,
            "connect_args": self._reaching | {"async_creator_fn": self._connect},
        }
        pool = {
            "pool_size": settings.pool_size,
            "max_overflow": settings.pool_size,
            "pool_timeout": settings.connect_timeout,
            # The connection used last is used first: few ever get opened, and theirs are the warm ones.
            "pool_use_lifo": True,
        }
        self.engine: AsyncEngine = create_async_engine(self.url, **options, **pool)
        event.listen(self.engine.sync_engine, "connect", _opened)
        event.listen(self.engine.sync_engine, "checkout", self._checked)
        # Connections of their own: switching the mode of one for every statement costs as much as a short statement.
        self._statements = self._lender(options)
        planned = {"options": f"{self._reaching['options']} {_PLANNED}"}
        self._planned = self._lender(options | {"connect_args": options["connect_args"] | planned})
        self.failures = 0
        """Transactions and statements that met no PostgreSQL."""
        self._suspect_until = 0.0
        self._away_since: float | None = None
        self._said: float | None = None
        self._told = False
        """Whether the log tells that PostgreSQL is away just now: only then it tells that it answers again."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """One transaction: committed when the block ends, rolled back when it raises.

        Raises:
            Overtaken: PostgreSQL ended it, since it and another one waited for each other; see `retry`.
            Unavailable: PostgreSQL is away, starting, full or too slow. Nothing was written, unless the answer to
                the commit itself was lost: then the write may stand, and repeating it must be safe.
        """
        with _Outage(self):
            async with self.engine.begin() as tx:
                yield tx

    @asynccontextmanager
    async def long_transaction(self, seconds: int, *, snapshot: bool = False) -> AsyncIterator[Tx]:
        """A transaction each of whose statements may take so many seconds. `snapshot`: it only reads, and all of it at
        one moment.

        Raises:
            Unavailable: as `transaction`.
        """
        driver: Connection | None = None
        try:
            async with self.transaction() as tx:
                driver = cast(Connection, (await tx.get_raw_connection()).driver_connection)
                driver.deadline = seconds + _GRACE
                if snapshot:
                    await tx.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
                await tx.execute(text(f"SET LOCAL statement_timeout = '{seconds}s'"))
                # Much may come between two of these statements, and each wants a plan of its own.
                await tx.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = '{seconds}s'"))
                await tx.execute(text("SET LOCAL plan_cache_mode = auto"))
                yield tx
        finally:
            if driver is not None:
                driver.deadline = self._settings.statement_timeout + _GRACE

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Tx]:
        """A connection on which every statement is its own transaction: saves BEGIN and COMMIT round trips."""
        with _Outage(self):
            async with self._statements.lent() as connection:
                yield connection

    @asynccontextmanager
    async def planned(self) -> AsyncIterator[Tx]:
        """The same, for statements that are planned for their values each time: lists, and what is counted."""
        with _Outage(self):
            async with self._planned.lent() as connection:
                yield connection

    async def dedicated(self) -> AsyncPgConnection:
        """A connection of the driver outside the pools, for what belongs to one connection: LISTEN, advisory locks.

        It commits every statement; whoever asks for it closes it.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        with _Outage(self):
            return await self.dedicated_quietly()

    async def dedicated_quietly(self) -> AsyncPgConnection:
        """The same for whoever tries again and again: the log does not hear of a failure.

        Raises:
            psycopg.Error: PostgreSQL does not answer.
        """
        arguments, options = self.engine.dialect.create_connect_args(self.engine.url)
        return await AsyncPgConnection.connect(*arguments, **{**options, **self._reaching}, autocommit=True)

    def pools(self) -> dict[str, PoolUse]:
        """The connections for transactions, those for single statements, and those of lists."""
        pool: Any = self.engine.pool
        return {
            "transactions": PoolUse(pool.checkedout(), pool.checkedin(), 2 * self._settings.pool_size),
            "statements": self._statements.use,
            "planned": self._planned.use,
        }

    async def close(self) -> None:
        """Close every connection."""
        await self.engine.dispose()
        await self._statements.close()
        await self._planned.close()

    def _lender(self, options: dict[str, Any]) -> Lender:
        # Nothing is to be undone on a connection that is closed.
        options = options | {"isolation_level": "AUTOCOMMIT", "poolclass": NullPool, "pool_reset_on_return": None}
        engine = create_async_engine(self.url, **options)
        event.listen(engine.sync_engine, "connect", _opened)
        size = self._settings.pool_size
        return Lender(engine, self._fit, kept=size, most=2 * size, patience=self._settings.connect_timeout)

    async def _connect(self, *arguments: Any, **options: Any) -> Connection:
        # The driver counts for each address of each host; looking a name up counts nowhere.
        attempts = 1 + str(options.get("host", "")).count(",")
        try:
            async with asyncio.timeout((attempts + 1) * self._settings.connect_timeout):
                connection = await Connection.connect(*arguments, **options)
        except TimeoutError:
            raise pg.ConnectionTimeout("connection timeout expired") from None
        connection.patience = self._settings.connect_timeout
        connection.deadline = self._settings.statement_timeout + _GRACE
        connection.alive = self._heart.beats
        return connection

    async def _touch(self) -> psycopg.AsyncConnection[Any]:
        """A connection as any other, for once."""
        arguments, options = self.engine.dialect.create_connect_args(make_url(self.url))
        return await self._connect(*arguments, **{**options, **self._reaching})

    def _checked(self, connection: Any, record: Any, _: Any) -> None:
        """Before a connection of the pool is used: one that ended while it waited there is opened anew, which nobody
        notices. One opened before another broke is suspect: its server may be gone without a word."""
        if record.info.pop("new", False):
            return
        if not self._fit(record.info["opened"], connection.driver_connection):
            raise exc.DisconnectionError

    def _fit(self, opened: float, driver: Any) -> bool:
        """Whether a connection that nobody used for a while may be used again."""
        return max(self._suspect_until, time.monotonic() - _OLD) < opened and not ended(driver)

    def _failed(self, since: float, reason: BaseException, *, broken: bool) -> None:
        """Note that what began at `since` met no PostgreSQL."""
        now = time.monotonic()
        self.failures += 1
        if broken:
            self._suspect_until = max(self._suspect_until, since)
        if self._away_since is None:
            self._away_since, self._told = since, False
        if self._said is None or now - self._said >= _SAID_EVERY:
            self._said, self._told = now, True
            log.warning("PostgreSQL does not answer: %s", _first_line(reason))

    def _answered(self) -> None:
        if self._away_since is not None and self._told:
            log.warning("PostgreSQL answers again, after %.1f s", time.monotonic() - self._away_since)
        self._away_since = None


class _Outage:
    """Translates what the driver raises when PostgreSQL is away; everything else passes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        database = self._database
        if error is None:
            if database._away_since is not None:
                database._answered()
            return
        if isinstance(error, exc.TimeoutError):
            raise Unavailable("The database has no free connection.", code="database_unavailable") from error
        broken = isinstance(error, exc.DBAPIError) and error.connection_invalidated
        cause = error.orig if isinstance(error, exc.DBAPIError) else error
        if isinstance(cause, pg.DeadlockDetected | pg.SerializationFailure) and not broken:
            # PostgreSQL is well, and has ended one of two that waited for each other.
            words = "Somebody else changed the same at the same moment, and nothing was written. Do it again."
            raise Overtaken(words) from error
        if broken or isinstance(cause, (*_AWAY, ConnectionError)):
            # A server that only reads may be one that another has replaced: its connections are of no use either.
            broken = broken or isinstance(cause, pg.ReadOnlySqlTransaction)
            database._failed(self._since, cast(BaseException, cause), broken=broken)
            raise Unavailable("The database does not answer.", code="database_unavailable") from error


def _opened(_: Any, record: Any) -> None:
    record.info["opened"] = time.monotonic()
    record.info["new"] = True


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def violated(error: exc.IntegrityError) -> str:
    """The name of the constraint that an integrity error is about."""
    diagnostics = getattr(error.orig, "diag", None)
    return getattr(diagnostics, "constraint_name", None) or ""
