"""Several vectors of a point in Qdrant's REST protocol over the built-in engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from qdrant_client import AsyncQdrantClient, models

from openmemory.index.conditions import HAS_CHUNKS
from openmemory.index.engine.rest_api import QdrantRestApi
from openmemory.index.port import Vector
from tests.index.serving import served

Direction = Callable[..., Vector]

ONE = {"size": 16, "distance": "Cosine"}
BOTH = {"": ONE, "more": ONE | {"multivector_config": {"comparator": "max_sim"}}}
WORDS: dict[str, Any] = {"words": {}}


def point(vector: Any) -> dict[str, Any]:
    """The body of an upsert of one point."""
    return {"points": [{"id": 1, "vector": vector}]}


def sparse(indices: list[Any], values: list[Any]) -> dict[str, Any]:
    return {"indices": indices, "values": values}


async def test_the_front_speaks_of_several_vectors_as_qdrant_does(tmp_path: Path, direction: Direction) -> None:
    async with served(QdrantRestApi(tmp_path)) as url:
        client = AsyncQdrantClient(url, check_compatibility=False)
        vectors: Any = {name: models.VectorParams.model_validate(it) for name, it in BOTH.items()}
        words = {"words": models.SparseVectorParams()}
        await client.create_collection("c", vectors_config=vectors, sparse_vectors_config=words)
        params = (await client.get_collection("c")).config.params
        assert (params.vectors, params.sparse_vectors) == (vectors, words)
        said = models.SparseVector(indices=[7, 2**32 - 1], values=[2, 3])
        asked = models.SparseVector(indices=[2**32 - 1, 8], values=[4, 1])
        plain, chunks = direction(1).tolist(), np.stack([direction(3), direction(4)]).tolist()
        await client.upsert("c", [
            models.PointStruct(id=1, vector=plain),
            models.PointStruct(
                id=2, vector={"": direction(2).tolist(), "more": chunks}, payload={"labels": [HAS_CHUNKS]}
            ),
            models.PointStruct(id=3, vector={"": direction(9).tolist(), "words": said}),
        ])  # fmt: skip
        # Who knows of no names searches by the first window.
        found = await client.query_points("c", query=direction(2).tolist(), limit=1, with_vectors=True)
        assert (found.points[0].id, found.points[0].score) == (2, pytest.approx(1, abs=1e-5))
        assert found.points[0].vector["more"] == pytest.approx(np.stack([direction(3), direction(4)]), abs=1e-6)
        kept = await client.retrieve("c", [1, 3], with_vectors=True)
        assert kept[0].vector == pytest.approx(direction(1), abs=1e-6)
        assert kept[1].vector["words"] == said
        answers = await client.query_batch_points("c", [
            models.QueryRequest(query=direction(4).tolist(), limit=5),
            models.QueryRequest(query=direction(4).tolist(), using="more", limit=5),
            models.QueryRequest(query=[direction(4).tolist()], using="more", limit=5),
            models.QueryRequest(query=asked, using="words", limit=5),
        ])  # fmt: skip
        assert [len(answer.points) for answer in answers] == [3, 1, 1, 1]
        assert [answer.points[0].score for answer in answers[1:]] == pytest.approx([1, 1, 12], abs=1e-5)
        await client.delete("c", points_selector=[2])
        answer = await client.query_points("c", query=direction(4).tolist(), using="more")
        assert answer.points == []
        await client.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("PUT", "/collections/new", {"vectors": {"": ONE, "x": {}}}, "named more"),
        ("PUT", "/collections/new", {"vectors": {"more": ONE}}, "named more"),
        ("PUT", "/collections/new", {"vectors": {"": ONE, "more": ONE}}, "max_sim"),
        ("PUT", "/collections/new", {"vectors": BOTH}, "only together"),
        ("PUT", "/collections/new", {"vectors": ONE, "sparse_vectors": WORDS}, "only together"),
        ("PUT", "/collections/new", {"vectors": BOTH, "sparse_vectors": {"words": {"modifier": "idf"}}}, "sparse"),
        ("PUT", "/collections/new", {"vectors": BOTH, "sparse_vectors": {"words": 3}}, "words"),
        ("PUT", "/collections/c/points", point({"": [1.0] * 16, "words": [1]}), "words"),
        ("PUT", "/collections/c/points", point({"": [1.0] * 16, "words": sparse([1], [])}), "as many values"),
        ("PUT", "/collections/c/points", point({"": [1.0] * 16, "words": sparse([1, 1], [2, 2])}), "each index once"),
        ("PUT", "/collections/c/points", point({"": [1.0] * 16, "words": sparse([-1], [2])}), "32 bits"),
        ("PUT", "/collections/c/points", point({"": [1.0] * 16, "words": sparse([2**32], [2])}), "32 bits"),
        ("PUT", "/collections/c/points", point({"": [1.0] * 16, "words": sparse([True], [2])}), "32 bits"),
        ("PUT", "/collections/c/points", point({"": [1.0] * 16, "words": sparse([1], [1e300])}), "finite"),
        ("PUT", "/collections/c/points", point({"": [1.0] * 16, "words": sparse([1], ["x"])}), "words"),
        ("PUT", "/collections/c/points", point({"": [1.0] * 16, "words": sparse([1], [[1.0]])}), "words"),
        ("POST", "/collections/c/points/query", {"query": [1.0] * 16, "using": "words"}, "words must be an object"),
        ("POST", "/collections/plain/points/query", {"query": sparse([1], [1]), "using": "words"}, "Not existing"),
        ("PUT", "/collections/c/points", point({"more": [[1.0] * 16]}), "without a name"),
        ("PUT", "/collections/c/points", point({"": [1.0] * 16, "x": []}), "not supported"),
        ("PUT", "/collections/c/points", point({"": [1.0] * 16, "more": []}), "more"),
        ("PUT", "/collections/c/points", point({"": [1.0] * 16, "more": [[1.0]]}), "shape"),
        ("PUT", "/collections/c/points", point({"": [1.0] * 16, "more": [[], [1]]}), "more"),
        ("POST", "/collections/c/points/query", {"query": [1.0] * 16, "using": "x"}, "Not existing vector name"),
        ("POST", "/collections/plain/points/query", {"query": [1.0] * 4, "using": "more"}, "Not existing vector name"),
        ("POST", "/collections/c/points/query", {"query": [[1.0] * 16] * 2, "using": "more"}, "expected dim"),
        ("POST", "/collections/c/points/query/batch", {"searches": 3}, "searches"),
        ("POST", "/collections/c/points/query/batch", {"searches": [{}] * 101}, "limit here is 100"),
    ],
)
async def test_the_front_refuses_what_it_does_not_understand_of_several_vectors(
    tmp_path: Path, method: str, path: str, body: dict[str, Any], words: str
) -> None:
    async with served(QdrantRestApi(tmp_path)) as url, httpx.AsyncClient(base_url=url) as front:
        assert (await front.put("/collections/c", json={"vectors": BOTH, "sparse_vectors": WORDS})).status_code == 200
        assert (await front.put("/collections/plain", json={"vectors": ONE | {"size": 4}})).status_code == 200
        answer = await front.request(method, path, json=body)
        assert answer.status_code == 400
        assert words in answer.json()["status"]["error"]
