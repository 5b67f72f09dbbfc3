"""An old installation's `openmemory.db`, written as SQLAlchemy wrote it: ids of 32 hexadecimal digits, JSON as text,
times in UTC without an offset, states by the names of their enum."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

SCHEMA = """
CREATE TABLE users (id CHAR(32) NOT NULL PRIMARY KEY, user_id VARCHAR NOT NULL, name VARCHAR, email VARCHAR,
    metadata JSON, created_at DATETIME, updated_at DATETIME);
CREATE UNIQUE INDEX ix_users_user_id ON users (user_id);
CREATE TABLE apps (id CHAR(32) NOT NULL PRIMARY KEY, owner_id CHAR(32) NOT NULL, name VARCHAR NOT NULL,
    description VARCHAR, metadata JSON, is_active BOOLEAN, created_at DATETIME, updated_at DATETIME,
    UNIQUE (owner_id, name), FOREIGN KEY(owner_id) REFERENCES users (id));
CREATE TABLE configs (id CHAR(32) NOT NULL PRIMARY KEY, key VARCHAR NOT NULL, value JSON NOT NULL,
    created_at DATETIME, updated_at DATETIME);
CREATE TABLE memories (id CHAR(32) NOT NULL PRIMARY KEY, user_id CHAR(32) NOT NULL, app_id CHAR(32) NOT NULL,
    content VARCHAR NOT NULL, vector VARCHAR, metadata JSON, state VARCHAR(8), created_at DATETIME,
    updated_at DATETIME, archived_at DATETIME, deleted_at DATETIME);
CREATE INDEX idx_memory_user_state ON memories (user_id, state);
CREATE TABLE categories (id CHAR(32) NOT NULL PRIMARY KEY, name VARCHAR NOT NULL, description VARCHAR,
    created_at DATETIME, updated_at DATETIME);
CREATE TABLE memory_categories (memory_id CHAR(32) NOT NULL, category_id CHAR(32) NOT NULL,
    PRIMARY KEY (memory_id, category_id));
CREATE TABLE access_controls (id CHAR(32) NOT NULL PRIMARY KEY, subject_type VARCHAR NOT NULL, subject_id CHAR(32),
    object_type VARCHAR NOT NULL, object_id CHAR(32), effect VARCHAR NOT NULL, created_at DATETIME);
CREATE TABLE archive_policies (id CHAR(32) NOT NULL PRIMARY KEY, criteria_type VARCHAR NOT NULL, criteria_id CHAR(32),
    days_to_archive INTEGER NOT NULL, created_at DATETIME);
CREATE TABLE memory_status_history (id CHAR(32) NOT NULL PRIMARY KEY, memory_id CHAR(32) NOT NULL,
    changed_by CHAR(32) NOT NULL, old_state VARCHAR(8) NOT NULL, new_state VARCHAR(8) NOT NULL, changed_at DATETIME);
CREATE TABLE memory_access_logs (id CHAR(32) NOT NULL PRIMARY KEY, memory_id CHAR(32) NOT NULL,
    app_id CHAR(32) NOT NULL, accessed_at DATETIME, access_type VARCHAR NOT NULL, metadata JSON);
