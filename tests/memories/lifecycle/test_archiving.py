"""Archive policies over many memories: what is due is found by an index, and archived at a steady pace."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Select, select, text
from sqlalchemy.dialects import postgresql

from openmemory.identity.caller import Caller
from openmemory.memories.lifecycle.archiving import due_memories, parameters
from openmemory.memories.lifecycle.schemas import CriteriaType, PolicyCreate, UpcomingQuery
from openmemory.memories.lifecycle.upcoming import statement
from openmemory.memories.models import Memory
from openmemory.services import Services

MANY = 50_000
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
    named: list[tuple[CriteriaType, dict[str, Any]]] = [
        ("user", {}), ("app", {"criteria_id": small.app_id}), ("namespace", {"criteria_name": "small"}),
        ("category", {"criteria_id": category}),
    ]  # fmt: skip
    policies = [
        PolicyCreate(criteria_type=sort, **criterion, **days)
        for days in ({"days_to_archive": 365}, {"days_to_expire": 365})
        for sort, criterion in named
    ]
    for policy in policies:
        made = await services.policies.create(owner, policy)
        oldest = Memory.updated_at if policy.action == "archive" else Memory.created_at
        query = select(Memory.id).where(due_memories(made.criteria_type, policy.action)).order_by(oldest).limit(500)
        bound = parameters(_Due(made.id, owner.user_id, made.criteria_id, made.criteria_name, policy.days))
        told.append(f"{policy.action} {made.criteria_type}:\n{await explained(services, query, bound)}")
        await services.policies.remove(owner, made.id)
    for policy in policies:
        await services.policies.create(owner, policy)
    for within in (7, 36_500):
        bound = owner.parameters | {"within": within, "skipped": 0, "size": 50}
        if within == 7:
            await explained(services, statement(owner), bound)
        page = await services.upcoming.list(owner, UpcomingQuery(within))
        assert page.total == (OLD if within == 7 else MANY)
    for made in await services.policies.list(owner):
        await services.policies.remove(owner, made.id)
    await services.policies.create(owner, PolicyCreate(criteria_type="user", days_to_archive=365))
    await services.archiving.run()
    async with services.database.statement() as tx:
        archived = "SELECT count(*) FROM memories WHERE user_id = :u AND state = 'archived'"
        assert await tx.scalar(text(archived), {"u": owner.user_id}) == OLD
    with capsys.disabled():
        print("\n" + "\n".join(told) + "")
    async with services.database.transaction() as tx:
        await tx.execute(text("SET LOCAL statement_timeout = '300s'"))
        await tx.execute(text("DELETE FROM memories WHERE user_id = :u"), {"u": owner.user_id})


async def explained(services: Services, query: Select[Any], bound: dict[str, Any]) -> str:
    """How it is done: by an index, never by looking at every row."""
    compiled = query.compile(dialect=postgresql.psycopg.dialect())
    async with services.database.statement() as tx:
        explain = f"EXPLAIN (ANALYZE, BUFFERS OFF) {compiled}"
        plan = "\n".join(row[0] for row in await tx.exec_driver_sql(explain, compiled.construct_params(bound)))
    assert "Index" in plan
    assert "Seq Scan on memories" not in plan
    return plan


class _Due:
    """A policy as the job reads it."""

    def __init__(self, *values: object) -> None:
        self.id, self.user_id, self.criteria_id, self.criteria_name, self.days = values
