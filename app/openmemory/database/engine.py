"""PostgreSQL: the engine, transactions, and the translation of its failures."""

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

from openmemory.config.settings import DatabaseSettings
from openmemory.database.failures import cause_of, unavailable
from openmemory.database.liveness import Connection, LivenessCheck, ended
from openmemory.database.pool import CheckoutLimit, ConnectionPool, PoolUse
from openmemory.errors import SetupError, WriteConflict
from openmemory.serialization import exact_json

log = logging.getLogger(__name__)

Tx = AsyncConnection
"""A connection inside a transaction. Inner functions take it as their first argument and never commit."""

_GRACE = 2.0
"""Seconds beyond `statement_timeout` in which PostgreSQL may report a cancelled statement."""

_NO_POOL: dict[str, Any] = {"poolclass": NullPool, "pool_reset_on_return": None}
"""For engines whose connections `ConnectionPool` keeps. What it closes has nothing to roll back."""

_OLD = 1800
"""Seconds after which a connection is reopened before it is used again."""

_REPORT_INTERVAL = 30.0
"""Seconds between two log lines that report that PostgreSQL is down."""


class Base(DeclarativeBase):
    """The declarative base of every table."""

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
    """The parameters that every connection sets. Our few statements are prepared and the same for all callers, so
    planning or compiling each of them again costs more than it saves (a search among 10,000 memories: 4.1 ms of CPU
    instead of 1.8)."""
    return {
        "statement_timeout": f"{settings.statement_timeout}s",
        "lock_timeout": _lock_timeout(settings.statement_timeout),
        # Releases the locks of a vanished client machine within about a minute.
        "tcp_keepalives_idle": "30",
        "tcp_keepalives_interval": "10",
        "tcp_keepalives_count": "3",
        # Releases what a client holds that vanished in the middle of a transaction. Ours are never idle in one.
        "idle_in_transaction_session_timeout": "60s",
        "timezone": "UTC",
        "plan_cache_mode": "force_generic_plan",
        "jit": "off",
    }


def _lock_timeout(seconds: int) -> str:
    """A little less than the timeout of a statement, so that a statement that waits for a lock reports the lock."""
    return f"{900 * seconds}ms"


_PLANNED = "-c plan_cache_mode=force_custom_plan -c work_mem=16MB"
"""Extra parameters of connections for statements whose best plan depends on their filters and values. They sort only
ids, which fit in memory."""


def normal_url(url: str) -> str:
    """Returns a PostgreSQL URL, in any usual spelling, in the form that SQLAlchemy and psycopg expect.

    Raises:
        SetupError: it is not a PostgreSQL URL. The message never repeats it, because it may contain a password.
    """
    try:
        parsed_url = make_url(url)
    except exc.ArgumentError:
        raise SetupError("database.url: not an address; valid is postgresql://user:password@host:5432/name") from None
    if parsed_url.drivername.partition("+")[0] not in {"postgresql", "postgres"}:
        raise SetupError(
            f"database.url: {parsed_url.drivername!r} is not supported; valid is postgresql://user:password@host:5432/name"
        )
    return parsed_url.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


def reaching(url: URL, connect_timeout: int) -> dict[str, Any]:
    """The connection options that the URL does not set itself. A vanished peer is detected within a few
    `connect_timeout`s, and of several hosts the writable one is chosen."""
    options = {
        "connect_timeout": connect_timeout,
        "application_name": "openmemory",
        "keepalives_idle": 4 * connect_timeout,
        "keepalives_interval": connect_timeout,
        "keepalives_count": 3,
        "tcp_user_timeout": 2_000 * connect_timeout,
        # Every request writes, if only to the access log, so a read-only server is as good as down.
        "target_session_attrs": "read-write",
    }
    return {name: value for name, value in options.items() if name not in url.query}


