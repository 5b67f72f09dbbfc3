"""Categories that the job assigns: to what, what it leaves alone, what is told, and who may read because of it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import UUID

import pytest
from sqlalchemy import TextClause, text

from app.access.caller import Caller
from app.access.grants import GrantCreate
from app.embeddings.port import EmbedderUnavailable
from app.errors import Conflict, Forbidden, NotFound
from app.index.reconcile import alone
from app.memories import classifying, filing
from app.memories.filing import Filing, Waiting
from app.memories.schemas import MemoryCreate, MemoryQuery, MemoryUpdate
from app.search.schemas import SearchQuery
from app.sections import Categories
from app.services import Services

HEALTH = "I am allergic to penicillin and take pills for my blood pressure, my doctor says"
MONEY = "My mortgage and my savings: I invest 300 euros a month in index funds at the bank"
NOTHING = "ok, see above"


@pytest.fixture
async def job(services: Services) -> AsyncIterator[Filing]:
    return Filing(
        services.database, services.directory, services.spaces, services.deliverer, settings=Categories(assign="local")
    )


Remember = Callable[..., Awaitable[UUID]]


@pytest.fixture
def remember(services: Services) -> Remember:
    """Adds a memory and waits until it has its vector."""

    async def add(caller: Caller, content: str, *categories: str, **more: str) -> UUID:
        added = await services.memories.add(caller, MemoryCreate(content, categories=categories, **more))
        await services.deliverer.drain()
        return added.id

    return add


async def filed(services: Services, id_: UUID) -> dict[str, bool]:
    """The categories of a memory, and whether the service has assigned each."""
    query = """
        SELECT c.name, f.automatic FROM memory_categories AS f JOIN categories AS c ON c.id = f.category_id
        WHERE f.memory_id = :id
    """
    async with services.database.statement() as tx:
        return {row.name: row.automatic for row in await tx.execute(text(query), {"id": id_})}


async def mark(services: Services, id_: UUID) -> tuple[int, bool, str | None] | None:
    """The attempts of a memory's mark, whether it waits, and its error."""
    query = "SELECT attempts, due_at > now(), last_error FROM category_marks WHERE memory_id = :id"
    async with services.database.statement() as tx:
        row = (await tx.execute(text(query), {"id": id_})).one_or_none()
    return None if row is None else (row[0], row[1], row[2])


async def may_read(services: Services, app: Caller, id_: UUID) -> bool:
    try:
        await services.memories.get(app, id_)
    except NotFound:
        return False
    return True


async def test_what_no_client_has_filed_is_filed_and_told(
    services: Services, owner: Caller, job: Filing, remember: Remember
):
    health, money, nothing = [await remember(owner, each) for each in (HEALTH, MONEY, NOTHING)]
    given = await remember(owner, HEALTH + " too", "diary")
    assert await mark(services, health) == (0, False, None)
    assert await job.run() >= 2
    assert (await filed(services, health)).get("health") is True
    assert (await filed(services, money)).get("finance") is True
    assert await filed(services, nothing) == {}
    assert await filed(services, given) == {"diary": False}
    assert [await mark(services, each) for each in (health, money, nothing, given)] == [None] * 4
    found = await services.memories.list(owner, MemoryQuery(categories=("health",)))
    assert [item.id for item in found.items] == [health]
    query = """
        SELECT principal, door, detail FROM audit_events
        WHERE user_id = :user AND event = 'memory.update' AND detail ->> 'operation' = 'categories'
    """
    async with services.database.statement() as tx:
        told = (await tx.execute(text(query), {"user": owner.user_id})).all()
    assert {(row.principal, row.door) for row in told} == {("categories", "job")}
    assert {"health", "finance"} <= {name for row in told for name in row.detail["categories"]}
    # Once is enough.
    before = job.filed
    await job.run()
    assert job.filed == before


async def test_a_new_text_is_looked_at_again(services: Services, owner: Caller, job: Filing, remember: Remember):
    id_ = await remember(owner, HEALTH)
    await job.run()
    await services.memories.update(owner, id_, MemoryUpdate(text=MONEY))
    await services.deliverer.drain()
    assert await mark(services, id_) == (0, False, None)
    await job.run()
    assert "finance" in await filed(services, id_)
    assert "health" not in await filed(services, id_)


async def test_what_a_client_says_is_the_last_word(services: Services, owner: Caller, job: Filing, remember: Remember):
    emptied, confirmed = await remember(owner, HEALTH), await remember(owner, HEALTH + " again")
    await job.run()
    await services.memories.update(owner, emptied, MemoryUpdate(categories=()))
    await services.memories.update(owner, confirmed, MemoryUpdate(categories=("health",)))
    assert await filed(services, confirmed) == {"health": False}
    assert (await job.order(owner, again=True)).waiting == 0
    await services.memories.update(owner, emptied, MemoryUpdate(text=MONEY))
    await services.deliverer.drain()
    await job.run()
    assert await filed(services, emptied) == {}
    assert await filed(services, confirmed) == {"health": False}


