"""The server client against servers that are down, hang, lie or change, played by sockets of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from qdrant_client import AsyncQdrantClient, models

from openmemory.index.collections import collection_name
from openmemory.index.conditions import LABELS, TENANT
from openmemory.index.entries import IndexEntry
from openmemory.index.port import Filter, IndexUnavailable, Point, Vector
from openmemory.index.qdrant import QdrantIndex
from tests.listening import stop_accepting

pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant")

ALICE = UUID(int=1)
VECTORS = {
    "": {"size": 16, "distance": "Cosine"},
    "more": {"size": 16, "distance": "Cosine", "multivector_config": {"comparator": "max_sim"}},
}
NAME = collection_name("memories", "model", 16)


def vectors_of(**changes: Any) -> dict[str, models.VectorParams]:
    """The vectors of a collection of ours; `changes` are of its second kind."""
    parts = {name: models.VectorParams.model_validate(given) for name, given in VECTORS.items()}
    return parts | {"more": parts["more"].model_copy(update=changes)}


Build = Callable[..., Point]
Direction = Callable[..., Vector]
Answer = Callable[[str, str], Awaitable[tuple[int, bytes] | None]]


def index_at(url: str, *, timeout: float = 0.3, client: AsyncQdrantClient | None = None, **kw: Any) -> QdrantIndex:
    return QdrantIndex(
        url,
        collection=collection_name("memories", kw.pop("model", "model"), 16),
        alias="memories",
        dimension=16,
        timeout=timeout,
        client=client,
        **kw,
    )


def local() -> AsyncQdrantClient:
    return AsyncQdrantClient(location=":memory:")


@asynccontextmanager
async def serving(answer: Answer, port: int = 0) -> AsyncIterator[tuple[str, list[tuple[str, str, dict[str, str]]]]]:
    """An HTTP server that answers what it is told to: (method, path) → status and body, or None to hang up."""
    requests: list[tuple[str, str, dict[str, str]]] = []
    open_now: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, path, _ = head[0].split()
            headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if line)}
            await reader.readexactly(int(headers.get("content-length", "0")))
            requests.append((method, path, headers))
            if (reply := await answer(method, path)) is not None:
                status, body = reply
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body)))
                writer.write(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # The client went away, which is its right.
        finally:
            writer.close()
            open_now.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", requests
    finally:
        await stop_accepting(server.sockets)
        server.close()
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)
        await server.wait_closed()


def result(value: Any) -> tuple[int, bytes]:
    return 200, json.dumps({"result": value, "status": "ok", "time": 0.0}).encode()


async def healthy(method: str, path: str) -> tuple[int, bytes]:
    """Enough of a server for an index to open and to count."""
    if path.endswith("/exists"):
        return result({"exists": True})
    if path == "/aliases":
        return result({"aliases": [{"alias_name": "memories", "collection_name": NAME}]})
    if path.endswith("/points/count"):
        return result({"count": 7})
    schema = {TENANT: {"data_type": "keyword", "points": 0}, LABELS: {"data_type": "integer", "points": 0}}
    return result(
        {
            "status": "green",
            "optimizer_status": "ok",
            "segments_count": 1,
            "config": {
                "params": {"vectors": VECTORS, "sparse_vectors": {"words": {}}},
                "hnsw_config": {"m": 0, "ef_construct": 100, "full_scan_threshold": 10_000},
                "optimizer_config": {
                    "deleted_threshold": 0.2,
                    "vacuum_min_vector_number": 1_000,
                    "default_segment_number": 0,
                    "flush_interval_sec": 5,
                },
            },
            "payload_schema": schema,
        }
    )


async def every_refusal(index: QdrantIndex, point: Build, direction: Direction) -> None:
    async def listing() -> None:
        async for _ in index.entries():
            pass

    for call in (
        index.open,
        lambda: index.search(direction(1), Filter(ALICE), 3),
        lambda: index.upsert([point(1)]),
        lambda: index.delete([point(1).id]),
        index.count,
        index.status,
        index.flush,
        index.activate,
        listing,
    ):
        with pytest.raises(IndexUnavailable) as caught:
            await call()
        assert str(caught.value)


async def test_a_server_that_is_down_is_unavailable_and_used_as_soon_as_it_is_back(
    point: Build, direction: Direction
) -> None:
    async with serving(healthy) as (url, _):
        port = int(url.rsplit(":", 1)[1])
    index = index_at(url)
    await every_refusal(index, point, direction)
    async with serving(healthy, port):
        assert await index.count() == 7
    with pytest.raises(IndexUnavailable):
        await index.count()
    async with serving(healthy, port):
        assert await index.count() == 7
    await index.close()


async def test_a_hung_server_costs_a_search_no_more_than_its_deadline(direction: Direction) -> None:
    async def silence(method: str, path: str) -> None:
        await asyncio.Event().wait()

    async with serving(silence) as (url, _):
        index = index_at(url, timeout=0.4)
        outcomes = await asyncio.gather(
            index.open(),
            *(index.search(direction(seed), Filter(ALICE), 3) for seed in range(20)),
            return_exceptions=True,
        )
        assert all(isinstance(outcome, IndexUnavailable) for outcome in outcomes)
        await index.close()


async def test_a_server_that_hangs_only_on_searches_is_unavailable_within_the_deadline(direction: Direction) -> None:
    async def slow_search(method: str, path: str) -> tuple[int, bytes] | None:
        if path.endswith("/points/query/batch"):
            await asyncio.Event().wait()
        return await healthy(method, path)

    async with serving(slow_search) as (url, _):
        index = index_at(url)
        await index.open()
        with pytest.raises(IndexUnavailable, match=r"within 0\.3 s"):
            await index.search(direction(1), Filter(ALICE), 3)
        assert await index.count() == 7
        await index.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "reply",
    [
        (200, b"<html>It works!</html>"),
        (200, b""),
        (200, b"\xff\xfe\x00garbage"),
        (200, b"{}"),
        (200, b"[]"),
        result(None),
        result([]),
        result({"points": "none"}),
        result({"points": [{"id": "not-a-uuid", "version": 1, "score": 0.5}]}),
        result({"points": [{"id": str(UUID(int=1)), "version": 1, "score": "high"}]}),
        (404, b"not found"),
        (401, b'{"status": {"error": "Invalid API key"}}'),
        (429, b"{}"),
        (500, b"\x00" * 5_000),
        (503, b""),
        (302, b""),
        None,
    ],
)
async def test_garbage_is_unavailable_whoever_sends_it(
    reply: tuple[int, bytes] | None, point: Build, direction: Direction
) -> None:
    async def garbage(method: str, path: str) -> tuple[int, bytes] | None:
        return reply

    async def garbage_once_open(method: str, path: str) -> tuple[int, bytes] | None:
        return reply if "/points/query" in path else await healthy(method, path)

    async with serving(garbage) as (url, _):
        index = index_at(url, timeout=5)
        await every_refusal(index, point, direction)
        await index.close()
    async with serving(garbage_once_open) as (url, _):
        index = index_at(url, timeout=5)
        await index.open()
        with pytest.raises(IndexUnavailable):
            await index.search(direction(1), Filter(ALICE), 3)
        await index.close()


async def test_the_api_key_is_sent_without_a_warning_about_plain_http() -> None:
    async with serving(healthy) as (url, requests):
        index = index_at(url, api_key="secret", timeout=5)
        assert await index.count() == 7
        assert {headers["api-key"] for _, _, headers in requests} == {"secret"}
        await index.close()


async def test_an_opened_index_asks_the_server_once_per_call() -> None:
    async with serving(healthy) as (url, requests):
        index = index_at(url, timeout=5)
        await index.open()
        del requests[:]
        await index.count()
        assert [path for _, path, _ in requests] == [f"/collections/{NAME}/points/count"]
        await index.close()


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (vectors_of(size=8), "8 dimensions"),
        (vectors_of(distance=models.Distance.EUCLID), "compared by Euclid"),
        (vectors_of(multivector_config=None), "several vectors under another name"),
        ({"dense": models.VectorParams(size=16, distance=models.Distance.COSINE)}, "other vectors"),
        (models.VectorParams(size=16, distance=models.Distance.COSINE), "other vectors"),
    ],
)
async def test_a_collection_of_another_shape_is_neither_searched_nor_touched(
    vectors: Any, message: str, point: Build, direction: Direction
) -> None:
    client = local()
    words = {"words": models.SparseVectorParams()}
    await client.create_collection(NAME, vectors_config=vectors, sparse_vectors_config=words)
    index = index_at("", client=client)
    with pytest.raises(IndexUnavailable, match=message):
        await index.open()
    with pytest.raises(IndexUnavailable, match=message):
        await index.search(direction(1), Filter(ALICE), 3)
    with pytest.raises(IndexUnavailable, match=message):
        await index.upsert([point(1)])
    assert (await client.get_collection(NAME)).config.params.vectors == vectors
    await index.close()


async def test_a_collection_without_words_is_neither_searched_nor_touched(direction: Direction) -> None:
    client = local()
    await client.create_collection(NAME, vectors_config=vectors_of())
    index = index_at("", client=client)
    with pytest.raises(IndexUnavailable, match="other vectors"):
        await index.search(direction(1), Filter(ALICE), 3)
    await index.close()


async def test_a_collection_that_vanished_is_created_again(point: Build, direction: Direction) -> None:
    client = local()
    index = index_at("", client=client)
    await index.open()
    await index.upsert([point(1)])
    await client.delete_collection(NAME)

    with pytest.raises(IndexUnavailable):
        await index.search(direction(1), Filter(ALICE), 3)

    assert await index.search(direction(1), Filter(ALICE), 3) == []
    await index.upsert([point(1)])
    assert await index.count() == 1
    await index.close()


async def test_the_alias_moves_to_a_new_model_only_when_told(point: Build, direction: Direction) -> None:
    client = local()
    old = index_at("", client=client)
    await old.open()
    await old.upsert([point(1)])
    assert (await client.query_points("memories", query=direction(1).tolist())).points[0].id == str(point(1).id)

    new = index_at("", client=client, model="better")
    await new.open()
    assert await new.count() == 0
    assert (await client.count("memories")).count == 1
    await new.upsert([point(2), point(3)])
    await new.activate()
    await new.activate()

    assert (await client.count("memories")).count == 2
    assert await old.count() == 1
    await old.close()


async def test_a_collection_that_has_the_name_of_the_alias_is_left_alone(point: Build, direction: Direction) -> None:
    client = local()
    await client.create_collection("memories", vectors_config=models.VectorParams(size=4, distance=models.Distance.DOT))
    index = index_at("", client=client)
    await index.open()
    await index.upsert([point(1)])
    assert len(await index.search(direction(1), Filter(ALICE), 3)) == 1
    # What a sync does at its end, and a new model when it takes over.
    await index.activate()
    newer = index_at("", client=client, model="newer")
    await newer.open()
    await newer.activate()
    assert (await client.get_aliases()).aliases == []
    assert (await client.get_collection("memories")).points_count == 0
    await index.close()


async def test_points_that_somebody_else_wrote_are_listed_as_nobodys_and_never_found(
    point: Build, direction: Direction
) -> None:
    client = local()
    index = index_at("", client=client)
    await index.open()
    vector = {"": direction(1).tolist()}  # the client in this process wants a name where a collection has two
    stranger = UUID(int=77)
    await client.upsert(
        "memories",
        [
            models.PointStruct(id=str(stranger), vector=vector, payload={"data": "hi", "user_id": "alice"}),
            models.PointStruct(id=5, vector=vector, payload={"owner": str(ALICE)}),
        ],
    )
    await index.upsert([point(1)])
    numbered = UUID(int=5)
    assert sorted([entry async for page in index.entries() for entry in page]) == [
        IndexEntry(point(1).id, ALICE, 1),
        IndexEntry(numbered, UUID(int=0), 0),
        IndexEntry(stranger, UUID(int=0), 0),
    ]
    found = await index.search(direction(1), Filter(ALICE), 5)
    assert [hit.id for hit in found] == [point(1).id]
    await index.delete([stranger, numbered])
    assert await index.count() == await index.count(ALICE) == 1
    await index.close()
