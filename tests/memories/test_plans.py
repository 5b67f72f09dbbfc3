"""Lists are answered by the indexes that were made for them, among a few thousand memories with true statistics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.access.caller import Caller
from app.config import Settings
from app.database import Tx
from app.memories.models import State
from app.memories.schemas import MemoryCreate, MemoryQuery
from app.prepared import Prepared
from app.services import Services, open_services
from tests.clusters import furnish

COUNT = 4_000


@pytest.fixture(scope="module")
async def many(short_folder: Path) -> AsyncIterator[tuple[Services, Caller, Caller]]:
    """Services of their own, one user with many memories, and one with as many more beside them."""
    settings = Settings.model_validate(
        {"data_dir": str(furnish(short_folder / "plans")), "rates": {"saves": 0, "searches": 0}}
    )
    async with open_services(settings) as services:
        await services.deliverer.stop()
        callers = []
        for user in ("one", "other"):
            owner = await services.directory.caller(user, None, owner=True)
            callers.append(owner)
            for start in range(0, COUNT, 1_000):
                news = [
                    MemoryCreate(
                        text=f"memory {number} of {user} about {'zebras' if number % 500 == 0 else 'horses'}",
                        app=f"app-{number % 10}",
                        categories=(f"category-{number % 20}",),
                        thread_id=f"thread-{number % 100}",
                    )
                    for number in range(start, start + 1_000)
                ]
                await services.memories.add_many(owner, news)
            paused = [MemoryCreate(text=f"{number} donkeys of {user}", app="app-10") for number in range(1_000)]
            ids = [one.id for one in await services.memories.add_many(owner, paused)]
            await services.memories.change_state(owner, ids, State.PAUSED)
        async with services.database.statement() as tx:
            await tx.execute(text("VACUUM ANALYZE"))
        yield services, callers[0], await services.directory.caller("one", "app-3")


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How PostgreSQL answers what is asked meanwhile."""
    found: list[str] = []
    execute = Prepared.rows

    async def explain(self: Prepared, tx: Tx, values: Mapping[str, Any]) -> list[Any]:
        found.append(await self.plan(tx, values))
        return await execute(self, tx, values)

    monkeypatch.setattr(Prepared, "rows", explain)
    return found


def assert_no_scan(plans: list[str], *tables: str) -> None:
    assert plans
    for plan in plans:
        for table in tables or ("memories", "memory_categories", "memory_access_logs"):
            assert f"Seq Scan on {table}" not in plan, plan


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (MemoryQuery(), "Index Only Scan Backward using idx_memory_user_created"),
        (MemoryQuery(descending=False), "Index Only Scan using idx_memory_user_created"),
        (MemoryQuery(page=COUNT // 50), "Index Only Scan using idx_memory_user_created"),
        (MemoryQuery(states=(State.ACTIVE, State.PAUSED, State.ARCHIVED)), "Backward using idx_memory_user_created"),
        (MemoryQuery(kinds=("memory",)), "Index Only Scan Backward using idx_memory_user_created"),
        (MemoryQuery(namespaces=("default",)), "Index Only Scan Backward using idx_memory_user_created"),
        (MemoryQuery(sort="importance"), "Index Only Scan using idx_memory_user_created"),
        (MemoryQuery(sort="memory"), "Index Only Scan Backward using idx_memory_text"),
        (MemoryQuery(sort="memory", descending=False), "Index Only Scan using idx_memory_text"),
        (MemoryQuery(sort="app_name"), "idx_memory_app_created"),
        (MemoryQuery(threads=("thread-7",)), "idx_memory_thread_created"),
        (MemoryQuery(text="zebras"), "idx_memory_content_trigram"),
        (MemoryQuery(text="zebras", states=(State.ACTIVE, State.PAUSED)), "idx_memory_content_trigram"),
        (MemoryQuery(text="7 donkeys", states=(State.ACTIVE, State.PAUSED)), "idx_memory_kept_trigram"),
        (MemoryQuery(text="z"), "idx_memory_text"),
        (MemoryQuery(categories=("category-7",)), "idx_memory_category"),
    ],
)
async def test_a_list_takes_its_index(many, plans: list[str], query: MemoryQuery, index: str):
    services, owner, _ = many
    page = await services.memories.list(owner, query)
    assert page.total
    assert index in "\n".join(plans), "\n".join(plans)
    assert_no_scan(plans)


async def test_counting_reads_no_row(many, plans: list[str]):
    services, owner, _ = many
    await services.stats.profile(owner)
    counting = next(plan for plan in plans if "idx_memory_idle" in plan)
    assert "Index Only Scan using idx_memory_idle" in counting
    assert "Index Only Scan using idx_memory_aside" in counting


async def test_related_and_accessed_memories_categories_and_apps_take_their_indexes(many, plans: list[str]):
    services, owner, app = many
    one = (await services.memories.list(owner, MemoryQuery(size=1))).items[0]
    await services.memories.list(app, MemoryQuery(size=100))
    plans.clear()
    assert (await services.memories.related(owner, one.id)).total == COUNT // 20 - 1
    assert "idx_memory_category" in "\n".join(plans)
    assert_no_scan(plans, "memories", "memory_categories")
    plans.clear()
    assert (await services.stats.app_memories(owner, app.app_id)).total == COUNT // 10
    assert "idx_memory_app_created" in "\n".join(plans)
    assert_no_scan(plans, "memories", "memory_categories")
    plans.clear()
    assert (await services.stats.categories(owner)).total == 20
    assert "idx_memory_category" in "\n".join(plans)
    assert_no_scan(plans, "memory_categories")


async def test_a_filing_that_does_not_say_whose_it_is_gets_its_user(many):
    services, owner, _ = many
    added = await services.memories.add(owner, MemoryCreate(text="filed by hand"))
    async with services.database.transaction() as tx:
        filing = "INSERT INTO memory_categories (memory_id, category_id) SELECT :id, id FROM categories LIMIT 1"
        await tx.execute(text(filing), {"id": added.id})
        user = await tx.scalar(text("SELECT user_id FROM memory_categories WHERE memory_id = :id"), {"id": added.id})
    assert user == owner.user_id
