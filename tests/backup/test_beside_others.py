"""What an import does to those who write at the same time: it neither holds them up nor is their end."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from sqlalchemy import text

from openmemory.errors import NotFound, Unavailable
from openmemory.services import Services
from openmemory.uploads.spool import Spool
from tests.backup.archives import Upstream, bring_in, new_id, send


@pytest.mark.slow
async def test_an_import_does_not_hold_up_another_user_who_files_under_the_same_new_category(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    """Categories are shared by all users: an import that has made one keeps it to itself until it is done."""
    archive = Upstream()
    name = f"health-{new_id()}"
    memory = archive.memory("mine", categories=[])
    await bring_in(api, user, archive.zip())
    archive.tables["memories"][0] |= {"content": "mine, changed", "category_ids": [archive.category(name)]}
    async with services.database.transaction() as tx:
        # Stands for an import that takes its time: it has to wait for this row.
        await tx.execute(text("SELECT FROM memories WHERE content = 'mine' AND id = :id FOR UPDATE"), {"id": memory})
        importing = asyncio.create_task(send(api, user, archive.zip()))
        await asyncio.sleep(1.5)
        body = {
            "user_id": f"other-{new_id()}",
            "text": "theirs",
            "app": "openmemory",
            "categories": [name],
            "infer": False,
        }
        adding = asyncio.create_task(api.post("/api/v1/memories", json=body))
        done, _ = await asyncio.wait([adding], timeout=5)
        assert not importing.done()
    answer = await adding
    assert (await importing).status_code == 200
    assert done, f"another user waited for the import; then {answer.status_code}"


async def test_an_import_whose_user_is_erased_meanwhile_ends_in_words(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    archive = Upstream()
    for number in range(50):
        archive.memory(f"number {number}")
    caller = await services.directory.caller(user, None, owner=True)
    spool = Spool(services.stores.folder)
    spool.write(archive.zip())
    async with services.database.transaction() as tx:
        await tx.execute(text("SELECT FROM users WHERE user_id = :user FOR UPDATE"), {"user": user})
        importing = asyncio.create_task(services.backup.restore(caller, spool, "overwrite"))
        await asyncio.sleep(1)
        assert not importing.done()
        await tx.execute(text("DELETE FROM apps WHERE owner_id = :id"), {"id": caller.user_id})
        await tx.execute(text("DELETE FROM users WHERE user_id = :user"), {"user": user})
    with pytest.raises(NotFound, match="erased"):
        await importing


@pytest.mark.slow
async def test_a_change_of_a_memory_beside_an_import_is_no_victim_of_it(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    """The import makes categories and then locks memories; a change locks its memory and then makes categories."""
    archive = Upstream()
    name = f"travel-{new_id()}"
    first = archive.memory("first", id="00000000" + new_id()[8:])
    second = archive.memory("second", id="ffffffff" + new_id()[8:])
    await bring_in(api, user, archive.zip())
    category = archive.category(name)
    for row in archive.tables["memories"]:
        row |= {"content": row["content"] + ", changed", "category_ids": [category]}
    async with services.database.transaction() as tx:
        await tx.execute(text("SELECT FROM memories WHERE id = :id FOR UPDATE"), {"id": first})
        importing = asyncio.create_task(send(api, user, archive.zip()))
        await asyncio.sleep(1.5)
        body = {"user_id": user, "memory_content": "second, by hand", "categories": [name]}
        changing = asyncio.create_task(api.put(f"/api/v1/memories/{second}", json=body))
        await asyncio.sleep(0.3)
    assert (await importing).status_code == 200
    answer = await changing
    assert answer.status_code == 200, answer.text


async def test_two_that_wait_for_each_other_are_told_so_and_not_that_the_database_is_away(services: Services) -> None:
    failures = services.database.failures
    keys = [new_id(), new_id()]
    reached = asyncio.Barrier(2)

    async def lock(first: str, second: str) -> None:
        async with services.database.transaction() as tx:
            await tx.execute(text("SELECT pg_advisory_xact_lock(hashtext(:key))"), {"key": first})
            await reached.wait()
            await tx.execute(text("SELECT pg_advisory_xact_lock(hashtext(:key))"), {"key": second})

    done = await asyncio.gather(lock(*keys), lock(*reversed(keys)), return_exceptions=True)
    [refused] = [each for each in done if each is not None]
    assert isinstance(refused, Unavailable)
    assert refused.code == "write_conflict"
    assert services.database.failures == failures
