"""Tables and files as other programs make them. The vectors are left out, because nobody reads them.

`embedding` is text here, because the built-in PostgreSQL has no pgvector.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4, uuid5

import psycopg
from sqlalchemy import make_url

from openmemory.services import Services

DEVMEMORY = """
CREATE TABLE projects (id TEXT PRIMARY KEY, name TEXT NOT NULL, root_path TEXT, metadata JSONB DEFAULT '{}',
    created_at TIMESTAMPTZ DEFAULT now(), updated_at TIMESTAMPTZ DEFAULT now());
CREATE TABLE memories (id BIGSERIAL PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
    topic TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, embedding TEXT, created_at TIMESTAMPTZ DEFAULT now(),
    updated_at TIMESTAMPTZ DEFAULT now(), created_by TEXT DEFAULT '', UNIQUE(project_id, topic, key));
CREATE TABLE sessions (id BIGSERIAL PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
    session_num INTEGER NOT NULL, title TEXT NOT NULL, summary TEXT DEFAULT '', content TEXT DEFAULT '',
    embedding TEXT, metadata JSONB DEFAULT '{}', created_at TIMESTAMPTZ DEFAULT now(), UNIQUE(project_id, session_num));
CREATE TABLE file_index (id BIGSERIAL PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects(id) ON DELETE CASCADE,
    file_path TEXT NOT NULL, file_type TEXT DEFAULT '', symbols JSONB DEFAULT '[]', summary TEXT DEFAULT '',
    embedding TEXT, last_indexed TIMESTAMPTZ DEFAULT now(), UNIQUE(project_id, file_path));
CREATE TABLE usage_stats (id BIGSERIAL PRIMARY KEY, project_id TEXT REFERENCES projects(id) ON DELETE CASCADE,
    tool_name TEXT NOT NULL, query_text TEXT, results_count INTEGER, tokens_estimated INTEGER,
    created_at TIMESTAMPTZ DEFAULT now());
INSERT INTO projects VALUES ('webshop', 'The shop', '/src/webshop', '{"team": "blue"}', '2025-03-01T10:00Z');
INSERT INTO memories (project_id, topic, key, value, created_by, created_at, updated_at) VALUES
    ('webshop', 'stack', 'database', 'PostgreSQL 16 holds the orders', 'claude', '2025-03-02T10:00Z',
     '2025-03-03T10:00Z'),
    ('webshop', 'stack', 'queue', 'The outbox delivers the mails', '', '2025-03-02T11:00Z', '2025-03-02T11:00Z'),
    ('webshop', 'stack/db', 'port', '6432', '', '2025-03-02T12:00Z', '2025-03-02T12:00Z'),
    ('webshop', 'stack', 'db/port', '5432', '', '2025-03-02T12:00Z', '2025-03-02T12:00Z'),
    ('webshop', 'ci', 'empty', ' ', '', now(), now());
INSERT INTO sessions (project_id, session_num, title, summary, content, metadata, created_at) VALUES
    ('webshop', 7, 'Checkout', 'The basket survives a login',
     E'# Basket\\n\\nIt is merged.\\n\\n# Tax\\n\\nRounded per line.',
     '{"branch": "main"}', '2025-03-04T10:00Z');
INSERT INTO file_index (project_id, file_path, file_type, symbols, summary, last_indexed) VALUES
    ('webshop', '/src/webshop/pay/card.go', 'go', '["ChargeCard", "Refund"]', 'Talks to the card terminal',
     '2025-03-05T10:00Z');
INSERT INTO usage_stats (project_id, tool_name) VALUES ('webshop', 'memory_search'), ('webshop', 'memory_search');
"""

PIMEMENTO = """
CREATE TABLE memories (id UUID DEFAULT gen_random_uuid() PRIMARY KEY, client_id TEXT NOT NULL DEFAULT '_default',
    user_id TEXT DEFAULT '_anonymous', namespace TEXT NOT NULL DEFAULT 'general', content TEXT NOT NULL,
    metadata JSONB DEFAULT '{}', category TEXT, type TEXT, reason TEXT, embedding TEXT,
    created_at TIMESTAMPTZ DEFAULT now(), updated_at TIMESTAMPTZ DEFAULT now(), expires_at TIMESTAMPTZ,
    source_mcp TEXT, merged_from UUID[]);
