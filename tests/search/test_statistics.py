from __future__ import annotations

from uuid import UUID

from sqlalchemy import text

from openmemory.identity.caller import Caller
from openmemory.search.statistics import LARGE, refresh, stale_users
from openmemory.services import Services


async def fill(services: Services, caller: Caller, count: int, namespace: str) -> None:
    async with services.database.transaction() as tx:
        await tx.execute(
            text("""
            insert into memories (user_id, app_id, namespace, content, hash)
            select :user, :app, cast(:namespace as text),
                   'stone ' || case when i % 2 = 0 then 'river' else 'n' || i end, md5(cast(:namespace as text) || i)
            from generate_series(1, :count) i
            """),
            {"user": caller.user_id, "app": caller.app_id, "namespace": namespace, "count": count},
        )


async def stored(services: Services, user: UUID) -> dict[tuple[str, str], tuple[int, int]]:
    async with services.database.statement() as connection:
        rows = await connection.execute(
            text("select namespace, term, documents, words from lexical_statistics where user_id = :user"),
            {"user": user},
        )
        return {(row.namespace, row.term): (row.documents, row.words) for row in rows}


async def test_a_large_scope_has_totals_and_its_common_terms(services: Services, app_caller: Caller):
    await fill(services, app_caller, LARGE, "work")
    await fill(services, app_caller, 100, "home")
    async with services.database.transaction() as tx:
        assert app_caller.user_id in await stale_users(tx)
        await refresh(tx, app_caller.user_id)
        assert app_caller.user_id not in await stale_users(tx)
    assert await stored(services, app_caller.user_id) == {
        ("", ""): (LARGE + 100, 2 * (LARGE + 100)),
        ("", "stone"): (LARGE + 100, 0),
        ("", "river"): (LARGE // 2 + 50, 0),
        ("work", ""): (LARGE, 2 * LARGE),
        ("work", "stone"): (LARGE, 0),
        ("work", "river"): (LARGE // 2, 0),
    }


async def test_a_small_memory_has_no_statistics(services: Services, app_caller: Caller):
    await fill(services, app_caller, 50, "work")
    async with services.database.transaction() as tx:
        assert app_caller.user_id not in await stale_users(tx)
        await refresh(tx, app_caller.user_id)
    assert await stored(services, app_caller.user_id) == {}


async def test_a_second_refresh_writes_nothing(services: Services, app_caller: Caller):
    await fill(services, app_caller, LARGE, "work")
    async with services.database.transaction() as tx:
        assert await refresh(tx, app_caller.user_id) == 6
        assert await refresh(tx, app_caller.user_id) == 0


async def test_statistics_follow_a_memory_that_grows_and_go_when_it_shrinks(services: Services, app_caller: Caller):
    user = app_caller.user_id
    await fill(services, app_caller, LARGE, "work")
    async with services.database.transaction() as tx:
        await refresh(tx, user)
    await fill(services, app_caller, LARGE // 5, "home")
    async with services.database.transaction() as tx:
        assert user in await stale_users(tx)
        await refresh(tx, user)
    assert (await stored(services, user))["", ""][0] == LARGE + LARGE // 5
    async with services.database.transaction() as tx:
        await tx.execute(text("update memories set state = 'deleted' where user_id = :user"), {"user": user})
        assert user in await stale_users(tx)
        await refresh(tx, user)
        assert user not in await stale_users(tx)
    assert await stored(services, user) == {}


async def test_two_processes_do_not_count_the_same_terms_at_once(services: Services, app_caller: Caller):
    await fill(services, app_caller, LARGE, "work")
    async with services.database.transaction() as one, services.database.transaction() as other:
        assert await refresh(one, app_caller.user_id) == 6
        assert await refresh(other, app_caller.user_id) == 0
