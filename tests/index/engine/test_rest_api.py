"""Qdrant's protocol as our front speaks it: asked by its own client and by plain HTTP."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import numpy as np
import pytest
from qdrant_client import AsyncQdrantClient, models

from openmemory.index.engine import collections, shards
from openmemory.index.engine.rest_api import MAX_BODY_BYTES, QdrantRestApi
from openmemory.index.port import Vector
from tests.index.serving import served

COSINE = {"size": 16, "distance": "Cosine"}

Direction = Callable[..., Vector]


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a front with an empty collection `c`."""
    async with served(QdrantRestApi(tmp_path / "qdrant")) as url, httpx.AsyncClient(base_url=url) as client:
        assert (await client.put("/collections/c", json={"vectors": COSINE})).status_code == 200
        yield client


@pytest.fixture(scope="module")
async def unchanged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    """The same, for tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("qdrant")
    async with served(QdrantRestApi(folder)) as url, httpx.AsyncClient(base_url=url) as client:
        assert (await client.put("/collections/c", json={"vectors": COSINE})).status_code == 200
        yield client


@pytest.fixture
async def client(front: httpx.AsyncClient) -> AsyncIterator[AsyncQdrantClient]:
    """Qdrant's own client of the same front."""
    opened = AsyncQdrantClient(str(front.base_url), check_compatibility=False)
    yield opened
    await opened.close()


async def put(front: httpx.AsyncClient, *points: dict[str, Any], into: str = "c") -> None:
    answer = await front.put(f"/collections/{into}/points", params={"wait": "true"}, json={"points": points})
    assert answer.status_code == 200, answer.text
    assert answer.json()["result"]["status"] == "completed"


async def asked(front: httpx.AsyncClient, what: str, body: dict[str, Any], of: str = "c") -> Any:
    answer = await front.post(f"/collections/{of}/points{what}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


async def count(front: httpx.AsyncClient, filter: Any = None, of: str = "c") -> int:
    return (await asked(front, "/count", {"filter": filter, "exact": True}, of))["count"]


def numbered(number: int, payload: dict[str, Any] | None = None, *, vector: Any = None) -> dict[str, Any]:
    return {"id": number, "vector": vector or [1.0] * 16, "payload": payload}


async def test_it_says_what_it_is_and_what_it_holds(front: httpx.AsyncClient) -> None:
    root = (await front.get("/")).json()
    assert "qdrant" in root["title"]
    assert root["version"][0].isdigit()
    await front.put("/collections/b", json={"vectors": COSINE})
    listed = (await front.get("/collections")).json()
    assert (listed["status"], listed["result"]) == ("ok", {"collections": [{"name": "b"}, {"name": "c"}]})
    assert (await front.get("/collections/c/exists")).json()["result"] == {"exists": True}
    assert (await front.get("/collections/nope/exists")).json()["result"] == {"exists": False}


async def test_a_collection_is_described_as_the_client_expects_it(
    front: httpx.AsyncClient, client: AsyncQdrantClient
) -> None:
    await put(front, numbered(1), numbered(2, {"owner": "alice"}))
    tenant = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    await client.create_payload_index("c", "colour", tenant)
    counted = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=True, range=False)
    await client.create_payload_index("c", "number", counted)
    info = await client.get_collection("c")
    assert info.config.params.vectors == models.VectorParams(size=16, distance=models.Distance.COSINE)
    assert (info.points_count, info.status) == (2, "green")
    assert info.payload_schema["colour"].data_type == "keyword"
    assert info.payload_schema["number"].data_type == "integer"
    assert info.payload_schema["owner"].points == 1


async def test_points_come_back_as_they_were_given(client: AsyncQdrantClient, direction: Direction) -> None:
    payload = {"text": "süß \u0000 ☃", "deep": [1, -2.5, None, {"x": True}], "big": 2**53}
    given = [
        models.PointStruct(id=2**40, vector=direction(1).tolist(), payload=payload),
        models.PointStruct(id=str(UUID(int=7)), vector=(direction(2) * np.float32(9)).tolist(), payload=None),
    ]
    await client.upsert("c", given)
    first, second = await client.retrieve("c", [2**40, str(UUID(int=7)), 5], with_vectors=True)
    assert (first.id, first.payload, second.id, second.payload) == (2**40, payload, str(UUID(int=7)), {})
    assert first.vector == pytest.approx(direction(1).tolist(), abs=1e-6)
    assert second.vector == pytest.approx(direction(2).tolist(), abs=1e-6)  # unit length, as a server keeps them
    [bare] = await client.retrieve("c", [2**40], with_payload=["big", "nope"])
    assert (bare.payload, bare.vector) == ({"big": 2**53}, None)