"""

NEUROMEM = """
CREATE TABLE memories (id UUID PRIMARY KEY, user_id VARCHAR(255) NOT NULL, content TEXT NOT NULL, embedding TEXT,
    memory_type VARCHAR(50), metadata JSONB, access_count INTEGER DEFAULT 0, last_accessed_at TIMESTAMPTZ,
    extracted_timestamp TIMESTAMPTZ, valid_from TIMESTAMPTZ, valid_until TIMESTAMPTZ, version INTEGER DEFAULT 1,
    superseded_by UUID, valid_at TIMESTAMPTZ, invalid_at TIMESTAMPTZ, expired_at TIMESTAMPTZ,
    importance FLOAT DEFAULT 0.5, content_hash VARCHAR(32), trait_subtype VARCHAR(20), trait_stage VARCHAR(20),
    trait_confidence FLOAT, trait_context VARCHAR(20), trait_parent_id UUID,
    trait_reinforcement_count INTEGER DEFAULT 0, trait_contradiction_count INTEGER DEFAULT 0,
    trait_last_reinforced TIMESTAMPTZ, trait_first_observed TIMESTAMPTZ,
    trait_window_start TIMESTAMPTZ, trait_window_end TIMESTAMPTZ, trait_derived_from VARCHAR(20),
    subject_entity_id UUID, object_entity_id UUID, source_episode_ids UUID[], created_at TIMESTAMPTZ DEFAULT now(),
    updated_at TIMESTAMPTZ DEFAULT now());
CREATE TABLE conversations (id UUID PRIMARY KEY DEFAULT gen_random_uuid(), user_id VARCHAR(255) NOT NULL,
    session_id VARCHAR(255) NOT NULL, role VARCHAR(50) NOT NULL, content TEXT NOT NULL, embedding TEXT, metadata JSONB,
    extracted BOOLEAN DEFAULT false, created_at TIMESTAMPTZ DEFAULT now(), updated_at TIMESTAMPTZ DEFAULT now());
CREATE TABLE conversation_sessions (id UUID PRIMARY KEY, user_id VARCHAR(255) NOT NULL,
    session_id VARCHAR(255) NOT NULL UNIQUE, title VARCHAR(500), summary TEXT, message_count INTEGER DEFAULT 0,
    last_message_at TIMESTAMPTZ, metadata JSONB, created_at TIMESTAMPTZ DEFAULT now(),
    updated_at TIMESTAMPTZ DEFAULT now());
CREATE TABLE memory_sources (memory_id UUID, session_id UUID, conversation_id UUID,
    created_at TIMESTAMPTZ DEFAULT now(), PRIMARY KEY (memory_id, session_id));
CREATE TABLE key_values (id UUID PRIMARY KEY DEFAULT gen_random_uuid(), namespace VARCHAR(100) NOT NULL,
    scope_id VARCHAR(255) NOT NULL, key VARCHAR(512) NOT NULL, value JSONB NOT NULL,
    created_at TIMESTAMPTZ DEFAULT now(), updated_at TIMESTAMPTZ DEFAULT now());
CREATE TABLE documents (id UUID PRIMARY KEY, user_id VARCHAR(255) NOT NULL, filename VARCHAR(512) NOT NULL,
    file_type VARCHAR(20) NOT NULL, mime_type VARCHAR(128) NOT NULL, file_size BIGINT NOT NULL,
    object_key VARCHAR(1024) NOT NULL, extracted_text TEXT, embedding_id UUID, category VARCHAR(100) DEFAULT 'general',
    tags JSONB, metadata JSONB, source_type VARCHAR(20) DEFAULT 'upload', created_at TIMESTAMPTZ DEFAULT now(),
    updated_at TIMESTAMPTZ DEFAULT now());
CREATE TABLE graph_edges (id UUID PRIMARY KEY DEFAULT gen_random_uuid(), user_id VARCHAR(255), source_type VARCHAR(50),
    source_id VARCHAR(255), edge_type VARCHAR(50), target_type VARCHAR(50), target_id VARCHAR(255), properties JSONB);
"""

OPENMEMORY = """
CREATE TYPE memorystate AS ENUM ('active', 'paused', 'archived', 'deleted');
CREATE TABLE users (id UUID PRIMARY KEY, user_id VARCHAR NOT NULL UNIQUE, name VARCHAR, email VARCHAR UNIQUE,
    metadata JSON, created_at TIMESTAMP, updated_at TIMESTAMP);
CREATE TABLE apps (id UUID PRIMARY KEY, owner_id UUID NOT NULL REFERENCES users(id), name VARCHAR NOT NULL,
    description VARCHAR, metadata JSON, is_active BOOLEAN, created_at TIMESTAMP, updated_at TIMESTAMP,
    UNIQUE (owner_id, name));