"""

BORN = datetime(2025, 5, 1, 12, 30, 15, 123456, tzinfo=UTC)


class Installation:
    """A database that is filled row by row, and remembers what it was filled with."""

    def __init__(self, path: Path, *, dashed: bool = False) -> None:
        self.path = path
        self._dashed = dashed
        self._minute = 0
        self.connection = sqlite3.connect(path)
        self.connection.executescript(SCHEMA)

    def insert(self, table: str, **row: Any) -> UUID:
        """Add a row; the id of it. Values are what the models held; they are written as SQLAlchemy did."""
        row = {"id": uuid4()} | row
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        values = [self._written(value) for value in row.values()]
        self.connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", values)
        self.connection.commit()
        return UUID(str(row["id"]))

    def file_under(self, memory: UUID, category: UUID) -> None:
        values = [self._written(memory), self._written(category)]
        self.connection.execute("INSERT INTO memory_categories VALUES (?, ?)", values)
        self.connection.commit()

    def moment(self) -> datetime:
        """A minute after the last one."""
        self._minute += 1
        return BORN + timedelta(minutes=self._minute)

    def user(self, name: str, **more: Any) -> UUID:
        at = self.moment()
        return self.insert("users", **{"user_id": name, "name": name, "metadata": {}, "created_at": at,
                                       "updated_at": at} | more)  # fmt: skip

    def app(self, owner: UUID, name: str, *, is_active: bool = True) -> UUID:
        at = self.moment()
        return self.insert("apps", owner_id=owner, name=name, metadata={}, is_active=is_active, created_at=at,
                           updated_at=at)  # fmt: skip

    def category(self, name: str) -> UUID:
        return self.insert("categories", name=name, description=f"Automatically created category for {name}",
                           created_at=self.moment(), updated_at=self.moment())  # fmt: skip

    def memory(self, user: UUID, app: UUID, content: str, state: str = "active", **more: Any) -> UUID:
        """A memory with the history that OpenMemory gave it: of a new one it said that it had been deleted."""
        at = self.moment()
        row = {"user_id": user, "app_id": app, "content": content, "metadata": {}, "state": state, "created_at": at,
               "updated_at": at, "vector": None}  # fmt: skip
        memory = self.insert("memories", **row | more)
        self.history(memory, user, "deleted", "active", at)
        if state != "active":
            self.history(memory, user, "active", state, self.moment())
        return memory

    def history(self, memory: UUID, by: UUID, old: str, new: str, at: datetime) -> UUID:
        return self.insert("memory_status_history", memory_id=memory, changed_by=by, old_state=old, new_state=new,
                           changed_at=at)  # fmt: skip

    def access(self, memory: UUID, app: UUID, kind: str = "search", **metadata: Any) -> UUID:
        return self.insert("memory_access_logs", memory_id=memory, app_id=app, accessed_at=self.moment(),
                           access_type=kind, metadata=metadata)  # fmt: skip

    def rule(self, app: UUID | None, effect: str, memory: UUID | None) -> UUID:
        return self.insert("access_controls", subject_type="app", subject_id=app, object_type="memory",
                           object_id=memory, effect=effect, created_at=self.moment())  # fmt: skip

    def _written(self, value: Any) -> Any:
        if isinstance(value, UUID):
            return str(value) if self._dashed else value.hex
        if isinstance(value, datetime):
            return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
        return json.dumps(value) if isinstance(value, dict) else value


def household(path: Path, **form: Any) -> tuple[Installation, dict[str, Any]]:
    """Two people who share a machine: every table has rows, every state is there. With the ids by what they are of."""
    old = Installation(path, **form)
    ids: dict[str, Any] = {}
    for name in ("alice", "bob"):
        user = ids[name] = old.user(name, email=f"{name}@example.com", metadata={"since": 2025})
        claude = ids[f"{name} claude"] = old.app(user, "claude")
        cursor = ids[f"{name} cursor"] = old.app(user, "cursor", is_active=name == "bob")
        work = ids.get("work") or old.category("work")
        ids["work"] = work
        for number, state in enumerate(("active", "active", "paused", "archived", "deleted")):
            stamp = {"archived": "archived_at", "deleted": "deleted_at"}.get(state)
            more = {stamp: old.moment()} if stamp else {}
            app = claude if number % 2 else cursor
            memory = old.memory(user, app, f"{name} {number} ☕", state, metadata={"n": number}, **more)
            ids[f"{name} {number}"] = memory
            old.file_under(memory, work)
            old.access(memory, claude, query=f"what of {number}?", score=0.5, hash="ab")
            old.access(memory, cursor, "list", hash="ab")
        ids[f"{name} rule"] = old.rule(cursor, "deny", ids[f"{name} 0"])
        old.insert("archive_policies", criteria_type="app", criteria_id=claude, days_to_archive=90,
                   created_at=old.moment())  # fmt: skip
    old.insert("configs", key="main", value={"mem0": {"llm": {"config": {"api_key": "sk-not-yours"}}}})
    old.connection.close()
    return old, ids
