"""Which services may use one PostgreSQL together, and what becomes of the lease when its connection is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from openmemory.config.settings import Settings
from openmemory.database.engine import Database
from openmemory.errors import SetupError
from openmemory.index.lease import LOCK, LOST, SERVER, leased
from openmemory.index.port import IndexUnavailable
from openmemory.memories.schemas import MemoryCreate
from openmemory.search.candidates.retrieval import INDEX_BEHIND, NO_INDEX
from openmemory.search.schemas import Method, SearchQuery
from openmemory.services import Services, open_services
from openmemory.stores import Stores, open_stores
from tests.clusters import furnish
from tests.index.models import ann

Eventually = Callable[..., Awaitable[None]]


@pytest.fixture(scope="module")
async def database(short_folder: Path) -> AsyncIterator[Database]:
    """One that no other test claims."""
    async with open_stores(Settings(data_dir=str(furnish(short_folder / "claim")))) as (_, stores):
        database = Database(stores.database, Settings().database)
        yield database
        await database.close()


@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True)])
async def test_a_built_in_index_is_the_only_one(database: Database, first: bool, second: bool) -> None:
    async with leased(database, built_in=first):
        with pytest.raises(SetupError, match=r"^database\.url: another service .*\(qdrant\.url\)"):
            async with leased(database, built_in=second):
                pass
    async with leased(database, built_in=second):
        pass


async def test_any_number_may_share_a_server(database: Database) -> None:
    async with leased(database, built_in=False), leased(database, built_in=False):
        pass


async def test_a_second_service_with_an_index_of_its_own_is_refused_and_leaves_its_folder(
    database: Database, short_folder: Path
) -> None:
    settings = Settings.model_validate({"data_dir": str(short_folder / "claim-2"), "database": {"url": database.url}})
    async with leased(database, built_in=True):
        with pytest.raises(SetupError, match="another service"):
            async with open_stores(settings):
                pass
    async with open_stores(settings) as (_, stores):
        assert stores.shared


@asynccontextmanager
async def serving(database: Database, folder: Path, *, lease: str | None = None) -> AsyncIterator[Services]:
    """A service with a built-in index, which delivers on request. `lease`: a lease that is held for it."""
    settings = Settings.model_validate({"data_dir": str(folder), "database": {"url": database.url}})
    stores = None if lease is None else Stores(folder, database.url, shared=True, index_lease=lease)
    async with open_services(settings, stores=stores) as services:
        await services.outbox_delivery.stop()
        yield services


async def holders(database: Database) -> list[int]:
    """The processes of PostgreSQL that have the lock of the lease."""
    async with database.statement() as tx:
        found = await tx.scalars(
            text("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = :lock AND granted"), {"lock": LOCK}
        )
        return list(found)


async def end_connections(database: Database) -> None:
    """End the connections that hold the lock, as a restart of PostgreSQL does."""
    async with database.statement() as tx:
        for pid in await holders(database):
            await tx.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": pid})


@asynccontextmanager
async def quicker(database: Database, *, built_in: bool = True) -> AsyncIterator[str]:
    """The lease of another service, which takes it when the connection of the first has just ended."""
    async with asyncio.timeout(30):
        while True:
            await end_connections(database)
            taking = leased(database, built_in=built_in)
            try:
                holder = await taking.__aenter__()
            except SetupError:
                continue
            break
    try:
        yield holder
    finally:
        await taking.__aexit__(None, None, None)


async def look(services: Services) -> None:
    await services.monitor.check(services.spaces.serving)


async def found(services: Services, query: str) -> tuple[Method, str | None, list[str]]:
    """How a search answered, what it noted, and what it found by meaning."""
    answer = await services.search.search(await ann(services), SearchQuery(query))
    near = [result.memory for result in answer.results if (result.parts.cosine or 0) > 0.2]
    return answer.search_method, answer.note, near


async def added(services: Services, said: str) -> None:
    await services.memories.add(await ann(services), MemoryCreate(text=said))


@pytest.mark.slow
async def test_a_lease_whose_connection_ended_is_taken_again(database: Database, eventually: Eventually) -> None:
    async with leased(database, built_in=True):
        [before] = await holders(database)
        await end_connections(database)

        async def held() -> bool:
            return await holders(database) not in ([], [before])

        await eventually(held)
        with pytest.raises(SetupError, match="another service"):
            async with leased(database, built_in=True):
                pass


@pytest.mark.slow
async def test_a_service_whose_lease_another_one_took_delivers_nothing_and_says_so(
    database: Database, short_folder: Path, eventually: Eventually
) -> None:
    async with serving(database, short_folder / "lease-a") as first:
        await added(first, "The violin is in the attic.")
        await first.outbox_delivery.drain()
        await look(first)
        assert await found(first, "Where is the fiddle?") == (Method.HYBRID, None, ["The violin is in the attic."])

        async with quicker(database) as holder:
            await added(first, "The cello is in the cellar.")
            # It has not even noticed yet.
            assert (await first.outbox_delivery.drain()).written == 0
            await look(first)
            method, note, near = await found(first, "Where is the fiddle?")
            assert (method, near) == (Method.LEXICAL, [])
            assert note is not None
            assert NO_INDEX.casefold() in note.casefold()
            assert any(LOST in problem for problem in (await first.health.diagnose()).problems)
            with pytest.raises(IndexUnavailable, match=LOST):
                await first.reconciler.sync(trigger="test")
            await first.rebuild.step()
            async with serving(database, short_folder / "lease-b", lease=holder) as second:
                note = (await found(second, "Where is the fiddle?"))[1]
                assert note is not None
                assert note.startswith(INDEX_BEHIND)
                await second.reconciler.sync(trigger="test")
                await second.outbox_delivery.drain()  # what has an entry is left to the delivery
                assert len((await found(second, "Where are the stringed instruments?"))[2]) == 2

        async def ours_again() -> bool:
            await look(first)
            return not first.monitor.lease.lost

        await eventually(ours_again)
        # What the other one took is missing here, until it was compared.
        assert (await found(first, "Where is the fiddle?"))[:2] == (Method.HYBRID, INDEX_BEHIND)
        await first.reconciler.sync(trigger="test")
        method, note, near = await found(first, "Where are the stringed instruments?")
        assert (method, note, len(near)) == (Method.HYBRID, None, 2)


async def test_a_built_in_index_gives_way_to_services_with_a_server(
    database: Database, short_folder: Path, eventually: Eventually
) -> None:
    async with serving(database, short_folder / "lease-c") as first:
        await added(first, "The viola is on the veranda.")
        await first.outbox_delivery.drain()  # the first delivery makes the collection

        async def gives_way() -> bool:
            await look(first)
            return first.monitor.lease.lost

        async with quicker(database, built_in=False) as holder:
            assert holder == SERVER
            await eventually(gives_way)