CREATE TABLE configs (id UUID PRIMARY KEY, key VARCHAR NOT NULL, value JSON NOT NULL);
CREATE TABLE memories (id UUID PRIMARY KEY, user_id UUID NOT NULL REFERENCES users(id),
    app_id UUID NOT NULL REFERENCES apps(id), content VARCHAR NOT NULL, vector VARCHAR, metadata JSON,
    state memorystate, created_at TIMESTAMP, updated_at TIMESTAMP, archived_at TIMESTAMP, deleted_at TIMESTAMP);
CREATE TABLE memory_status_history (id UUID PRIMARY KEY, memory_id UUID NOT NULL REFERENCES memories(id),
    changed_by UUID NOT NULL, old_state memorystate NOT NULL, new_state memorystate NOT NULL, changed_at TIMESTAMP);
CREATE TABLE memory_access_logs (id UUID PRIMARY KEY, memory_id UUID NOT NULL REFERENCES memories(id),
    app_id UUID NOT NULL REFERENCES apps(id), accessed_at TIMESTAMP, access_type VARCHAR NOT NULL, metadata JSON);
"""

MEMPACK = """
CREATE TABLE repos (repo_id TEXT PRIMARY KEY, git_root TEXT NOT NULL, origin_hash TEXT, last_head TEXT,
    last_branch TEXT, created_at TEXT NOT NULL, last_seen_at TEXT NOT NULL);
CREATE TABLE state_current (repo_id TEXT NOT NULL, workspace TEXT NOT NULL, state_json TEXT NOT NULL,
    state_tokens INTEGER, updated_at TEXT NOT NULL, PRIMARY KEY (repo_id, workspace));
CREATE TABLE state_history (state_id TEXT PRIMARY KEY, repo_id TEXT NOT NULL, workspace TEXT NOT NULL,
    state_json TEXT NOT NULL, state_tokens INTEGER, created_at TEXT NOT NULL, reason TEXT);
CREATE TABLE threads (thread_id TEXT NOT NULL, repo_id TEXT NOT NULL, workspace TEXT NOT NULL DEFAULT 'default',
    title TEXT, tags_json TEXT, created_at TEXT NOT NULL, PRIMARY KEY (thread_id, repo_id, workspace));
CREATE TABLE memories (id TEXT PRIMARY KEY, repo_id TEXT NOT NULL, workspace TEXT NOT NULL DEFAULT 'default',
    thread_id TEXT, title TEXT NOT NULL, summary TEXT NOT NULL, summary_tokens INTEGER, tags_json TEXT, tags_text TEXT,
    entities_json TEXT, entities_text TEXT, created_at TEXT NOT NULL, anchor_commit TEXT, superseded_by TEXT,
    deleted_at TEXT);
CREATE TABLE artifacts (artifact_id TEXT PRIMARY KEY, repo_id TEXT NOT NULL, workspace TEXT NOT NULL DEFAULT 'default',
    kind TEXT, source TEXT, content_hash TEXT, created_at TEXT NOT NULL);
CREATE TABLE chunks (chunk_id TEXT PRIMARY KEY, repo_id TEXT NOT NULL, workspace TEXT NOT NULL DEFAULT 'default',
    artifact_id TEXT, thread_id TEXT, locator TEXT, text TEXT, text_hash TEXT, text_tokens INTEGER, tags_json TEXT,
    tags_text TEXT, chunk_type TEXT DEFAULT 'line', symbol_name TEXT, symbol_kind TEXT, created_at TEXT NOT NULL,
    deleted_at TEXT);
CREATE TABLE links (from_id TEXT NOT NULL, rel TEXT NOT NULL, to_id TEXT NOT NULL, weight REAL,
    created_at TEXT NOT NULL);
CREATE VIRTUAL TABLE memories_fts USING fts5 (title, summary, tags, entities, workspace UNINDEXED, mem_id UNINDEXED,
    tokenize = 'porter unicode61');
CREATE TRIGGER memories_ai AFTER INSERT ON memories BEGIN
    INSERT INTO memories_fts (rowid, title, summary, workspace, mem_id)
    VALUES (new.rowid, new.title, new.summary, new.workspace, new.id);
