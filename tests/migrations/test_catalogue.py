"""A database that lacks something of this version's schema is noticed, and told by name."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from openmemory.errors import SetupError
from openmemory.schema.catalogue import in_words, lacking_now, needed
from openmemory.schema.migrate import upgrade
from openmemory.services import Services
from tests.migrations.servers import server

CHANGES = {
    "DROP TABLE memory_links": "table memory_links",
    "ALTER TABLE projects DROP COLUMN branch": "column projects.branch character varying",
    "ALTER TABLE sources ALTER COLUMN bytes TYPE integer": "column sources.bytes bigint",
    "ALTER TABLE captures ALTER COLUMN hash DROP NOT NULL": "column captures.hash character varying not null",
    "ALTER TABLE captures ALTER COLUMN attempts DROP DEFAULT": "column captures.attempts integer not null default",
    "DROP INDEX uq_passages_external_id": (
        "unique index passages.uq_passages_external_id btree (source_id, external_id) partial"
    ),
    "ALTER TABLE sources DROP CONSTRAINT ck_sources_kind": "check sources.ck_sources_kind",
    "ALTER TABLE anchors DROP CONSTRAINT fk_anchors_user_id_users": (
        "foreign key anchors.fk_anchors_user_id_users to users c"
    ),
    "DROP TRIGGER derive_words ON memories": "trigger memories.derive_words memories_derive_words 23 O",
    "ALTER TABLE passages DISABLE TRIGGER derive_words": "trigger passages.derive_words passages_derive_words 23 O",
    "CREATE OR REPLACE FUNCTION lexical_dates(content text) RETURNS text LANGUAGE sql AS 'SELECT content'": (
        "function lexical_dates(content text) "
    ),
    "ALTER TYPE memory_state RENAME VALUE 'paused' TO 'halted'": "type memory_state (active, paused,",
    "DROP INDEX idx_capture_failed": "index captures.idx_capture_failed btree (due_at) partial",
}


class _Undo(Exception):
    pass


@asynccontextmanager
async def changed(services: Services, statement: str) -> AsyncIterator[list[str]]:
    """What the database lacks after a statement, which is undone afterwards."""
    try:
        async with services.database.transaction() as tx:
            await tx.execute(text(statement))
            yield await lacking_now(tx)
            raise _Undo
    except _Undo:
        pass


@pytest.mark.parametrize("statement", CHANGES)
async def test_whatever_is_missing_or_changed_is_named(services: Services, statement: str) -> None:
    async with changed(services, statement) as missing:
        assert [line for line in missing if line.startswith(CHANGES[statement])], missing
    async with services.database.transaction() as tx:
        assert await lacking_now(tx) == []


async def test_what_somebody_added_is_not_missed(services: Services) -> None:
    async with changed(services, "CREATE TABLE notes (id int); CREATE INDEX mine ON memories (content)") as missing:
        assert missing == []


def test_only_what_answers_need_stops_a_start() -> None:
    assert needed(["index a.b", "unique index c.d", "table e"]) == ["unique index c.d", "table e"]


def test_many_things_are_counted_and_not_listed() -> None:
    assert in_words([str(number) for number in range(7)]) == "0, 1, 2, 3, 4 and 2 more"
    assert in_words(["table a"]) == "table a"


async def test_a_start_on_a_store_of_an_edited_migration_says_what_is_missing_and_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with server() as url:
        await upgrade(url)

        def execute(statement: str) -> None:
            with create_engine(url, poolclass=NullPool).begin() as connection:
                connection.execute(text(statement))

        execute("DROP INDEX idx_capture_failed")
        with caplog.at_level(logging.WARNING, "openmemory.schema.migrate"):
            await upgrade(url)
        assert "index captures.idx_capture_failed" in caplog.text
        execute("DROP TABLE memory_links")
        with pytest.raises(SetupError) as error:
            await upgrade(url)
    words = str(error.value)
    assert words.startswith("database.url: the database lacks what this OpenMemory needs: table memory_links, ")
    assert "column memory_links.created_at" in words
    assert "API keys, saved settings and the audit log do not come along" in words
