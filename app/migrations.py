"""Bringing a database's schema up to date."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import psycopg
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, exc, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from alembic import command
from app.daemons import in_daemon
from app.database import normal_url, reaching
from app.errors import SetupError
from app.inherited import SWITCH

OLDEST = 14
"""The oldest major version of PostgreSQL that is supported."""

CONNECT_TIMEOUT = 10
"""Seconds that a server has to answer at a start. One that does not answer then is a reason not to start."""

LOOK = 10.0
"""Seconds of an upgrade after which, again and again, the server is asked whether it is still there."""

EXTENSIONS = ("btree_gin", "pg_trgm")


def configuration(url: str) -> Config:
    """Alembic's configuration for a database; the scripts stand beside the package."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent.parent / "alembic").replace("%", "%%"))
    config.attributes["url"] = normal_url(url)
    return config


def engine_of(url: str) -> Engine:
    """An engine for the address, which finds out within some `CONNECT_TIMEOUT`s that nobody is there."""
    return create_engine(url, poolclass=NullPool, connect_args=reaching(make_url(url), CONNECT_TIMEOUT))


async def upgrade(url: str, *, only_ours: bool = False) -> None:
    """Bring the schema to the newest revision. Replicas that start together wait for each other.

    `only_ours`: not beside the tables of somebody else, for nobody has said that this database is meant for us.

    Raises:
        SetupError: the server does not answer, is too old, or lacks an extension that the role may not create; or the
            database holds what another program has migrated.
    """
    upgrading = asyncio.create_task(in_daemon(partial(_upgrade, url, only_ours), name="migrations"))
    try:
        while not (await asyncio.wait([upgrading], timeout=LOOK))[0]:
            await asyncio.to_thread(_answers, url)
    finally:
        upgrading.cancel()  # what waits for a server that fell silent
    await upgrading


def _answers(url: str) -> None:
    """Whether the server still answers anybody: an upgrade may take long, or wait for another replica's.

    Raises:
        SetupError: it does not.
    """
    engine = engine_of(normal_url(url))
    arguments, options = engine.dialect.create_connect_args(engine.url)
    try:
        # Nothing is asked on it: the driver bounds how long a connection may take, and no more.
        psycopg.connect(*arguments, **{**options, **reaching(engine.url, CONNECT_TIMEOUT)}).close()
    except psycopg.OperationalError as error:
        raise _silent(error) from None


def _silent(error: BaseException | None) -> SetupError:
    reason = str(error).strip().splitlines()[0] if error else "no answer"
    return SetupError(f"database.url: PostgreSQL does not answer: {reason}")


def _refuse_others(connection: Connection, config: Config, only_ours: bool) -> None:
    """Leave a database alone that is somebody else's."""
    tables = set(connection.scalars(_TABLES))
    if "alembic_version" in tables:
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        if set(connection.scalars(text("SELECT version_num FROM alembic_version"))) <= known:
            return
        if "index_marks" in tables:
            raise SetupError("database.url: a newer OpenMemory has used this database; start that one, or a newer one")
        raise SetupError(
            "database.url: another program's migrations are noted in this database (alembic_version); give OpenMemory "
            "a database of its own"
        )
    if tables and only_ours:
        raise SetupError(
            f"DATABASE_URL: the database holds tables of something else ({', '.join(sorted(tables)[:3])}); give "
            "OpenMemory one of its own, or set OPENMEMORY_DATABASE_URL to the same address if it is meant; "
            f"{SWITCH}=off ignores DATABASE_URL"
        )


_TABLES = text(
    """
    SELECT c.relname FROM pg_class AS c
    WHERE c.relnamespace = to_regnamespace(current_schema()::text) AND c.relkind IN ('r', 'p', 'f')
        AND NOT EXISTS (
            SELECT FROM pg_depend AS d
            WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
        )
    """
)


def _upgrade(url: str, only_ours: bool) -> None:
    engine = engine_of(normal_url(url))
    try:
        with engine.connect() as connection:
            version = connection.scalar(text("SELECT current_setting('server_version_num')::int")) or 0
            if version < OLDEST * 10_000:
                raise SetupError(
                    f"database.url: PostgreSQL {version // 10_000} is too old; needed is {OLDEST} or newer"
                )
            if (encoding := connection.scalar(text("SHOW server_encoding"))) != "UTF8":
                raise SetupError(f"database.url: the database is encoded in {encoding}; create it with ENCODING 'UTF8'")
            available = set(connection.scalars(text("SELECT name FROM pg_available_extensions")))
            if missing := [name for name in EXTENSIONS if name not in available]:
                raise SetupError(
                    f"database.url: the server lacks the extensions {', '.join(missing)};"
                    " install PostgreSQL's contrib package"
                )
            _refuse_others(connection, configuration(url), only_ours)
        command.upgrade(configuration(url), "head")
    except exc.OperationalError as error:
        raise _silent(error.orig) from None
    except exc.ProgrammingError as error:
        reason = str(error.orig).strip().splitlines()[0] if error.orig else str(error)
        raise SetupError(f"database.url: the schema cannot be brought up to date: {reason}") from None
    finally:
        engine.dispose()
