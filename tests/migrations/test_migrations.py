"""Up, the schema equals the models, down to nothing, and up again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import NullPool, create_engine, text

from alembic import command
from openmemory.embedded.folder import DataFolder
from openmemory.embedded.postgres import EmbeddedPostgres
from openmemory.schema.migrate import configuration, newest
from openmemory.schema.tables import metadata


@pytest.fixture
async def empty_database(short_folder: Path) -> AsyncIterator[str]:
    """The address of a database that holds nothing, on a server of its own."""
    folder = DataFolder.claim(short_folder / "migrating", listen="")
    server = EmbeddedPostgres(folder)
    await server.start()
    yield server.url
    await server.stop()
    folder.release()


def tables(url: str) -> set[str]:
    with create_engine(url, poolclass=NullPool).connect() as connection:
        found = set(connection.scalars(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")))
    return found - {"alembic_version"}


async def test_migrations_go_up_and_down_and_make_what_the_models_say(empty_database: str):
    config = configuration(empty_database)
    command.upgrade(config, "head")
    assert tables(empty_database) == set(metadata.tables)
    with create_engine(empty_database, poolclass=NullPool).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    command.downgrade(config, "base")
    assert tables(empty_database) == set()
    command.upgrade(config, "head")
    assert tables(empty_database) == set(metadata.tables)


def test_the_newest_revision_is_the_one_that_alembic_knows():
    assert newest() == set(ScriptDirectory.from_config(configuration("postgresql://nowhere")).get_heads())


async def test_what_captures_took_before_it_was_counted_by_day_is_counted(empty_database: str):
    config = configuration(empty_database)
    command.downgrade(config, "base")  # another test may have left its tables
    command.upgrade(config, "2026_11_22_filing")
    captured = """
        WITH u AS (INSERT INTO users (user_id) VALUES ('u') RETURNING id),
            a AS (INSERT INTO apps (owner_id, name) SELECT id, 'a' FROM u RETURNING id, owner_id)
        INSERT INTO captures (user_id, app_id, namespace, input, hash, status, calls, prompt_tokens, finished_at,
            updated_at)
        SELECT owner_id, id, 'n', '{}', 'x', of.status, of.calls, 100 * of.calls, of.at::timestamptz,
            '2026-11-02 23:30Z'
        FROM a, (VALUES ('done', 1, '2026-11-01 12:00Z'), ('undone', 2, '2026-11-01 13:00Z'), ('pending', 2, NULL),
            ('pending', 0, NULL)) AS of (status, calls, at)
    """
    with create_engine(empty_database, poolclass=NullPool).begin() as connection:
        connection.execute(text(captured))
    command.upgrade(config, "head")
    counted = "SELECT day::text, calls, prompt_tokens, done, failed, undone FROM capture_usage ORDER BY day"
    with create_engine(empty_database, poolclass=NullPool).connect() as connection:
        rows = [tuple(row) for row in connection.execute(text(counted))]
    assert rows == [("2026-11-01", 3, 300, 1, 0, 1), ("2026-11-02", 2, 200, 0, 0, 0)]


def test_there_is_one_line_of_migrations():
    script = ScriptDirectory.from_config(configuration("postgresql://localhost/unused"))
    assert len(script.get_heads()) == 1
