"""Whose a collection is: other installations on the same server, copies of a database, and collections without an
owner."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from qdrant_client import AsyncQdrantClient, models
from sqlalchemy import select
from sqlalchemy.engine import make_url

from openmemory.config.settings import Settings
from openmemory.errors import ConflictError
from openmemory.identity.principal import LOCAL
from openmemory.index import ownership, qdrant
from openmemory.index.collections import OWNER, owner_payload, reserved_vector
from openmemory.index.engine.rest_api import QdrantRestApi
from openmemory.index.models import IndexGeneration, Installation
from openmemory.index.ownership import Ownership
from openmemory.index.port import CollectionState, IndexUnavailable, OwnedByAnother, Owner, Point, Watermark
from openmemory.memories.schemas import MemoryCreate
from openmemory.search.candidates.retrieval import FOREIGN_INDEX
from openmemory.search.schemas import Method, SearchQuery
from openmemory.services import Services, open_services
from openmemory.stores import open_stores
from openmemory.telemetry.process import state
from tests import warm
from tests.clusters import furnish
from tests.doors.mcp.conftest import serving
from tests.faults.embedding_server import EmbeddingServer
from tests.index.conftest import ServerStore
from tests.index.models import LOCAL as DEFAULT_NAME
from tests.index.models import ann
from tests.index.serving import served

MEMORIES = 6


@dataclass
class World:
    """One PostgreSQL with a database for each installation, and one Qdrant for all of them."""

    postgres: str
    qdrant: str
    folder: Path

    async def database(self, template: str = "") -> str:
        """A new database, or a copy of one that nobody uses now."""
        name = f"d{uuid4().hex[:12]}"
        copying = f" TEMPLATE {template}" if template else ""
        root = make_url(self._url("postgres")).set(username="postgres").render_as_string(hide_password=False)
        async with await psycopg.AsyncConnection.connect(root, autocommit=True) as connection:
            await connection.execute(f"CREATE DATABASE {name} OWNER openmemory{copying}".encode())
        return name

    @asynccontextmanager
    async def serving(
        self,
        database: str,
        collection: str = "openmemory",
        *,
        built_in: str = "",
        server: EmbeddingServer | None = None,
    ) -> AsyncIterator[Services]:
        """A service in which nothing runs but on request. `built_in`: the data folder of an index of its own.
        `server`: serves another model."""
        embedder = {} if server is None else {
            "provider": "openai", "model": "other", "base_url": f"http://127.0.0.1:{server.port}/v1", "api_key": "k",
        }  # fmt: skip
        settings = Settings.model_validate({
            "data_dir": str(self.folder / (built_in or f"of-{database}-{uuid4().hex[:4]}")), "port": 0,
            "database": {"url": self._url(database)}, "embedder": embedder,
            "qdrant": {"url": "" if built_in else self.qdrant, "collection": collection},
        })  # fmt: skip
        async with open_services(settings) as services:
            await services.outbox_delivery.stop()
            yield services

    def _url(self, database: str) -> str:
        url = make_url(self.postgres).set(database=database, drivername="postgresql")
        return url.render_as_string(hide_password=False)


@pytest.fixture(scope="module")
async def postgres(short_folder: Path) -> AsyncIterator[str]:
    async with open_stores(Settings(data_dir=str(furnish(short_folder / "owners")))) as (_, stores):
        yield stores.database


@pytest.fixture
async def world(postgres: str, tmp_path: Path) -> AsyncIterator[World]:
    async with served(QdrantRestApi(tmp_path / "qdrant")) as url:
        yield World(postgres, url, tmp_path)


@pytest.fixture
async def client(world: World) -> AsyncIterator[AsyncQdrantClient]:
    client = AsyncQdrantClient(world.qdrant, check_compatibility=False)
    yield client
    await client.close()


async def jobs(services: Services) -> None:
    """What the jobs do, until nothing is left to do."""
    for _ in range(3):
        await services.rebuild.step()
        await services.monitor.check(services.spaces.serving)
    if not services.monitor.lease.lost:
        await services.reconciler.sync(trigger="test")


async def fill(services: Services, about: str = "tea") -> None:
    news = [MemoryCreate(text=f"fact number {n} about {about}") for n in range(MEMORIES)]
    await services.memories.add_many(await ann(services), news)
    await services.outbox_delivery.drain()
    await jobs(services)


async def found(services: Services, query: str = "a fact about tea") -> tuple[int, str | None]:
    """How many memories a search finds by meaning, and its note."""
    answer = await services.search.search(await ann(services), SearchQuery(query, limit=50))
    return sum(result.parts.cosine is not None for result in answer.results), answer.note


async def contents(client: AsyncQdrantClient, name: str) -> dict[str, object]:
    """Every point of a collection, without the beats and the sequence that its own installation advances."""
    records, _ = await client.scroll(name, limit=1_000, with_payload=True, with_vectors=True)
    kept = {str(it.id): (it.payload or {}, it.vector) for it in records}
    for payload, _ in kept.values():
        for key in ("writer", "beat", "sequence"):
            payload.pop(key, None)
    return dict(kept)


async def aliases(client: AsyncQdrantClient) -> dict[str, str]:
    return {it.alias_name: it.collection_name for it in (await client.get_aliases()).aliases}


async def names(client: AsyncQdrantClient) -> set[str]:
    return {it.name for it in (await client.get_collections()).collections}


async def id_of(services: Services) -> UUID:
    async with services.database.statement() as tx:
        return (await tx.scalars(select(Installation.id))).one()


@pytest.mark.slow
async def test_two_installations_on_one_server_touch_nothing_of_each_other(world: World, client) -> None:
    async with world.serving(await world.database()) as one, world.serving(await world.database()) as two:
        await fill(one)
        before = await contents(client, DEFAULT_NAME)
        await fill(two, "coffee")
        own = f"openmemory-{(await id_of(two)).hex[:8]}"
        assert two.spaces.serving.collection == DEFAULT_NAME.replace("openmemory", own)
        for services in (one, two, one, two):
            await jobs(services)
            await services.reconciler.sync(trigger="test", full=True)
            assert await found(services) == (MEMORIES, None)
        await two.memories.delete_all(await ann(two))
        await two.outbox_delivery.drain()
        await jobs(two)
        assert await contents(client, DEFAULT_NAME) == before
        assert await aliases(client) == {"openmemory": DEFAULT_NAME, own: two.spaces.serving.collection}
        assert (await one.health.diagnose()).problems == []


@pytest.mark.slow
async def test_the_name_that_was_taken_is_kept_after_a_restart(world: World) -> None:
    second = await world.database()
    async with world.serving(await world.database()) as one, world.serving(second) as two:
        await fill(one)
        await fill(two)
        own = two.spaces.serving.collection
    async with world.serving(second) as two:
        await jobs(two)
        assert two.spaces.serving.collection == own
        assert await found(two) == (MEMORIES, None)


@pytest.mark.slow
async def test_a_configured_name_that_is_taken_is_left_alone_and_said_everywhere(world: World, client) -> None:
    async with (
        world.serving(await world.database(), "team") as one,
        world.serving(await world.database(), "team") as two,
    ):
        await fill(one)
        before = await contents(client, one.spaces.serving.collection)
        await fill(two, "coffee")
        answer = await two.search.search(await ann(two), SearchQuery("fact about coffee"))
        assert (answer.search_method, answer.note, len(answer.results)) == (Method.LEXICAL, FOREIGN_INDEX, MEMORIES)
        ready = await two.health.ready()
        assert (ready.status, ready.checks["index"].ok) == ("degraded", False)
        [problem] = [it for it in (await two.health.diagnose()).problems if "words alone" in it]
        assert f"belongs to another installation, {await id_of(one)}" in problem
        assert "qdrant.collection" in problem
        [gauge] = [it for it in state(two) if it.name == "openmemory_index_foreign"]
        assert gauge.samples[0].value == 1
        with pytest.raises(IndexUnavailable, match="belongs to another installation"):
            await two.reconciler.sync(trigger="test")
        assert await contents(client, one.spaces.serving.collection) == before
        assert await found(one) == (MEMORIES, None)
        assert len(await names(client)) == 1


@pytest.mark.slow
async def test_a_taken_collection_becomes_free_when_its_owner_leaves(world: World, client) -> None:
    second = await world.database()
    async with world.serving(await world.database(), "team") as one:
        await fill(one)
    async with world.serving(second, "team") as two:
        await fill(two)
        assert two.monitor.lease.lost
        await client.delete_collection(two.spaces.serving.collection)
        await jobs(two)
        assert await found(two) == (MEMORIES, None)


@pytest.mark.slow
async def test_a_restored_dump_asks_and_becomes_an_installation_of_its_own(world: World, client) -> None:
    production = await world.database()
    async with world.serving(production) as one:
        await fill(one)
        number = await id_of(one)
        with pytest.raises(ConflictError):
            await one.installations.decide(LOCAL, "copied")
    async with world.serving(await world.database(production)) as staging, world.serving(production) as one:
        await jobs(one)
        before = await contents(client, DEFAULT_NAME)
        await staging.memories.delete_all(await ann(staging))
        await fill(staging, "coffee")
        answer = await staging.search.search(await ann(staging), SearchQuery("fact about coffee"))
        assert (answer.search_method, answer.note) == (Method.LEXICAL, FOREIGN_INDEX)
        shown = await staging.installations.show(LOCAL)
        assert (shown.id, shown.asked) == (number, True)
        assert "openmemory installation --copied" in (shown.refusal or "")
        assert await contents(client, DEFAULT_NAME) == before
        await staging.installations.decide(LOCAL, "copied")
        await jobs(staging)
        assert staging.spaces.serving.collection != DEFAULT_NAME
        assert await id_of(staging) != number
        assert await found(staging, "fact about coffee") == (MEMORIES, None)
        await jobs(one)
        assert await contents(client, DEFAULT_NAME) == before
        assert await found(one) == (MEMORIES, None)


@pytest.mark.slow
async def test_a_moved_database_takes_its_collection_over_and_the_old_one_is_asked(world: World) -> None:
    old = await world.database()
    async with world.serving(old) as one:
        await fill(one)
    async with world.serving(await world.database(old)) as new:
        await jobs(new)
        assert new.monitor.lease.lost
        async with serving(new) as url:
            told = await asyncio.to_thread(warm.run, "installation", "--moved", "--json", "--url", url)
        answer = json.loads(told.stdout)
        assert (told.returncode, answer["refusal"], answer["asked"]) == (0, None, False)
        assert answer["collection"] == DEFAULT_NAME
        await jobs(new)
        assert (new.spaces.serving.collection, await found(new)) == (DEFAULT_NAME, (MEMORIES, None))
        async with world.serving(old) as one:
            await jobs(one)
            assert (await one.installations.show(LOCAL)).asked
            assert (await found(one))[1] == FOREIGN_INDEX
        await jobs(new)
        assert await found(new) == (MEMORIES, None)


@pytest.mark.slow
async def test_a_data_folder_that_another_database_filled_keeps_what_is_in_it(world: World) -> None:
    first, second = await world.database(), await world.database()
    async with world.serving(first, built_in="one-folder") as one:
        await fill(one)
    async with world.serving(second, built_in="one-folder") as two:
        await fill(two, "coffee")
        assert two.spaces.serving.collection != DEFAULT_NAME
        assert await found(two, "fact about coffee") == (MEMORIES, None)
    async with world.serving(first, built_in="one-folder") as one:
        assert one.spaces.serving.collection == DEFAULT_NAME
        assert await found(one) == (MEMORIES, None)


@pytest.mark.slow
async def test_another_model_whose_collection_is_taken_gets_a_name_of_its_own(
    world: World, client, server: EmbeddingServer
) -> None:
    first, second = await world.database(), await world.database()
    async with world.serving(first, server=server) as one:
        await fill(one)
        taken = one.spaces.serving.collection
        before = await contents(client, taken)
    async with world.serving(second) as two:
        await fill(two)
        assert two.spaces.serving.collection == DEFAULT_NAME
    async with world.serving(second, server=server) as two:
        await jobs(two)
        assert two.spaces.serving.collection == taken.replace("openmemory", f"openmemory-{(await id_of(two)).hex[:8]}")
        assert await found(two) == (MEMORIES, None)
        assert await contents(client, taken) == before


# The decisions, on a database without a service.


@pytest.fixture
async def at_hand(services: Services) -> tuple[Ownership, UUID, UUID]:
    """An ownership with beats, the id of the installation, and the epoch of its collection."""
    await services.rebuild.step()
    async with services.database.statement() as tx:
        epoch = (
            await tx.scalars(select(IndexGeneration.epoch).where(IndexGeneration.collection == DEFAULT_NAME))
        ).one()
    return Ownership(services.database, beats=True), await id_of(services), epoch


async def memory_of(services: Services, name: str) -> UUID:
    caller = await services.directory.caller(name, None, owner=True)
    return (await services.memories.add(caller, MemoryCreate(text="Tea is served at five."))).id


async def test_a_collection_without_an_owner_is_claimed_if_the_database_knows_its_content(
    services: Services, at_hand, new_user: str
) -> None:
    _, id_, epoch = at_hand
    known = await memory_of(services, new_user)
    for held in (
        CollectionState(None, None, created=True),
        CollectionState(None, Watermark(epoch, 7)),
        CollectionState(None, None, ids=(uuid4(), known)),
    ):
        started = Ownership(services.database, beats=True)
        assert (await started.accept(DEFAULT_NAME, held)).installation == id_


async def test_a_collection_that_somebody_made_again_is_not_claimed_for_what_was_just_written_to_it(
    services: Services, at_hand, new_user: str
) -> None:
    mine, id_, epoch = at_hand
    known = await memory_of(services, new_user)
    first = await mine.accept(DEFAULT_NAME, CollectionState(None, None, created=True))
    for held in (CollectionState(None, Watermark(epoch, 7)), CollectionState(None, None, ids=(uuid4(), known))):
        with pytest.raises(OwnedByAnother):
            await mine.accept(DEFAULT_NAME, held)
    assert (await mine.accept(DEFAULT_NAME, CollectionState(first, None))).installation == id_, "it names us again"


@pytest.mark.parametrize("held", [
    CollectionState(None, Watermark(uuid4(), 7)),
    CollectionState(None, Watermark(uuid4(), 7), ids=(uuid4(),)),
    CollectionState(None, None, ids=(uuid4(), UUID(int=5))),
    CollectionState(Owner(uuid4(), "elsewhere/5"), None),
])  # fmt: skip
async def test_a_collection_of_somebody_else_is_refused(at_hand, held: CollectionState) -> None:
    mine, _, _ = at_hand
    with pytest.raises(OwnedByAnother, match=r"qdrant\.collection") as refused:
        await mine.accept(DEFAULT_NAME, held)
    assert not refused.value.asked


async def test_an_empty_collection_is_left_a_moment_to_the_process_that_created_it(at_hand, monkeypatch) -> None:
    mine, id_, _ = at_hand
    with pytest.raises(IndexUnavailable, match="a moment ago"):
        await mine.accept("new", CollectionState(None, None))
    monkeypatch.setattr(ownership, "NEW_AFTER", 0)
    assert (await mine.accept("new", CollectionState(None, None))).installation == id_


async def test_beats_go_on_and_those_of_a_replica_are_known(services: Services, at_hand, monkeypatch) -> None:
    mine, _, _ = at_hand
    replica = Ownership(services.database, beats=True)
    first = await mine.accept("one", CollectionState(None, None, created=True))
    assert await replica.accept("one", CollectionState(first, None)) == first, "it was written a moment ago"
    monkeypatch.setattr(ownership, "BEAT_EVERY", 0)
    second = await replica.accept("one", CollectionState(first, None))
    assert second.writer != first.writer
    third = await mine.accept("one", CollectionState(second, None))
    assert third == first._replace(beat=2)
    assert (await mine.accept("one", CollectionState(first, None))).beat == 3, "an older storage is no other database"


@pytest.mark.parametrize("beat", [1, 900])
async def test_beats_that_the_database_does_not_know_are_those_of_a_copy(
    services: Services, at_hand, monkeypatch, beat: int
) -> None:
    mine, _, _ = at_hand
    first = await mine.accept("copied", CollectionState(None, None, created=True))
    theirs = first._replace(beat=beat + 1) if beat == 900 else first._replace(writer=uuid4(), beat=beat)
    beside = Ownership(services.database, beats=True)
    for _ in range(2):
        with pytest.raises(OwnedByAnother, match="may be used") as refused:
            await beside.accept("copied", CollectionState(theirs, None))
        assert refused.value.asked
    theirs = theirs._replace(beat=theirs.beat + 1)
    with pytest.raises(OwnedByAnother, match="is being used"):
        await beside.accept("copied", CollectionState(theirs, None))
    monkeypatch.setattr(ownership, "SILENT_AFTER", 0)
    monkeypatch.setattr(ownership, "BEAT_EVERY", 0)
    taken = await beside.accept("copied", CollectionState(theirs, None))
    assert (taken.installation, taken.place) == (first.installation, first.place)
    assert taken.writer not in {theirs.writer, first.writer}


# The index on a server.


async def accept_all(installation: UUID, store: ServerStore) -> tuple[qdrant.QdrantIndex, list[CollectionState]]:
    """An index of an installation, and what it was asked about."""
    asked: list[CollectionState] = []

    async def accept(held: CollectionState) -> Owner:
        asked.append(held)
        if held.owner is not None and held.owner.installation != installation:
            raise OwnedByAnother("it is another's")
        return Owner(installation, "here/1")

    return store.index(accept=accept), asked


async def replace_owner(url: str, name: str, installation: UUID) -> None:
    client = AsyncQdrantClient(url, check_compatibility=False)
    point = models.PointStruct(
        id=OWNER, vector=reserved_vector(16).tolist(), payload=owner_payload(Owner(installation, "there/2"))
    )
    await client.upsert(name, [point], wait=True)
    await client.close()


@pytest.fixture
async def server_store(qdrant_url: str) -> AsyncIterator[ServerStore]:
    store = ServerStore(qdrant_url)
    yield store
    await store.remove()


async def test_a_collection_that_changed_hands_is_not_written(
    server_store: ServerStore, qdrant_url: str, point: Callable[..., Point], monkeypatch
) -> None:
    monkeypatch.setattr(qdrant, "OWNER_EVERY", 0)
    index, _ = await accept_all(UUID(int=1), server_store)
    await index.upsert([point(1)])
    await replace_owner(qdrant_url, server_store.name, UUID(int=2))
    writes: list[Callable[[], Awaitable[object]]] = [
        lambda: index.upsert([point(2)]),
        lambda: index.delete([point(1).id]),
        lambda: index.set_watermark(Watermark(UUID(int=5), 1)),
        index.activate,
        index.renew,
        index.drop,
    ]
    for write in writes:
        with pytest.raises(IndexUnavailable, match="another"):
            await write()
    await index.close()
    unbound = server_store.index()
    assert [entry.id async for page in unbound.entries() for entry in page] == [point(1).id]
    assert await unbound.watermark() is None
    await unbound.close()


async def test_the_owner_is_asked_for_before_anything_is_written_and_is_no_point(
    server_store: ServerStore, point: Callable[..., Point]
) -> None:
    index, asked = await accept_all(UUID(int=1), server_store)
    await index.open()
    assert asked == [CollectionState(None, None, created=True)]
    assert await index.count() == 0
    await index.upsert([point(1)])
    await index.renew()
    assert asked[1:] == [CollectionState(Owner(UUID(int=1), "here/1"), None)]
    assert [len(page) async for page in index.entries()] == [1]
    assert (await index.count(), (await index.status()).points) == (1, 1)
    await index.close()


@pytest.mark.parametrize("filled", [False, True])
async def test_a_collection_that_a_replica_takes_while_it_is_looked_at_is_not_that_of_another(
    server_store: ServerStore, point: Callable[..., Point], monkeypatch, filled: bool
) -> None:
    await (created := server_store.index()).open()
    await created.close()
    theirs, _ = await accept_all(UUID(int=1), server_store)
    mine, asked = await accept_all(UUID(int=1), server_store)
    sample = AsyncQdrantClient.scroll

    async def taken(client: AsyncQdrantClient, *given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        await theirs.open()
        if filled:
            await theirs.upsert([point(1)])
        return await sample(client, *given, **named)

    monkeypatch.setattr(AsyncQdrantClient, "scroll", taken)
    await mine.open()
    [held] = asked
    assert held.owner == Owner(UUID(int=1), "here/1")
    for index in (mine, theirs):
        await index.close()


async def test_an_alias_that_names_the_collection_of_another_is_not_moved(
    server_store: ServerStore, qdrant_url: str
) -> None:
    other = ServerStore(qdrant_url)
    theirs, _ = await accept_all(UUID(int=2), server_store)
    await theirs.open()
    other.alias = server_store.alias
    mine, _ = await accept_all(UUID(int=1), other)
    await mine.activate()
    client = AsyncQdrantClient(qdrant_url, check_compatibility=False)
    assert (await aliases(client))[server_store.alias] == server_store.name
    await client.close()
    for index in (mine, theirs):
        await index.close()
    await other.remove()
