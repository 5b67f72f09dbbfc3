"""How the next capture is found among many, in which order, and what clears the mark of those that wait behind."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from openmemory.capture import queue
from openmemory.config.settings import Settings
from openmemory.database.engine import Database
from openmemory.stores import open_stores
from tests.clusters import furnish

WAITING = "status IN ('pending', 'working')"
ADD = text(
    """
    INSERT INTO captures (user_id, app_id, namespace, input, hash, created_at, due_at)
    SELECT :user, :app, 'n' || g, '{"text": "some words"}', g || '-' || i,
        now() - make_interval(hours => 10, secs => -i), now() - make_interval(hours => 10, secs => -i)
    FROM generate_series(1, :groups) AS g, generate_series(1, :each) AS i
    """
)
HIDDEN = text(
    f"""
    SELECT count(*) FROM (
        SELECT DISTINCT ON (user_id, namespace) behind FROM captures WHERE {WAITING}
        ORDER BY user_id, namespace, created_at, id) AS heads WHERE behind
    """
)


@pytest.fixture(scope="module")
async def database(short_folder: Path) -> AsyncIterator[Database]:
    """A database on which no worker runs."""
    settings = Settings(data_dir=str(furnish(short_folder / "claiming")))
    async with open_stores(settings) as (_, stores):
        opened = Database(stores.database, settings.database)
        yield opened
        await opened.close()


@pytest.fixture
async def owner(database: Database) -> AsyncIterator[dict[str, UUID]]:
    """A user and an app of theirs."""
    async with database.transaction() as tx:
        user = await tx.scalar(text("INSERT INTO users (user_id) VALUES ('ann') RETURNING id"))
        app = await tx.scalar(
            text("INSERT INTO apps (owner_id, name) VALUES (:user, 'claude') RETURNING id"), {"user": user}
        )
    yield {"user": user, "app": app}
    await run(database, "DELETE FROM users")


async def run(database: Database, statement: str, **values: Any) -> Any:
    async with database.transaction() as tx:
        return await tx.execute(text(statement), values)


async def claimed(database: Database) -> queue.ClaimedCapture | None:
    found = await queue.claim(database, lease=600)
    async with database.statement() as tx:
        assert await tx.scalar(HIDDEN) == 0, "the first capture of a namespace is passed over"
    return found


def rows_read(plan: dict[str, Any]) -> int:
    """The rows that the nodes of a plan returned and removed, of all loops."""
    own = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
    return int(own * plan["Actual Loops"]) + sum(rows_read(each) for each in plan.get("Plans", ()))


async def test_a_claim_reads_as_little_among_many_namespaces_as_among_few(
    database: Database, owner: dict[str, UUID]
) -> None:
    async with database.transaction() as tx:
        await tx.execute(ADD, owner | {"groups": 2_000, "each": 3})
    await run(database, "ANALYZE captures")
    found = [await claimed(database) for _ in range(30)]
    assert len({each.namespace for each in found if each}) == 30

    async def read(statement: Any, **values: Any) -> int:
        async with database.transaction() as tx:
            explained = text(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.text}")
            return rows_read((await tx.scalar(explained, values))[0]["Plan"])

    assert await read(queue._FIRST, most=queue.LOOK_AT, seen=[]) < 20 * queue.LOOK_AT
    assert await read(queue._TO_COME) < 20

    # Nothing is due: all that is first waits for its next attempt, and the rest waits behind it.
    await run(
        database,
        f"UPDATE captures AS c SET due_at = now() + interval '1 h' WHERE {WAITING} AND NOT EXISTS (SELECT FROM captures"
        f" AS o WHERE o.{WAITING} AND o.user_id = c.user_id AND o.namespace = c.namespace"
        " AND (o.created_at, o.id) < (c.created_at, c.id))",
    )
    assert await claimed(database) is None
    assert await read(queue._FIRST, most=queue.LOOK_AT, seen=[]) < 20
    async with database.statement() as tx:
        assert (await queue.seconds_until_due(tx) or 0) > 0


async def test_texts_of_a_namespace_come_in_order_whatever_becomes_of_them(
    database: Database, owner: dict[str, UUID]
) -> None:
    luck = random.Random(11)
    mine = f"user_id = :user AND {WAITING}"
    async with database.transaction() as tx:
        await tx.execute(ADD, owner | {"groups": 4, "each": 12})
    changes = (
        "UPDATE captures SET status = 'done', finished_at = now() WHERE id = :id",
        "UPDATE captures SET status = 'failed', error = 'x', due_at = now() + interval '1 h' WHERE id = :id",
        "UPDATE captures SET status = 'failed', error = 'x', due_at = now() WHERE id = :id",
        "UPDATE captures SET status = 'pending', due_at = now() WHERE id = :id",
        "DELETE FROM captures WHERE id = :id",
        f"UPDATE captures SET namespace = 'n1' WHERE {mine} AND namespace = 'n2' AND (:id)::uuid IS NOT NULL",
        f"UPDATE captures SET namespace = 'n' || 1 + length(hash) % 3 WHERE {mine} AND (:id)::uuid IS NOT NULL",
        f"UPDATE captures SET status = 'undone' WHERE {mine} AND hash LIKE '%5' AND (:id)::uuid IS NOT NULL",
    )
    values = {"user": owner["user"]}
    for _ in range(400):
        found = await claimed(database)
        if found is None:
            break
        async with database.statement() as tx:
            if await tx.scalar(text("SELECT error IS NULL FROM captures WHERE id = :id"), {"id": found.id}):
                earlier = f"SELECT count(*) FROM captures WHERE {mine} AND namespace = :name AND created_at < :at"
                before = await tx.scalar(text(earlier), values | {"name": found.namespace, "at": found.created_at})
                assert before == 0
        change = luck.choices(changes, weights=(20, 3, 1, 3, 3, 1, 1, 1))[0]
        await run(database, change, id=found.id, **(values if ":user" in change else {}))
        if luck.random() < 0.2:
            async with database.transaction() as tx:
                await tx.execute(ADD, owner | {"groups": 2, "each": 1})
        await run(database, f"UPDATE captures SET due_at = now() WHERE {mine} AND status = 'working'", **values)
    else:
        pytest.fail("the captures do not come to an end")
    async with database.statement() as tx:
        assert await tx.scalar(text(f"SELECT count(*) FROM captures WHERE {mine}"), values) == 0


async def test_a_claim_while_the_first_text_ends_hides_no_other(database: Database, owner: dict[str, UUID]) -> None:
    async with database.transaction() as tx:
        await tx.execute(ADD, owner | {"groups": 1, "each": 3})
    first = await claimed(database)
    assert first is not None
    async with database.transaction() as tx:
        await tx.execute(text("UPDATE captures SET status = 'done' WHERE id = :id"), {"id": first.id})
        # For all others it is still being read, and the next one is held by this transaction.
        assert await queue.claim(database, lease=600) is None
    second = await claimed(database)
    assert second is not None
    assert second.created_at > first.created_at


@pytest.mark.parametrize(
    "end",
    [
        "UPDATE captures SET status = 'done' WHERE id = :id",
        "UPDATE captures SET status = 'failed', due_at = now() + interval '1 h' WHERE id = :id",
        "DELETE FROM captures WHERE id = :id",
        "UPDATE captures SET namespace = 'elsewhere' WHERE id = :id",
    ],
)
async def test_a_text_that_comes_while_the_first_one_ends_is_not_passed_over(
    database: Database, owner: dict[str, UUID], end: str
) -> None:
    one = owner | {"groups": 1, "each": 1}
    async with database.transaction() as tx:
        await tx.execute(ADD, one)
    first = await claimed(database)
    assert first is not None
    async with database.transaction() as tx:
        await tx.execute(text(end), {"id": first.id})  # there is no other text whose mark could be cleared
        async with database.transaction() as other:
            await other.execute(ADD, one)
        assert await queue.claim(database, lease=600) is None
    second = await claimed(database)
    assert second is not None
    assert second.id != first.id