END;
PRAGMA user_version = 10;
"""

COMMIT = "3f1c" * 10


@asynccontextmanager
async def postgres(services: Services) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """Makes databases on the server of the service from a script, and drops them in the end."""
    url = make_url(services.database.url)
    made = list[str]()

    async def run(address: Any, *statements: str) -> None:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
            for statement in statements:
                await connection.execute(statement.encode())

    def address(database: str, role: str) -> str:
        where = url.set(drivername="postgresql", database=database, username=role)
        return where.render_as_string(hide_password=False)

    async def make(script: str) -> str:
        name = f"other_{uuid4().hex[:12]}"
        await run(address("postgres", "postgres"), f"CREATE DATABASE {name} OWNER openmemory")
        made.append(name)
        await run(address(name, "openmemory"), script)
        return address(name, "openmemory")

    try:
        yield make
    finally:
        for name in made:
            await run(address("postgres", "postgres"), f"DROP DATABASE {name} WITH (FORCE)")


def mempack(folder: Path, repo: str = "r_0a1b2c3d", root: str = "/src/webshop", *, old: bool = False) -> Path:
    """The store of a repository in a data folder. `old`: of an early version, without workspaces and links."""
    store = folder / "repos" / repo / "memory.db"
    store.parent.mkdir(parents=True)
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(MEMPACK)

        def insert(table: str, **row: Any) -> None:
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))

        at = "2025-04-0{}T10:00:00Z".format
        of = {"repo_id": repo}
        insert("repos", git_root=root, last_head=COMMIT, last_branch="main", created_at=at(1), last_seen_at=at(9), **of)
        insert("threads", thread_id="T-pay", title="Payments", tags_json='["money"]', created_at=at(1), **of)
        memory = {"thread_id": "T-pay", "tags_json": '["card"]', "entities_json": '["pay/card.go"]', **of}
        insert("memories", id="M-1", title="Cards are charged at dispatch", summary="Not at the order.",
               created_at=at(2), anchor_commit=COMMIT, **memory)  # fmt: skip
        insert("memories", id="M-2", title="Cards are charged at the order", summary="", created_at=at(1),
               superseded_by="M-1", **memory)  # fmt: skip
        insert("memories", id="M-3", title="Forgotten", summary="", created_at=at(1), deleted_at=at(3), **memory)
        insert("memories", id="M-4", title="Only in beta", summary="", created_at=at(4), workspace="beta", **of)
        insert("links", from_id="M-1", rel="replaces", to_id="M-2", weight=1, created_at=at(2))
        insert("links", from_id="M-1", rel="explains", to_id="M-99", weight=1, created_at=at(2))
        for number, goal in enumerate(("sell", "sell more"), 1):
            insert("state_history", state_id=f"S-{number}", workspace="default", reason=f"Goal {number}",
                   state_json=json.dumps({"goal": goal, "exact": 1}), created_at=at(number), **of)  # fmt: skip
        insert("state_current", workspace="default", state_json='{"goal": "sell more", "exact": 1}',
               updated_at=at(2), **of)  # fmt: skip
        insert("artifacts", artifact_id="A-1", kind="file", source="pay/card.go", content_hash="ab" * 32,
               created_at=at(5), **of)  # fmt: skip
        chunk = {"artifact_id": "A-1", "created_at": at(5), **of}
        insert("chunks", chunk_id="C-1", locator=f"git:{COMMIT}:pay/card.go#L1-L3",
               text="func ChargeCard() error {\n\treturn terminal.charge()\n}", **chunk)  # fmt: skip
        insert("chunks", chunk_id="C-2", locator=f"git:{COMMIT}:pay/card.go#L5-L6", text="func Refund() {\n}", **chunk)
        insert("chunks", chunk_id="C-3", locator="file:pay/old.go#L1-L2", text="gone", deleted_at=at(6), **chunk)
        insert("chunks", chunk_id="C-4", locator="nowhere", text="nobody knows where", **chunk)
        if old:
            connection.executescript(
                "DROP TRIGGER memories_ai; DROP TABLE memories_fts; DROP TABLE links; DELETE FROM memories WHERE"
                " workspace = 'beta'; ALTER TABLE memories DROP COLUMN workspace; ALTER TABLE memories DROP COLUMN"
                " tags_json; UPDATE memories SET tags_text = 'card visa'; PRAGMA user_version = 3;"
            )
    return store


_IDS = UUID("9b2f0a53-6a1c-4f0e-8d57-4a4f5f1f0001")


def id_of(name: str) -> str:
    """The id of a row of a store, by a name."""
    return str(uuid5(_IDS, name))
