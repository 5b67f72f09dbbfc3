"""A client of the product over real services, and everything that a user has, told without ids."""

from __future__ import annotations

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
from openmemory.services import VERSION, Services
from tests.capture.conftest import inferring, llm_server, model

__all__ = ["inferring", "llm_server", "model"]

MakeClient = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

TABLES = (
    "users", "apps", "memories", "memory_revisions", "memory_status_history", "categories", "memory_categories",
    "access_controls", "memory_access_logs", "embeddings", "index_outbox", "archive_policies", "captures",
    "category_descriptions", "sources", "passages", "memory_links", "projects", "anchors",
)  # fmt: skip


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
            return {table: (await tx.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one() for table in TABLES}

    return count


@pytest.fixture
def all_of() -> Callable[[Services, str], Awaitable[dict[str, Any]]]:
    """Everything that a user has."""
    return everything


async def everything(services: Services, user: str) -> dict[str, Any]:
    """All of a user's rows as plain values, named by their contents rather than by their ids."""
    async with services.database.statement() as tx:

        async def rows(query: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in await tx.execute(text(query), {"user": user})]

        [me] = await rows("SELECT name, email, metadata FROM users WHERE user_id = :user")
        memories = await rows(
            """
            SELECT m.content, m.metadata, a.name, m.state, m.created_at, m.updated_at, m.archived_at, m.deleted_at,
                m.namespace, m.thread_id, m.kind, m.key, m.importance, m.hash, m.expires_at, m.valid_from,
                m.valid_until, s.content, m.revision, m.labels,
                ARRAY(SELECT c.name FROM memory_categories AS f JOIN categories AS c ON c.id = f.category_id
                    WHERE f.memory_id = m.id ORDER BY 1)
            FROM memories AS m JOIN users AS u ON u.id = m.user_id JOIN apps AS a ON a.id = m.app_id
            LEFT JOIN memories AS s ON s.id = m.superseded_by WHERE u.user_id = :user ORDER BY 1, 5, 4
            """
        )
        of_memory = "JOIN memories AS m ON m.id = x.memory_id JOIN users AS u ON u.id = m.user_id"
        return {
            "user": (me[0] if me[0] != user else None, *me[1:]),
            "apps": await rows(
                """
                SELECT a.name, a.description, a.metadata, a.is_active, a.created_at, a.updated_at FROM apps AS a
                JOIN users AS u ON u.id = a.owner_id WHERE u.user_id = :user ORDER BY 1
                """
            ),
            "memories": memories,
            "revisions": await rows(
                f"""
                SELECT m.content, x.revision, x.old_text, x.new_text, x.metadata, u.user_id = c.user_id, a.name,
                    x.changed_at
                FROM memory_revisions AS x {of_memory} JOIN users AS c ON c.id = x.changed_by
                LEFT JOIN apps AS a ON a.id = x.app_id WHERE u.user_id = :user ORDER BY 1, 2, 8
                """
            ),
            "history": await rows(
                f"""
                SELECT m.content, x.old_state, x.new_state, u.user_id = c.user_id, a.name, x.changed_at, x.reason
                FROM memory_status_history AS x {of_memory} JOIN users AS c ON c.id = x.changed_by
                LEFT JOIN apps AS a ON a.id = x.app_id WHERE u.user_id = :user ORDER BY 1, 6, 2, 3
                """
            ),
            "accesses": await rows(
                f"""
                SELECT m.content, a.name, x.accessed_at, x.access_type, x.metadata
                FROM memory_access_logs AS x {of_memory} JOIN apps AS a ON a.id = x.app_id
                WHERE u.user_id = :user AND x.access_type <> 'export' ORDER BY 1, 3, 4
                """
            ),
            "links": await rows(
                """
                SELECT f.content, l.rel, t.content, a.name, l.created_at FROM memory_links AS l
                JOIN memories AS f ON f.id = l.from_id JOIN memories AS t ON t.id = l.to_id
                JOIN apps AS a ON a.id = l.app_id JOIN users AS u ON u.id = l.user_id
                WHERE u.user_id = :user ORDER BY 1, 2, 3
                """
            ),
            "projects": await rows(
                """
                SELECT p.namespace, p.name, p.root, p.repo, p.head, p.branch, p.metadata, a.name, p.created_at,
                    p.updated_at
                FROM projects AS p JOIN apps AS a ON a.id = p.app_id JOIN users AS u ON u.id = p.user_id
                WHERE u.user_id = :user ORDER BY 1, 8
                """
            ),
            "anchors": await rows(
                """
                SELECT x.namespace, x.head, x.commit, x.reachable, x.checked_at
                FROM anchors AS x JOIN users AS u ON u.id = x.user_id WHERE u.user_id = :user ORDER BY 1, 2, 3
                """
            ),
            "messages": await rows(
                """
                SELECT s.locator, s.namespace, a.name, s.title, s.summary, s.metadata, s.state, s.created_at,
                    s.updated_at, s.closed_at, s.deleted_at, s.length, s.infer, s.captured, p.position,
                    p.external_id, p.speaker, p.content, p.metadata, p.state, p.created_at, p.expires_at, p.labels,
                    p.thread_id, p.namespace, p.kind, s.kind, s.language, s.hash, s.bytes, p.heading, p.first_line,
                    p.last_line
                FROM passages AS p JOIN sources AS s ON s.id = p.source_id JOIN users AS u ON u.id = p.user_id
                JOIN apps AS a ON a.id = p.app_id WHERE u.user_id = :user ORDER BY 1, 2, 3, p.position
                """
            ),
            "vectors": await rows(
                """
                SELECT m.content, x.model, x.text_hash, x.vector FROM embeddings AS x
                JOIN memories AS m ON m.id = x.id JOIN users AS u ON u.id = m.user_id
                WHERE u.user_id = :user AND x.text_hash = m.hash ORDER BY 1, 2
                """
            ),
            "rules": await rows(
                """
                SELECT s.name, r.object_type, coalesce(r.object_name, m.content, a.name, c.name), r.effect, r.created_at
                FROM access_controls AS r JOIN users AS u ON u.id = r.user_id LEFT JOIN apps AS s ON s.id = r.subject_id
                LEFT JOIN memories AS m ON m.id = r.object_id LEFT JOIN apps AS a ON a.id = r.object_id
                LEFT JOIN categories AS c ON c.id = r.object_id WHERE u.user_id = :user ORDER BY 1, 2, 3, 4
                """
            ),
            "policies": await rows(
                """
                SELECT p.criteria_type, coalesce(p.criteria_name, a.name, c.name), p.criteria_id = p.user_id,
                    p.action, p.days_to_archive, p.created_at
                FROM archive_policies AS p JOIN users AS u ON u.id = p.user_id
                LEFT JOIN apps AS a ON a.id = p.criteria_id AND a.owner_id = u.id
                LEFT JOIN categories AS c ON c.id = p.criteria_id WHERE u.user_id = :user ORDER BY 1, 4
                """
            ),
            "descriptions": await rows(
                """
                SELECT c.name, d.description, d.created_at, d.updated_at FROM category_descriptions AS d
                JOIN categories AS c ON c.id = d.category_id JOIN users AS u ON u.id = d.user_id
                WHERE u.user_id = :user ORDER BY 1
                """
            ),
            # But for how far the service is with them.
            "captures": await rows(
                """
                SELECT a.name, k.namespace, k.input, k.options, k.hash, k.operations, k.refused, k.created_at
                FROM captures AS k JOIN users AS u ON u.id = k.user_id JOIN apps AS a ON a.id = k.app_id
                WHERE u.user_id = :user ORDER BY k.created_at, 5
                """
            ),
            "categories": await rows(
                """
                SELECT DISTINCT c.name, c.description FROM categories AS c
                JOIN memory_categories AS f ON f.category_id = c.id JOIN memories AS m ON m.id = f.memory_id
                JOIN users AS u ON u.id = m.user_id WHERE u.user_id = :user ORDER BY 1
                """
            ),
        }
