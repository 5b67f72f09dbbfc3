"""Up, the schema equals the models, down to nothing, and up again."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import NullPool, create_engine, text

from alembic import command
from openmemory.schema.catalogue import FILE, catalogue
from openmemory.schema.migrate import configuration, newest
from openmemory.schema.tables import metadata
from tests.migrations.servers import server


@pytest.fixture
async def empty_database() -> AsyncIterator[str]:
    """The address of a database that holds nothing, on a server of its own."""
    async with server() as url:
        yield url


def tables(url: str) -> set[str]:
    with create_engine(url, poolclass=NullPool).connect() as connection:
        found = set(connection.scalars(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")))
    return found - {"alembic_version"}


def functions_and_types(url: str) -> set[str]:
    """Those of the schema that no extension and no table brought."""
    query = """
        SELECT p.proname FROM pg_proc AS p WHERE p.pronamespace = 'public'::regnamespace
            AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = p.oid AND d.deptype = 'e')
        UNION SELECT t.typname FROM pg_type AS t WHERE t.typnamespace = 'public'::regnamespace AND t.typtype = 'e'
    """
    with create_engine(url, poolclass=NullPool).connect() as connection:
        return set(connection.scalars(text(query)))


async def test_migrations_go_up_and_down_and_make_what_the_models_say(empty_database: str):
    config = configuration(empty_database)
    command.upgrade(config, "head")
    assert tables(empty_database) == set(metadata.tables)
    assert {"lexical_words", "memory_state"} <= functions_and_types(empty_database)
    with create_engine(empty_database, poolclass=NullPool).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        made = "".join(f"{line}\n" for line in sorted(catalogue(connection)))
    if "OPENMEMORY_TEST_UPDATE" in os.environ:
        FILE.write_text(made, encoding="utf-8")
    assert FILE.read_text(encoding="utf-8") == made, "run OPENMEMORY_TEST_UPDATE=1 make migrations"
    command.downgrade(config, "base")
    assert tables(empty_database) == set()
    assert functions_and_types(empty_database) == set()
    command.upgrade(config, "head")
    assert tables(empty_database) == set(metadata.tables)


def test_the_newest_revision_is_the_one_that_alembic_knows():
    assert newest() == set(ScriptDirectory.from_config(configuration("postgresql://nowhere")).get_heads())


def test_there_is_one_line_of_migrations():
    assert len(newest()) == 1