async def test_an_app_that_names_a_guess_again_does_not_make_it_given(
    services: Services, owner: Caller, app_caller: Caller, job: Filing, remember: Remember
):
    id_ = await remember(app_caller, HEALTH)
    await job.run()
    names = tuple(await filed(services, id_))
    await services.memories.update(app_caller, id_, MemoryUpdate(categories=(*names, "diary")))
    assert await filed(services, id_) == dict.fromkeys(names, True) | {"diary": False}


async def test_a_guess_never_lets_an_app_in_and_may_keep_it_out(
    services: Services, owner: Caller, app_caller: Caller, job: Filing, remember: Remember
):
    guessed, given = await remember(owner, HEALTH), await remember(owner, HEALTH + " today", "health")
    await job.run()
    assert (await filed(services, guessed))["health"]
    rule = await services.grants.create(
        owner, GrantCreate(effect="allow", app=app_caller.app, object_type="category", object="health")
    )
    assert await may_read(services, app_caller, given)
    assert not await may_read(services, app_caller, guessed)
    hits = await services.search.search(app_caller, SearchQuery("allergic to penicillin"))
    assert [hit.id for hit in hits.results] == [given]
    why = await services.grants.explain(owner, app_caller.app, guessed)
    assert not why.allowed
    # What its user confirms is no guess any more.
    await services.memories.update(owner, guessed, MemoryUpdate(categories=("health",)))
    assert await may_read(services, app_caller, guessed)
    await services.grants.revoke(owner, rule.id)


async def test_a_deny_holds_for_guesses_and_they_are_never_taken_away(
    services: Services, owner: Caller, app_caller: Caller, job: Filing, remember: Remember
):
    id_ = await remember(app_caller, HEALTH)
    await services.grants.create(
        owner, GrantCreate(effect="deny", app=app_caller.app, object_type="category", object="health")
    )
    assert await may_read(services, app_caller, id_)
    await job.run()
    assert not await may_read(services, app_caller, id_)
    assert (await services.search.search(app_caller, SearchQuery("penicillin"))).results == []
    await services.memories.update(owner, id_, MemoryUpdate(text=MONEY))
    await services.deliverer.drain()
    await job.run()
    assert {"health", "finance"} <= (await filed(services, id_)).keys()
    assert not await may_read(services, app_caller, id_)


async def test_own_categories_that_are_described_are_assigned_to_their_user_alone(
    services: Services, owner: Caller, new_user: str, job: Filing, remember: Remember
):
    name = f"bees of {new_user}"
    described = "INSERT INTO categories (name, description) VALUES (:name, :about)"
    about = "Keeping bees: hives, honey, swarms, queens and the garden of the beekeeper."
    async with services.database.transaction() as tx:
        await tx.execute(text(described), {"name": name, "about": about})
    other = await services.directory.caller(f"{new_user}-other", None, owner=True)
    await remember(owner, "The first hive stands under the apple tree", name)
    mine = await remember(owner, "The bees swarmed and the new hive has a young queen and much honey")
    theirs = await remember(other, "The bees swarmed and the new hive has a young queen and much honey")
    await job.run()
    assert name in await filed(services, mine)
    assert name not in await filed(services, theirs)


async def test_without_a_model_all_waits_and_is_done_later(
    services: Services, owner: Caller, job: Filing, remember: Remember, monkeypatch: pytest.MonkeyPatch
):
    id_ = await remember(owner, HEALTH)

    async def away(texts: object) -> object:
        raise EmbedderUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(services.spaces.serving.embedder, "documents", away)
        assert await job.run() == 0
    assert await mark(services, id_) == (0, False, None)
    assert await job.run() >= 1


async def test_a_failure_leaves_the_memory_and_is_tried_again(
    services: Services, owner: Caller, job: Filing, remember: Remember, monkeypatch: pytest.MonkeyPatch, caplog
):
    id_ = await remember(owner, HEALTH)
    with monkeypatch.context() as patch:
        patch.setattr(classifying, "choose", lambda *_, **__: 1 / 0)
        assert await job.run() == 0
    assert "could not be assigned" in caplog.text
    assert await mark(services, id_) == (1, True, "ZeroDivisionError: division by zero")
    assert await filed(services, id_) == {}
    async with services.database.transaction() as tx:
        await tx.execute(text("UPDATE category_marks SET due_at = now() WHERE memory_id = :id"), {"id": id_})
    assert await job.run() >= 1
    assert "health" in await filed(services, id_)