async def test_the_nearest_come_first_and_exactly(client: AsyncQdrantClient, direction: Direction) -> None:
    vectors = {number: direction(number) for number in range(300)}
    await client.upsert("c", [models.PointStruct(id=n, vector=v.tolist()) for n, v in vectors.items()])
    asked = direction(7_000)
    best = sorted(vectors, key=lambda number: -float(vectors[number] @ asked))
    hits = (await client.query_points("c", asked.tolist(), limit=10)).points
    assert [hit.id for hit in hits] == best[:10]
    assert hits[0].score == pytest.approx(float(vectors[best[0]] @ asked), abs=1e-5)


@pytest.mark.slow
async def test_filters_decide_as_plain_code_does(front: httpx.AsyncClient) -> None:
    chance = random.Random(5)
    stored = {number: {"a": chance.choice(["x", "y", "z"]), "n": chance.randrange(4)} for number in range(200)}
    await put(front, *(numbered(number, payload) for number, payload in stored.items()))

    def a_condition() -> tuple[dict[str, Any], Callable[[int], bool]]:
        key = chance.choice(["a", "n"])
        value = chance.choice(list(stored.values()))[key]
        kind = chance.choice(["value", "any", "id", "inner"])
        if kind == "id":
            ids = chance.sample(range(250), 60)
            return {"has_id": ids}, lambda number: number in ids
        if kind == "inner":
            inner, meant = a_condition()
            return {"must_not": [inner]}, lambda number: not meant(number)
        if kind == "value":
            return {"key": key, "match": {"value": value}}, lambda number: stored[number][key] == value
        return {"key": key, "match": {"any": [value]}}, lambda number: stored[number][key] == value

    for _ in range(25):
        parts = {name: [a_condition() for _ in range(chance.randrange(3))] for name in ("must", "must_not", "should")}
        expected = {
            number
            for number in stored
            if all(meant(number) for _, meant in parts["must"])
            and not any(meant(number) for _, meant in parts["must_not"])
            and (not parts["should"] or any(meant(number) for _, meant in parts["should"]))
        }
        filter = {name: [condition for condition, _ in some] for name, some in parts.items()}
        found = await asked(front, "/scroll", {"filter": filter, "limit": 1_000, "with_payload": False})
        assert {point["id"] for point in found["points"]} == expected, filter
        assert await count(front, filter) == len(expected)
        hits = await asked(front, "/query", {"query": [1.0] * 16, "filter": filter, "limit": 1_000})
        assert {hit["id"] for hit in hits["points"]} == expected


async def test_a_scroll_goes_through_numbers_and_then_uuids(front: httpx.AsyncClient) -> None:
    ids = [*range(0, 50, 3), *(str(UUID(int=n * 2**100)) for n in range(1, 20))]
    await put(front, *({"id": id, "vector": [1.0] * 16} for id in reversed(ids)))
    seen: list[Any] = []
    offset: Any = None
    while True:
        page = await asked(front, "/scroll", {"limit": 7, "offset": offset})
        seen += [point["id"] for point in page["points"]]
        if (offset := page["next_page_offset"]) is None:
            break
    assert seen == ids


async def test_points_are_deleted_by_id(front: httpx.AsyncClient) -> None:
    await put(front, *(numbered(number) for number in range(5)))
    await asked(front, "/delete", {"points": [0, 2, 99]})
    assert [point["id"] for point in (await asked(front, "/scroll", {}))["points"]] == [1, 3, 4]


