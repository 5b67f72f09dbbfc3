"""Upgrades the schema of a database."""

from __future__ import annotations

import asyncio
import logging
import re
from functools import partial
from typing import TYPE_CHECKING

import psycopg
from sqlalchemy import Connection, Engine, create_engine, exc, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from openmemory.config.legacy_env import SWITCH
from openmemory.database.engine import normal_url, reaching
from openmemory.errors import MOVE_BY_ARCHIVES, SetupError
from openmemory.resilience.daemon_threads import in_daemon
from openmemory.schema.catalogue import SCRIPTS, in_words, lacking, needed

if TYPE_CHECKING:  # importing Alembic takes half a second, and most starts have no migration to run
    from alembic.config import Config

log = logging.getLogger(__name__)

OLDEST = 14
"""The oldest major version of PostgreSQL that is supported."""

CONNECT_TIMEOUT = 10
"""Seconds within which a server must answer at startup. Otherwise the service does not start."""

LOOK = 10.0
"""Seconds between checks, during an upgrade, that the server still answers."""

EXTENSIONS = ("btree_gin", "pg_trgm")

OURS = "index_generations"
"""A table that no other program has, the retired OpenMemory server included."""

_REVISION = re.compile(r'^(down_)?revision = (?:None|"(.+)")$', re.MULTILINE)


def configuration(url: str) -> Config:
    """Returns Alembic's configuration for a database."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["url"] = normal_url(url)
    return config


def newest() -> set[str]:
    """Returns the revisions that no other one follows, according to the scripts. There is one."""
    revisions: dict[str, set[str]] = {"": set(), "down_": set()}
    for script in (SCRIPTS / "versions").glob("*.py"):
        for which, revision in _REVISION.findall(script.read_text(encoding="utf-8")):
            revisions[which].add(revision)
    return revisions[""] - revisions["down_"]


def engine_of(url: str) -> Engine:
    """Returns an engine for the URL. It notices within a few `CONNECT_TIMEOUT`s that the server is gone."""
    return create_engine(url, poolclass=NullPool, connect_args=reaching(make_url(url), CONNECT_TIMEOUT))


async def upgrade(url: str, *, only_ours: bool = False) -> None:
    """Upgrade the schema to the newest revision. Replicas that start together wait for each other.

    `only_ours`: fail if the database holds foreign tables, as nobody has said that it is meant for OpenMemory.

    Raises:
        SetupError: the server does not answer, is too old, or lacks an extension that the role may not create; or
            another program has migrated the database.
    """
    upgrading = asyncio.create_task(in_daemon(partial(_upgrade, url, only_ours), name="migrations"))
    try:
        while not (await asyncio.wait([upgrading], timeout=LOOK))[0]:
            await asyncio.to_thread(_answers, url)
    finally:
        upgrading.cancel()  # it may wait for a server that stopped answering
    await upgrading


def _answers(url: str) -> None:
    """Check that the server still answers. An upgrade may take long, or wait for another replica's.

    Raises:
        SetupError: it does not answer.
    """
    engine = engine_of(normal_url(url))
    arguments, options = engine.dialect.create_connect_args(engine.url)
    try:
        # No statement is sent: the driver bounds the time to connect, and nothing else.
        psycopg.connect(*arguments, **{**options, **reaching(engine.url, CONNECT_TIMEOUT)}).close()
    except psycopg.OperationalError as error:
        raise _silent(error) from None


def _silent(error: BaseException | None) -> SetupError:
    reason = str(error).strip().splitlines()[0] if error else "no answer"
    return SetupError(f"database.url: PostgreSQL does not answer: {reason}")


def _up_to_date(connection: Connection, only_ours: bool) -> bool:
    """Returns True if the database belongs to OpenMemory and has the newest revision.

    Raises:
        SetupError: it belongs to another program, or has a revision that no script knows.
    """
    tables = set(connection.scalars(_TABLES))
    if "alembic_version" in tables:
        revisions = set(connection.scalars(text("SELECT version_num FROM alembic_version")))
        if revisions == newest():
            return True
        from alembic.script import ScriptDirectory

        scripts = ScriptDirectory(str(SCRIPTS)).walk_revisions()
        if revisions <= {script.revision for script in scripts}:
            return False
        if OURS in tables:
            raise SetupError(
                f"database.url: the database has the revision {', '.join(sorted(revisions))}, which this OpenMemory"
                f" does not know; start a newer OpenMemory, or {MOVE_BY_ARCHIVES}"
            )
        raise SetupError(
            "database.url: another program's alembic_version table is in this database; give OpenMemory a database of "
            "its own"
        )
    if tables and only_ours:
        raise SetupError(
            f"DATABASE_URL: the database holds tables of something else ({', '.join(sorted(tables)[:3])}); give "
            "OpenMemory one of its own, or set OPENMEMORY_DATABASE_URL to the same address if it is meant; "
            f"{SWITCH}=off ignores DATABASE_URL"
        )
    return False


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
            current = _up_to_date(connection, only_ours)
        if not current:
            from alembic import command

            command.upgrade(configuration(url), "head")
        with engine.connect() as connection:
            _check(connection)
    except exc.OperationalError as error:
        raise _silent(error.orig) from None
    except exc.ProgrammingError as error:
        reason = str(error.orig).strip().splitlines()[0] if error.orig else str(error)
        raise SetupError(
            f"database.url: the schema cannot be brought up to date: {reason}; if an early OpenMemory made it,"
            f" {MOVE_BY_ARCHIVES}"
        ) from None
    finally:
        engine.dispose()


def _check(connection: Connection) -> None:
    """Compare the schema with the one that this version expects.

    Raises:
        SetupError: something is missing that answers need.
    """
    missing = lacking(connection)
    if serious := needed(missing):
        raise SetupError(
            f"database.url: the database lacks what this OpenMemory needs: {in_words(serious)}; restore it from a"
            f" back-up, or, if an early OpenMemory made it, {MOVE_BY_ARCHIVES}"
        )
    if missing:
        log.warning("The database lacks indexes, so that some answers come late: %s", in_words(missing))
