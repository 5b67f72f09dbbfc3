"""Up, the schema equals the models, down to nothing, and up again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import IntegrityError

from alembic import command
from openmemory.memories.changes import text_hash
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


async def test_hashes_of_older_texts_become_those_of_their_normal_form_and_nothing_is_lost(empty_database: str):
    config = configuration(empty_database)
    command.upgrade(config, "head")
    command.downgrade(config, "2026_11_25_first")
    texts = {
        "plain": ("Ada drinks tea", "active"), "blank": ("Ada drinks coffee ", "active"),
        "NFD": ("Zoe\u0301 sings\r\n", "archived"), "first": ("Bob runs", "active"), "second": ("Bob runs\n", "active"),
    }  # fmt: skip
    ids = {name: uuid4() for name in texts}
    engine = create_engine(empty_database, poolclass=NullPool)
    with engine.begin() as connection:
        user, app = uuid4(), uuid4()
        connection.execute(text("INSERT INTO users (id, user_id) VALUES (:user, 'u')"), {"user": user})
        connection.execute(
            text("INSERT INTO apps (id, owner_id, name) VALUES (:app, :user, 'a')"), {"app": app, "user": user}
        )
        for name, (content, state) in texts.items():
            values = {"id": ids[name], "user": user, "app": app, "content": content, "state": state}
            connection.execute(
                text(
                    "INSERT INTO memories (id, user_id, app_id, content, hash, state)"
                    " VALUES (:id, :user, :app, CAST(:content AS text), md5(CAST(:content AS text)),"
                    " CAST(:state AS memory_state))"
                ),
                values,
            )
            connection.execute(
                text(
                    "INSERT INTO embeddings (kind, id, model, text_hash, vector, chunking)"
                    " VALUES ('memory', :id, 'm', md5(CAST(:content AS text)), '\\x00000000', 'c')"
                ),
                values,
            )
    command.upgrade(config, "head")
    query = text("SELECT m.id, m.content, m.hash, e.text_hash FROM memories AS m JOIN embeddings AS e ON e.id = m.id")
    with engine.connect() as connection:
        rows = {row.id: row for row in connection.execute(query)}
    assert {
        name: (rows[id_].content, rows[id_].hash) for name, id_ in ids.items() if name not in ("first", "second")
    } == {
        name: (content, text_hash(content)) for name, (content, _) in texts.items() if name not in ("first", "second")
    }
    assert all(row.hash == row.text_hash for row in rows.values())
    assert {rows[ids["first"]].hash, rows[ids["second"]].hash} == {
        text_hash("Bob runs"), hashlib.md5(b"Bob runs\n", usedforsecurity=False).hexdigest(),
    }  # fmt: skip
    command.downgrade(config, "2026_11_25_first")
    with engine.connect() as connection:
        assert all(
            row.hash == row.text_hash == hashlib.md5(row.content.encode(), usedforsecurity=False).hexdigest()
            for row in connection.execute(query)
        )


@pytest.mark.slow
async def test_registrations_stay_and_each_app_may_have_one(empty_database: str):
    config = configuration(empty_database)
    command.upgrade(config, "head")
    command.downgrade(config, "2026_11_27_installation")
    user, apps = uuid4(), {"first": uuid4(), "second": uuid4()}
    registered = text(
        "INSERT INTO projects (user_id, app_id, namespace, name, created_at)"
        " VALUES (:user, :app, :namespace, :name, CAST(:at AS timestamptz))"
    )
    query = text("SELECT namespace, name FROM projects ORDER BY namespace, created_at")

    def register(connection: Connection, app: str, namespace: str, day: int) -> None:
        values = {"user": user, "app": apps[app], "namespace": namespace, "name": app, "at": f"2026-11-{day}"}
        connection.execute(registered, values)

    engine = create_engine(empty_database, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO users (id, user_id) VALUES (:user, 'u')"), {"user": user})
        for name, id_ in apps.items():
            values = {"app": id_, "user": user, "name": name}
            connection.execute(text("INSERT INTO apps (id, owner_id, name) VALUES (:app, :user, :name)"), values)
        register(connection, "first", "shop", 2)
        register(connection, "second", "house", 2)
    command.upgrade(config, "head")
    with engine.begin() as connection:
        assert connection.execute(query).all() == [("house", "second"), ("shop", "first")]
        register(connection, "second", "shop", 3)
        register(connection, "first", "house", 1)
    with pytest.raises(IntegrityError, match="uq_projects_user_id_namespace_app_id"), engine.begin() as connection:
        register(connection, "first", "shop", 4)
    command.downgrade(config, "2026_11_27_installation")
    with engine.connect() as connection:
        assert connection.execute(query).all() == [("house", "first"), ("shop", "first")]
