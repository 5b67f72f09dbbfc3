"""Bringing a database's schema up to date."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from sqlalchemy import Connection, Engine, create_engine, exc, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from openmemory.config.legacy_env import SWITCH
from openmemory.database.engine import normal_url, reaching
from openmemory.errors import SetupError
from openmemory.resilience.daemon_threads import in_daemon

if TYPE_CHECKING:  # loading Alembic takes half a second, and most starts find nothing to do for it
    from alembic.config import Config

OLDEST = 14
"""The oldest major version of PostgreSQL that is supported."""

CONNECT_TIMEOUT = 10
"""Seconds that a server has to answer at a start. One that does not answer then is a reason not to start."""

LOOK = 10.0
"""Seconds of an upgrade after which, again and again, the server is asked whether it is still there."""

EXTENSIONS = ("btree_gin", "pg_trgm")


SCRIPTS = Path(__file__).parents[1] / "migrations"
"""In a checkout a link to `alembic/`."""

_REVISION = re.compile(r'^(down_)?revision = (?:None|"(.+)")$', re.MULTILINE)


def configuration(url: str) -> Config:
    """Alembic's configuration for a database."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["url"] = normal_url(url)
    return config


def newest() -> set[str]:
    """The revisions that no other one follows, as the scripts say: one."""
    found: dict[str, set[str]] = {"": set(), "down_": set()}
    for script in (SCRIPTS / "versions").glob("*.py"):
        for which, revision in _REVISION.findall(script.read_text(encoding="utf-8")):
            found[which].add(revision)
    return found[""] - found["down_"]


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


def _up_to_date(connection: Connection, only_ours: bool) -> bool:
    """Whether a database that is ours has the newest revision.

    Raises:
        SetupError: it is somebody else's.
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
            if _up_to_date(connection, only_ours):
                return
        from alembic import command

        command.upgrade(configuration(url), "head")
    except exc.OperationalError as error:
        raise _silent(error.orig) from None
    except exc.ProgrammingError as error:
        reason = str(error.orig).strip().splitlines()[0] if error.orig else str(error)
        raise SetupError(f"database.url: the schema cannot be brought up to date: {reason}") from None
    finally:
        engine.dispose()
