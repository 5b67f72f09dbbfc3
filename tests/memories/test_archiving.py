"""Archive policies over many memories: what is due is found by an index, and archived at a steady pace."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest
from sqlalchemy import select, text
from sqlalchemy.dialects import postgresql

from app.access.caller import Caller
from app.memories.archiving import due, parameters
from app.memories.models import Memory
from app.memories.policies import PolicyCreate
from app.services import Services

MANY = 100_000
PART = 10_000
OLD = 700
"""Of them, so many have not changed for a year; of these one in seven is of the small app, category and namespace."""

_FILL = text(
    """
    INSERT INTO memories (user_id, app_id, content, namespace, hash, created_at, updated_at)
    SELECT :user, CASE WHEN n <= :old AND n % 7 = 0 THEN CAST(:small AS uuid) ELSE CAST(:app AS uuid) END,
        'thing number ' || n, CASE WHEN n <= :old AND n % 7 = 0 THEN 'small' ELSE 'default' END, md5(n::text || :salt),
        at, at
    FROM (
        SELECT n, now() - n * interval '1 second'
            - CASE WHEN n <= :old THEN interval '400 days' ELSE interval '1 day' END AS at
        FROM generate_series(CAST(:first AS integer), :last) AS n
    ) AS each
    """
)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_what_is_due_is_found_by_an_index_among_many(services: Services, owner: Caller, capsys) -> None:
    small = await services.directory.caller(owner.user, "small")
    async with services.database.transaction() as tx:
        await tx.execute(text("SET LOCAL statement_timeout = '300s'"))
        values = {"user": owner.user_id, "app": owner.app_id, "small": small.app_id, "old": OLD, "salt": uuid4().hex}
        # In parts: a statement has its deadline, whatever else the machine does.
        for first in range(1, MANY + 1, PART):
            await tx.execute(_FILL, values | {"first": first, "last": first + PART - 1})
        category = await tx.scalar(text("INSERT INTO categories (name) VALUES (:n) RETURNING id"), {"n": uuid4().hex})
        filed = "INSERT INTO memory_categories SELECT id, :c FROM memories WHERE user_id = :u AND namespace = 'small'"
        await tx.execute(text(filed), {"c": category, "u": owner.user_id})
    async with services.database.statement() as tx:
        await tx.execute(text("ANALYZE memories, memory_categories"))
    told = []
    for policy in (
        PolicyCreate(criteria_type="user", days_to_archive=365),
        PolicyCreate(criteria_type="app", criteria_id=small.app_id, days_to_archive=365),
        PolicyCreate(criteria_type="namespace", criteria_name="small", days_to_archive=365),
        PolicyCreate(criteria_type="category", criteria_id=category, days_to_archive=365),
    ):
        made = await services.policies.create(owner, policy)
        query = select(Memory.id).where(due(made.criteria_type)).order_by(Memory.updated_at).limit(500)
        compiled = query.compile(dialect=postgresql.psycopg.dialect())
        bound = parameters(_Due(made.id, owner.user_id, made.criteria_id, made.criteria_name, made.days_to_archive))
        async with services.database.statement() as tx:
            explain = f"EXPLAIN (ANALYZE, BUFFERS OFF) {compiled}"
            plan = "\n".join(row[0] for row in await tx.exec_driver_sql(explain, compiled.construct_params(bound)))
        told.append(f"{made.criteria_type}:\n{plan}")
        assert "Index" in plan
        assert "Seq Scan on memories" not in plan
        await services.policies.remove(owner, made.id)
    await services.policies.create(owner, PolicyCreate(criteria_type="user", days_to_archive=365))
    started = time.perf_counter()
    await services.archiving.run()
    seconds = time.perf_counter() - started
    async with services.database.statement() as tx:
        archived = "SELECT count(*) FROM memories WHERE user_id = :u AND state = 'archived'"
        assert await tx.scalar(text(archived), {"u": owner.user_id}) == OLD
    with capsys.disabled():
        print("\n" + "\n".join(told) + f"\n{OLD} of {MANY:,} archived in {seconds:.2f} s")
    async with services.database.transaction() as tx:
        await tx.execute(text("SET LOCAL statement_timeout = '300s'"))
        await tx.execute(text("DELETE FROM memories WHERE user_id = :u"), {"u": owner.user_id})


class _Due:
    """A policy as the job reads it."""

    def __init__(self, *values: object) -> None:
        self.id, self.user_id, self.criteria_id, self.criteria_name, self.days = values