async def test_an_alias_stands_for_its_collection_until_it_is_moved_or_its_collection_goes(tmp_path: Path) -> None:
    def aliasing(*actions: dict[str, Any]) -> dict[str, Any]:
        return {"actions": list(actions)}

    to_c = {"create_alias": {"alias_name": "now", "collection_name": "c"}}
    to_d = {"create_alias": {"alias_name": "now", "collection_name": "d"}}
    to_none = {"create_alias": {"alias_name": "now", "collection_name": "nope"}}
    gone = {"delete_alias": {"alias_name": "now"}}
    async with served(QdrantRestApi(tmp_path)) as url, httpx.AsyncClient(base_url=url) as front:
        for name in ("c", "d"):
            await front.put(f"/collections/{name}", json={"vectors": COSINE})
        await put(front, numbered(1))
        assert (await front.post("/collections/aliases", json=aliasing(to_c))).json()["result"] is True
        assert await count(front, of="now") == 1
        await put(front, numbered(2), into="now")
        assert await count(front) == 2
        # All or none: the first step of a request whose second fails is not taken.
        assert (await front.post("/collections/aliases", json=aliasing(gone, to_none))).status_code == 404
        assert await count(front, of="now") == 2
        taken = await front.put("/collections/now", json={"vectors": COSINE, "sparse_vectors": {"bm25": {}}})
        assert taken.status_code == 400
        assert "Alias with the same name already exists" in taken.json()["status"]["error"]
        named = {"create_alias": {"alias_name": "d", "collection_name": "c"}}
        assert (await front.post("/collections/aliases", json=aliasing(named))).status_code == 409
        await front.post("/collections/aliases", json=aliasing(gone, to_d))
    async with served(QdrantRestApi(tmp_path)) as url, httpx.AsyncClient(base_url=url) as front:
        listed = (await front.get("/aliases")).json()["result"]
        assert listed == {"aliases": [{"alias_name": "now", "collection_name": "d"}]}
        assert (await count(front, of="now"), await count(front)) == (0, 2)
        assert (await front.delete("/collections/d")).json()["result"] is True
        assert (await front.delete("/collections/d")).json()["result"] is False
        assert (await front.get("/aliases")).json()["result"] == {"aliases": []}
        assert (await front.get("/collections/now")).status_code == 404


