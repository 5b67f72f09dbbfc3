"""A client of the product over real services, and everything that a user has, told without ids."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from openmemory.backup.service import Backup
from openmemory.config.settings import Settings
from openmemory.doors.server.application import create_app
from openmemory.schema.registry import TABLES as REGISTERED
from openmemory.services import VERSION, Services
from tests.capture.conftest import inferring, llm_server, model

__all__ = ["inferring", "llm_server", "model"]

MakeClient = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

TABLES = [name for name, table in REGISTERED.items() if not table.unarchived]
"""The tables that archives hold."""

_OF_MEMORY = "memory_id IN (SELECT id FROM memories WHERE user_id = :id)"
_OWN = {
    "users": "id = :id", "apps": "owner_id = :id", "memory_revisions": _OF_MEMORY, "memory_status_history": _OF_MEMORY,
    "memory_access_logs": f"{_OF_MEMORY} AND app_id IS NOT NULL AND access_type <> 'export'",
    "categories": "id IN (SELECT category_id FROM memory_categories WHERE user_id = :id)",
    "embeddings": "(kind, id, text_hash) IN (SELECT 'memory', id, hash FROM memories WHERE user_id = :id)",
}  # fmt: skip
"""The rows of a user, where they are not those with the user's id."""
_OTHER = {
    "users": "user_id updated_at rules_revision", "categories": "created_at updated_at", "sources": "object_key",
    "passages": "revision",
    "memory_access_logs": "imported_at app_name namespaces", "embeddings": "created_at",
    "captures": "status principal attempts due_at behind holder error updated_at",
}  # fmt: skip
"""The columns that an import changes: those of the service, and how far it is with captures."""
_NAMES = text(
    """
    SELECT id, 'user' AS name FROM users WHERE id = :id
    UNION ALL SELECT id, 'app ' || name FROM apps WHERE owner_id = :id
    UNION ALL SELECT id, 'category ' || name FROM categories
    UNION ALL SELECT id, 'memory ' || content FROM memories WHERE user_id = :id
    UNION ALL SELECT id, 'source ' || kind || locator FROM sources WHERE user_id = :id
    """
)


def client_of(services: Services, **more: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(services)), base_url="http://localhost:8765", timeout=60, **more
    )


@pytest.fixture(scope="session")
async def api(services: Services) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the API with default settings."""
    async with client_of(services) as client:
        yield client


@pytest.fixture(scope="session")
def make_client(services: Services) -> MakeClient:
    """Opens a client of the API with other settings: `make_client(limits={"backup": 2_000})`."""

    @asynccontextmanager
    async def make(headers: dict[str, str] | None = None, **changes: Any) -> AsyncIterator[httpx.AsyncClient]:
        settings = Settings.model_validate({"data_dir": services.settings.data_dir} | changes)
        backup = Backup(
            services.database, services.memories, services.directory, services.outbox_delivery, services.spaces,
            folder=services.stores.folder, limits=settings.limits,
            analyze_after_writes=services.analyze_after_writes, version=VERSION,
        )  # fmt: skip
        async with client_of(replace(services, settings=settings, backup=backup), headers=headers) as client:
            yield client

    return make


@pytest.fixture
async def user(services: Services, new_user: str) -> str:
    """A user that is there and has nothing."""
    await services.directory.caller(new_user, None, owner=True)
    return new_user


@pytest.fixture
def counts(services: Services) -> Callable[[], Awaitable[dict[str, int]]]:
    """How many rows every table has, once nothing is to be delivered any more."""

    async def count() -> dict[str, int]:
        await services.outbox_delivery.drain()
        async with services.database.statement() as tx:
            tables = (*TABLES, "index_outbox")
            return {table: (await tx.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one() for table in tables}

    return count


@pytest.fixture
def all_of() -> Callable[[Services, str], Awaitable[dict[str, Any]]]:
    """Everything that a user has."""
    return everything


async def everything(services: Services, user: str) -> dict[str, list[dict[str, Any]]]:
    """All rows that archives hold of a user by table, with names in the place of ids."""
    async with services.database.statement() as tx:
        mine = {"id": await tx.scalar(text("SELECT id FROM users WHERE user_id = :user"), {"user": user})}
        names = {str(row.id): row.name for row in await tx.execute(_NAMES, mine)}
        found = {}
        for table in TABLES:
            own, others = _OWN.get(table, "user_id = :id"), ["id", *_OTHER.get(table, "").split()]
            rows = f"SELECT CAST(to_jsonb(t) - CAST(:others AS text[]) AS text) FROM {table} AS t WHERE {own}"
            texts = await tx.scalars(text(rows), {"others": others, **mine})
            named = [_ID.sub(lambda id_: json.dumps(names.get(id_[0], id_[0]))[1:-1], row) for row in texts]
            found[table] = [json.loads(row) for row in sorted(named)]
        return found


_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