async def test_what_has_no_vector_of_the_model_waits(
    services: Services, owner: Caller, job: Filing, remember: Remember
):
    id_ = await remember(owner, HEALTH)
    async with services.database.transaction() as tx:
        await tx.execute(text("DELETE FROM embeddings WHERE id = :id"), {"id": id_})
    await job.run()
    attempts, waits, error = await mark(services, id_) or (0, False, None)
    assert (attempts, waits) == (1, True)
    assert "no vector" in (error or "")


async def test_a_memory_that_somebody_writes_is_passed_over_and_nobody_waits(
    services: Services, owner: Caller, job: Filing, remember: Remember
):
    busy, free = await remember(owner, HEALTH), await remember(owner, MONEY)
    async with services.database.transaction() as tx:
        await tx.execute(text("SELECT FROM memories WHERE id = :id FOR NO KEY UPDATE"), {"id": busy})
        await job.run()
        assert await filed(services, busy) == {}
    assert "finance" in await filed(services, free)
    await job.run()
    assert "health" in await filed(services, busy)


async def test_one_process_files_and_none_where_it_is_off(
    services: Services, owner: Caller, job: Filing, remember: Remember
):
    id_ = await remember(owner, HEALTH)
    async with alone(services.database, filing.LOCK):
        assert await job.run() == 0
    assert await services.filing.run() == 0  # off in the settings of the tests
    assert await filed(services, id_) == {}
    assert await job.run() >= 1


async def test_only_the_user_has_their_memories_filed(
    services: Services, owner: Caller, app_caller: Caller, job: Filing, remember: Remember
):
    id_ = await remember(owner, HEALTH)
    assert await job.waiting(owner) == Waiting(waiting=1, failed=0)
    await job.run()
    assert await job.order(owner, again=False) == Waiting(waiting=0, failed=0)
    assert await job.order(owner, again=True) == Waiting(waiting=1, failed=0)
    before = await filed(services, id_)
    await job.run()
    assert await filed(services, id_) == before
    for refused in (job.order(app_caller, again=True), job.waiting(app_caller)):
        with pytest.raises(Forbidden):
            await refused
    with pytest.raises(Conflict, match="assigns no categories"):
        await services.filing.order(owner, again=True)


@pytest.mark.parametrize("statement", [filing._WHOSE, filing._WAITING])
async def test_what_waits_is_found_by_an_index(services: Services, owner: Caller, statement: TextClause):
    values = {"limit": 200, "user": owner.user_id}
    async with services.database.transaction() as tx:
        await tx.execute(text("SET LOCAL enable_seqscan = off"))
        bound = {name: values[name] for name in statement.compile().params}
        plan = "\n".join(await tx.scalars(text(f"EXPLAIN {statement.text}"), bound))
    assert "Seq Scan" not in plan, plan


MANY = 100_000
PART = 10_000
LOOKED_AT = 4_000
_FILL = text(
    """
    WITH new AS (
        INSERT INTO memories (user_id, app_id, content, hash)
        SELECT :user, :app, 'thing number ' || n, md5(n::text || :salt)
        FROM generate_series(CAST(:first AS integer), :last) AS n RETURNING id, hash
    )
    INSERT INTO embeddings (kind, id, model, text_hash, vector, cut)
    SELECT 'memory', new.id, e.model, new.hash, e.vector, e.cut
    FROM new CROSS JOIN (SELECT model, vector, cut FROM embeddings WHERE id = :like LIMIT 1) AS e
    """
)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("in_bulk")
async def test_many_are_filed_at_a_steady_pace(
    services: Services, owner: Caller, job: Filing, remember: Remember, monkeypatch: pytest.MonkeyPatch, capsys
):
    like = await remember(owner, HEALTH)
    values = {"user": owner.user_id, "app": owner.app_id, "like": like, "salt": str(like)}
    begun = time.perf_counter()
    for first in range(1, MANY + 1, PART):
        async with services.database.transaction() as tx:
            await tx.execute(text("SET LOCAL statement_timeout = '300s'"))
            await tx.execute(_FILL, values | {"first": first, "last": first + PART - 1})
    filled = time.perf_counter() - begun
    async with services.database.transaction() as tx:
        await tx.execute(text("ANALYZE memories, embeddings, category_marks"))
        bound = {"model": services.spaces.serving.model, "limit": 200, "users": [owner.user_id]}
        plan = "\n".join(await tx.scalars(text(f"EXPLAIN {filing._DUE.text}"), bound))
        assert "idx_category_marks_due" in plan, plan
        assert "Seq Scan on memories" not in plan, plan
        assert "Seq Scan on embeddings" not in plan, plan
    begun = time.perf_counter()
    seen = 0
    while seen < LOOKED_AT:
        seen += await job._some()
    each = (time.perf_counter() - begun) / seen
    assert job.filed == seen
    with capsys.disabled():
        print(f"\n{MANY:,} marked in {filled:.0f} s; filed {seen:,}: {1000 * each:.2f} ms each")
    assert each < 0.02