def nested(depth: int) -> dict[str, Any]:
    """A filter in a filter in a filter."""
    found: dict[str, Any] = {"key": "a", "match": {"value": "x"}}
    for _ in range(depth):
        found = {"must": [found]}
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("GET", "/collections/nope", None, 404, "Collection `nope` doesn't exist!"),
        ("POST", "/collections/nope/points/query", {"query": [1.0]}, 404, "doesn't exist"),
        ("PUT", "/collections/c", {"vectors": COSINE}, 409, "already exists"),
        ("PUT", "/collections/new", {"vectors": {"size": 4, "distance": "Dot"}}, 400, "Cosine"),
        ("PUT", "/collections/new", {"vectors": {"dense": COSINE}}, 400, "without a name"),
        ("PUT", "/collections/new", {"vectors": COSINE | {"size": 0}}, 400, "size"),
        ("PUT", "/collections/new", {"vectors": COSINE | {"size": True}}, 400, "size"),
        ("PUT", "/collections/new", {"vectors": COSINE | {"size": 10**9}}, 400, "size"),
        ("PUT", "/collections/..", {"vectors": COSINE}, 404, "not served"),
        ("PUT", "/collections/%2e%2e", {"vectors": COSINE}, 400, "name"),
        ("PUT", "/collections/..%5C..", {"vectors": COSINE}, 400, "name"),
        ("PUT", "/collections/current", {"vectors": COSINE}, 400, "name"),
        ("PUT", "/collections/aliases.json", {"vectors": COSINE}, 400, "name"),
        ("PUT", "/collections/c.broken-1", {"vectors": COSINE}, 400, "name"),
        ("PATCH", "/collections/c", {}, 404, "not served"),
        ("GET", "/collections/c/cluster", None, 404, "not served"),
        ("GET", "/nope", None, 404, "not served"),
        ("PUT", "/collections/c/points", {"points": [numbered(1, vector=[1.0])]}, 400, "expected dim: 16, got 1"),
        ("PUT", "/collections/c/points", {"points": [numbered(1, vector=[1e39] * 16)]}, 400, "not finite"),
        ("PUT", "/collections/c/points", {"points": [numbered(1, vector=["x"] * 16)]}, 400, "could not convert"),
        ("PUT", "/collections/c/points", {"points": [numbered(1, vector={"": [1.0] * 16})]}, 400, "without a name"),
        ("PUT", "/collections/c/points", {"points": [numbered(-1)]}, 400, "not a valid point ID"),
        ("PUT", "/collections/c/points", {"points": [{"id": "x", "vector": [1.0] * 16}]}, 400, "not a valid point ID"),
        ("PUT", "/collections/c/points", {"points": [numbered(1) | {"payload": [1]}]}, 400, "payload"),
        ("PUT", "/collections/c/points", {"batch": {}}, 400, "batch is not supported"),
        ("PUT", "/collections/c/points", [], 400, "body must be an object"),
        ("POST", "/collections/c/points/query", {"query": [1.0] * 3}, 400, "expected dim: 16, got 3"),
        ("POST", "/collections/c/points/query", {"query": 7}, 400, "array of numbers"),
        ("POST", "/collections/c/points/query", {"query": [1.0] * 16, "limit": 0}, 400, "limit"),
        ("POST", "/collections/c/points/query", {"query": [1.0] * 16, "prefetch": []}, 400, "prefetch"),
        ("POST", "/collections/c/points/count", {"filter": {"min_should": {}}}, 400, "min_should"),
        ("POST", "/collections/c/points/count", {"filter": {"must": [{"key": "a"}]}}, 400, "not supported"),
        ("POST", "/collections/c/points/count", {"filter": {"must": [{}]}}, 400, "not supported"),
        ("POST", "/collections/c/points/count", {"filter": {"must": [7]}}, 400, "condition"),
        (
            "POST", "/collections/c/points/count",
            {"filter": {"must": [{"key": "a", "match": {"text": "x"}}]}}, 400, "text is not supported",
        ),
        (
            "POST", "/collections/c/points/count",
            {"filter": {"must": [{"key": "a", "match": {"any": ["x", 1]}}]}}, 400, "cannot be compared",
        ),
        (
            "POST", "/collections/c/points/count",
            {"filter": {"must": [{"key": "a", "match": {"value": True}}]}}, 400, "cannot be compared",
        ),
        (
            "POST", "/collections/c/points/count",
            {"filter": {"must": [{"key": "a", "match": {"any": [True]}}]}}, 400, "cannot be compared",
        ),
        ("POST", "/collections/c/points/count", {"filter": {"must": False}}, 400, "must be an array"),
        ("POST", "/collections/c/points/count", {"filter": {"must_not": ""}}, 400, "must be an array"),
        ("POST", "/collections/c/points/count", {"filter": nested(400)}, 400, "Wrong input"),
        ("POST", "/collections/c/points/delete", {"filter": {"must": []}}, 400, "filter is not supported"),
        ("PUT", "/collections/new", {"vectors": COSINE, "sparse_vectors": {"s": {}}}, 400, "sparse"),
        ("PUT", "/collections/new", {"vectors": COSINE | {"multivector_config": {"c": 1}}}, 400, "several"),
        ("POST", "/collections/c/points", {"ids": ["nope"]}, 400, "not a valid point ID"),
        ("PUT", "/collections/c/index", {"field_name": "a", "field_schema": "geo"}, 400, "keywords and integers"),
        ("PUT", "/collections/c/index", {"field_name": 7, "field_schema": "integer"}, 400, "must be a text"),
        (
            "PUT", "/collections/c/index",
            {"field_name": "a", "field_schema": {"type": "integer", "lookup": "yes"}}, 400, "lookup must be true",
        ),
        ("POST", "/collections/aliases", {"actions": [{"rename_alias": {}}]}, 400, "create_alias"),
    ],
)  # fmt: skip
async def test_what_cannot_be_served_is_refused_in_the_shape_of_qdrant(
    unchanged: httpx.AsyncClient, method: str, path: str, body: Any, status: int, words: str
) -> None:
    answer = await unchanged.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["status"]["error"]
    assert await count(unchanged) == 0
    assert [it["name"] for it in (await unchanged.get("/collections")).json()["result"]["collections"]] == ["c"]