class Database:
    """A connection pool for one PostgreSQL server.

    Whatever happens to the server, a caller waits at most about two `connect_timeout`s for a connection and as long for
    an answer. If the server still shows signs of life, the limit is a little more than `statement_timeout`.
    """

    def __init__(self, url: str, settings: DatabaseSettings) -> None:
        self.url = normal_url(url)
        self._settings = settings
        self._heart = LivenessCheck(self._touch)
        parsed_url = make_url(self.url)
        url_options = str(parsed_url.query.get("options", ""))
        session = [f"-c {name}={value}" for name, value in _session(settings).items()]
        self._reaching = reaching(parsed_url, settings.connect_timeout) | {
            "options": " ".join([url_options, *session]).strip()
        }
        options: dict[str, Any] = {
            "hide_parameters": True,
            "json_serializer": exact_json.for_jsonb,
            "json_deserializer": exact_json.loads,
            "connect_args": self._reaching | {"async_creator_fn": self._connect},
        }
        size = settings.pool_size
        self._transactions = self._pool(create_async_engine(self.url, **options, **_NO_POOL), size)
        # Separate pools: switching one connection's mode for every statement costs as much as a short statement.
        options["isolation_level"] = "AUTOCOMMIT"
        self._statements = self._pool(create_async_engine(self.url, **options, **_NO_POOL), size)
        plan_options = {"options": f"{self._reaching['options']} {_PLANNED}"}
        options["connect_args"] = options["connect_args"] | plan_options
        self._planned = self._pool(create_async_engine(self.url, **options, **_NO_POOL), size)
        self.engine = self._transactions.engine
        self.failures = 0
        """The number of transactions and statements that failed because PostgreSQL was down."""
        self._suspect_until = 0.0
        self._away_since: float | None = None
        self._last_report: float | None = None
        self._last_crowded_report: float | None = None
        self._outage_reported = False
        """True if the log reported the current outage. Only then does it also report the recovery."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """One transaction: committed when the block ends, rolled back when it raises.

        Raises:
            WriteConflict: PostgreSQL aborted it because of a deadlock or serialization conflict; see `retry`.
            Unavailable: PostgreSQL is down, starting, full or too slow. Nothing was written, unless the response to
                the commit itself was lost: then the write may have succeeded, and repeating it must be safe.
        """
        with _Outage(self):
            async with self._transactions.connection() as tx, tx.begin():
                yield tx

    @asynccontextmanager
    async def long_transaction(self, seconds: int, *, snapshot: bool = False) -> AsyncIterator[Tx]:
        """A transaction in which each statement may take `seconds`. `snapshot`: read-only, with all reads from one
        snapshot.

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
                await tx.execute(text(f"SET LOCAL lock_timeout = '{_lock_timeout(seconds)}'"))
                # Much time may pass between two of these statements, and each needs its own plan.
                await tx.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = '{seconds}s'"))
                await tx.execute(text("SET LOCAL plan_cache_mode = auto"))
                yield tx
        finally:
            if driver is not None:
                driver.deadline = self._settings.statement_timeout + _GRACE

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Tx]:
        """A connection on which every statement is its own transaction. Saves the BEGIN and COMMIT round trips."""
        with _Outage(self):
            async with self._statements.connection() as connection:
                yield connection

    @asynccontextmanager
    async def planned(self) -> AsyncIterator[Tx]:
        """Like `statement`, for statements that are planned for their values each time: lists and counts."""
        with _Outage(self):
            async with self._planned.connection() as connection:
                yield connection

    @asynccontextmanager
    async def unpooled(self) -> AsyncIterator[Tx]:
        """Like `statement`, with a connection outside the pools, for LISTEN. A failure is not logged.

        Raises:
            sqlalchemy.exc.DBAPIError: PostgreSQL does not answer.
        """
        async with self._statements.engine.connect() as connection:
            yield connection

    async def dedicated(self) -> AsyncPgConnection:
        """A driver connection outside the pools, for connection-scoped features such as advisory locks.

        It commits every statement. The caller must close it.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        with _Outage(self):
            return await self.dedicated_quietly()

    async def dedicated_quietly(self) -> AsyncPgConnection:
        """Like `dedicated`, for callers that retry continuously: a failure is not logged.

        Raises:
            psycopg.Error: PostgreSQL does not answer.
        """
        arguments, options = self.engine.dialect.create_connect_args(self.engine.url)
        return await AsyncPgConnection.connect(*arguments, **{**options, **self._reaching}, autocommit=True)

    def pools(self) -> dict[str, PoolUse]:
        """Returns the usage of the pools for transactions, single statements and lists."""
        return {
            "transactions": self._transactions.use,
            "statements": self._statements.use,
            "planned": self._planned.use,
        }

    async def close(self) -> None:
        """Close every connection."""
        for pool in (self._transactions, self._statements, self._planned):
            await pool.close()

    def _pool(self, engine: AsyncEngine, size: int) -> ConnectionPool:
        event.listen(engine.sync_engine, "connect", _record_opening)
        limit = CheckoutLimit(size, stalled=self._settings.connect_timeout, longest=self._settings.pool_timeout)
        return ConnectionPool(engine, self._fit, size=size, limit=limit, make_room=self._make_room)

    async def _make_room(self) -> bool:
        """Closes a connection that a pool keeps for later, because the server grants no other. Returns False if there
        is none."""
        for pool in (self._planned, self._statements, self._transactions):
            if await pool.drop_idle():
                return True
        now = time.monotonic()
        if self._last_crowded_report is None or now - self._last_crowded_report >= _REPORT_INTERVAL:
            self._last_crowded_report = now
            log.warning("PostgreSQL grants no further connection; requests wait for those that are open")
        return False

    async def _connect(self, *arguments: Any, **options: Any) -> Connection:
        # The driver applies its timeout to each address of each host; name resolution has none.
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
        """Opens an ordinary connection outside the pools, for one check."""
        arguments, options = self.engine.dialect.create_connect_args(make_url(self.url))
        return await self._connect(*arguments, **{**options, **self._reaching})

    def _fit(self, opened: float, driver: Any) -> bool:
        """Returns True if an idle connection can be used again. One that was opened before another broke is suspect:
        its server may have vanished silently."""
        return max(self._suspect_until, time.monotonic() - _OLD) < opened and not ended(driver)

    def _record_failure(self, since: float, reason: BaseException, *, broken: bool) -> None:
        """Record that an operation that began at `since` failed because PostgreSQL was down."""
        now = time.monotonic()
        self.failures += 1
        if broken:
            self._suspect_until = max(self._suspect_until, since)
        if self._away_since is None:
            self._away_since, self._outage_reported = since, False
        if self._last_report is None or now - self._last_report >= _REPORT_INTERVAL:
            self._last_report, self._outage_reported = now, True
            log.warning("PostgreSQL does not answer: %s", _first_line(reason))

    def _record_answer(self) -> None:
        if self._away_since is not None and self._outage_reported:
            log.warning("PostgreSQL answers again, after %.1f s", time.monotonic() - self._away_since)
        self._away_since = None


class _Outage:
    """Translates driver errors that mean PostgreSQL is down. Other exceptions pass unchanged."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        database = self._database
        if error is None:
            if database._away_since is not None:
                database._record_answer()
            return
        broken = isinstance(error, exc.DBAPIError) and error.connection_invalidated
        refusal = unavailable(error, broken=broken)
        if refusal is None:
            return
        if not isinstance(error, exc.TimeoutError) and not isinstance(refusal, WriteConflict):
            cause = cause_of(error)
            # A read-only server may have been replaced by another, so its connections are useless too.
            database._record_failure(self._since, cause, broken=broken or isinstance(cause, pg.ReadOnlySqlTransaction))
        raise refusal from error


def _record_opening(_: Any, record: Any) -> None:
    record.info["opened"] = time.monotonic()


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def violated(error: exc.IntegrityError) -> str:
    """Returns the name of the constraint that an integrity error is about."""
    diagnostics = getattr(error.orig, "diag", None)
    return getattr(diagnostics, "constraint_name", None) or ""