async def test_a_body_that_is_no_json_or_too_long_is_refused(unchanged: httpx.AsyncClient) -> None:
    answer = await unchanged.post("/collections/c/points/count", content=b"{'exact'")
    assert (answer.status_code, "Format error in JSON body" in answer.text) == (400, True)
    answer = await unchanged.put("/collections/c/points", content=b" " * (MAX_BODY_BYTES + 1))
    assert answer.status_code == 413
    assert await count(unchanged) == 0


async def test_a_request_with_one_wrong_point_writes_none(front: httpx.AsyncClient) -> None:
    points = [numbered(number) for number in range(600)] + [numbered(600, vector=[1.0] * 15)]
    assert (await front.put("/collections/c/points", json={"points": points})).status_code == 400
    assert await count(front) == 0


async def test_what_was_acknowledged_is_there_when_it_is_started_again(tmp_path: Path) -> None:
    for start in range(3):
        async with served(QdrantRestApi(tmp_path)) as url, httpx.AsyncClient(base_url=url) as front:
            if start == 0:
                await front.put("/collections/c", json={"vectors": COSINE})
            assert await count(front) == start * 300
            await put(front, *(numbered(start * 300 + number) for number in range(300)))


async def test_it_flushes_by_itself_what_it_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collections, "FLUSH_AFTER", 0.02)
    flushed = asyncio.Event()
    release = shards.release_mapped

    def after_a_flush(home: Path) -> None:
        release(home)
        flushed.set()

    front = QdrantRestApi(tmp_path)
    async with served(front) as url, httpx.AsyncClient(base_url=url) as client:
        await client.put("/collections/c", json={"vectors": COSINE})
        monkeypatch.setattr(shards, "release_mapped", after_a_flush)
        for _ in range(2):
            await put(client, numbered(1))
            await asyncio.wait_for(flushed.wait(), 10)
            flushed.clear()


async def test_a_damaged_collection_is_replaced_by_an_empty_one(tmp_path: Path) -> None:
    async with served(QdrantRestApi(tmp_path)) as url, httpx.AsyncClient(base_url=url) as front:
        await front.put("/collections/c", json={"vectors": COSINE})
        await put(front, numbered(1))
    for file in (tmp_path / "c").rglob("segment.json"):
        file.write_bytes(b"\0" * 20)
    async with served(QdrantRestApi(tmp_path)) as url, httpx.AsyncClient(base_url=url) as front:
        assert await count(front) == 0
        assert [it["name"] for it in (await front.get("/collections")).json()["result"]["collections"]] == ["c"]


async def test_damaged_aliases_are_forgotten(tmp_path: Path) -> None:
    (tmp_path / "aliases.json").write_bytes(b"[1")
    async with served(QdrantRestApi(tmp_path)) as url, httpx.AsyncClient(base_url=url) as front:
        assert (await front.get("/aliases")).json()["result"] == {"aliases": []}


async def test_a_second_front_on_the_folder_is_told_so(front: httpx.AsyncClient, tmp_path: Path) -> None:
    await count(front)
    async with served(QdrantRestApi(tmp_path / "qdrant")) as url, httpx.AsyncClient(base_url=url) as second:
        answer = await second.get("/collections/c")
        assert answer.status_code == 500
        assert "in use by another process" in answer.json()["status"]["error"]
    assert await count(front) == 0


async def test_a_collection_is_dropped_under_the_hands_of_its_readers(front: httpx.AsyncClient) -> None:
    await put(front, *(numbered(number) for number in range(2_000)))

    async def read() -> int:
        body = {"query": [1.0] * 16, "limit": 1_000}
        return (await front.post("/collections/c/points/query", json=body)).status_code

    readers = [asyncio.create_task(read()) for _ in range(60)]
    await readers[0]
    assert (await front.delete("/collections/c")).status_code == 200
    outcomes = await asyncio.gather(*readers)
    assert outcomes[0] == 200
    assert set(outcomes) <= {200, 404}
    assert (await front.get("/collections/c/exists")).json()["result"] == {"exists": False}


async def test_a_closed_front_refuses_and_may_be_closed_again(tmp_path: Path) -> None:
    front = QdrantRestApi(tmp_path)
    async with served(front) as url, httpx.AsyncClient(base_url=url) as client:
        await client.put("/collections/c", json={"vectors": COSINE})
        await front.close()
        answer = await client.get("/collections")
        assert (answer.status_code, "stopping" in answer.text) == (500, True)
        await front.close()
