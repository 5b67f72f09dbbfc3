"""Each dependency that fails is named by readiness and by the doctor, in bounded time and without many calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmemory.config.settings import DatabaseSettings
from openmemory.database.engine import Database
from openmemory.embeddings.cache import CachedEmbedder
from openmemory.embeddings.port import EmbedderUnavailable, QueryEmbedding, TextEmbedding
from openmemory.errors import Unavailable
from openmemory.health.probes import Probe
from openmemory.health.service import Health
from openmemory.index.space import Space, Spaces
from openmemory.objects.service import Objects
from openmemory.objects.stores import FolderObjects
from openmemory.services import Services
from openmemory.uploads import admission
from tests.capture.conftest import inferring, llm_server, model
from tests.llm.server import Answer, LlmServer

__all__ = ["inferring", "llm_server", "model"]


class Calls:
    """A dependency that counts its calls, and fails or hangs when told to."""

    def __init__(self) -> None:
        self.count = 0
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self) -> dict[str, Any]:
        self.count += 1
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return {"calls": self.count}


async def test_a_result_is_kept_for_a_while_and_shared_by_all_who_ask_at_once() -> None:
    calls = Calls()
    probe = Probe(calls.ask, within=30, keep=300)
    calls.gate.clear()
    asking = [asyncio.create_task(probe.check()) for _ in range(20)]
    await asyncio.sleep(0)
    calls.gate.set()
    assert {check.detail["calls"] for check in await asyncio.gather(*asking)} == {1}
    assert (await probe.check()).detail == {"calls": 1}
    assert (await probe.check(anew=True)).detail == {"calls": 2}


async def test_a_result_of_something_else_is_not_kept() -> None:
    calls, of = Calls(), [object()]
    probe = Probe(calls.ask, within=30, keep=300, of=lambda: of[0])
    await probe.check()
    of[0] = object()
    assert (await probe.check()).detail == {"calls": 2}


async def test_a_dependency_that_hangs_is_reported_in_time() -> None:
    calls = Calls()
    calls.gate.clear()
    check = await Probe(calls.ask, within=0.05).check()
    assert (check.ok, check.error) == (False, "no answer within 0.05 s")


async def test_a_failure_is_told_in_words_and_asked_again() -> None:
    calls = Calls()
    calls.failure = Unavailable("It is away.")
    probe = Probe(calls.ask, within=30)
    assert (await probe.check()).error == "It is away."
    calls.failure = None
    assert (await probe.check()).ok


async def test_who_gives_up_asking_ends_nobody_elses_check() -> None:
    calls = Calls()
    probe = Probe(calls.ask, within=30)
    calls.gate.clear()
    one, other = asyncio.create_task(probe.check()), asyncio.create_task(probe.check())
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.sleep(0)
    calls.gate.set()
    assert (await other).ok


class Embedder:
    """A provider's model that answers with as many numbers as it likes, or not at all."""

    model, chunking, tokenwise = "odd", "whole", False

    def __init__(self, length: int, failure: str = "") -> None:
        self.length = length
        self.failure = failure

    async def dimension(self) -> int:
        return self.length

    async def query(self, text: str) -> QueryEmbedding:  # noqa: ARG002
        if self.failure:
            raise EmbedderUnavailable(self.failure)
        return QueryEmbedding(np.ones(self.length, dtype=np.float32), None)

    async def documents(self, texts: Sequence[str]) -> list[TextEmbedding]:
        return [TextEmbedding(np.ones((1, self.length), dtype=np.float32), None) for _ in texts]

    async def chunks(self, texts: Sequence[str]) -> list[int]:
        return [1 for _ in texts]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("embedder", "error"),
    [
        (Embedder(384), None),
        (Embedder(3), "it answers with 3 numbers, and the index has 384"),
        (Embedder(384, "connection refused"), "connection refused"),
    ],
)
async def test_an_embedder_that_is_down_or_another_one_is_noticed(
    services: Services, embedder: Embedder, error: str | None
) -> None:
    space = Space(CachedEmbedder(embedder), services.index, dimension=384)
    health = Health(services.database, Spaces(space), services.reconciler, "1")
    ready = await health.ready()
    assert (ready.status, ready.checks["embedder"].error) == ("degraded" if error else "ok", error)


async def test_a_store_of_documents_that_cannot_be_written_is_noticed(services: Services, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder, works in ((tmp_path / "objects", True), (tmp_path / "file" / "objects", False)):
        objects = Objects(services.database, FolderObjects(folder), bytes)
        health = Health(services.database, services.spaces, services.reconciler, "1", objects=objects)
        check = (await health.ready()).checks["documents"]
        assert check.ok == works
        assert works or "The store of documents cannot be used" in str(check.error)
    assert list((tmp_path / "objects").iterdir()) == []


@pytest.mark.slow
async def test_pools_that_refuse_are_noticed(services: Services) -> None:
    database = Database(services.database.url, DatabaseSettings(pool_size=1, pool_timeout=1))
    try:
        for opening in (database.transaction, database.statement, database.planned):
            health = Health(database, services.spaces, services.reconciler, "1")
            async with opening():
                ready = await health.ready()
            assert (ready.status, ready.checks["postgres"].error) == ("down", "The database has no free connection.")
            assert (await health.ready(anew=True)).status == "ok"
    finally:
        await database.close()


async def test_a_language_model_that_is_down_is_noticed(inferring: Services, model: LlmServer) -> None:
    def health() -> Health:
        return Health(inferring.database, inferring.spaces, inferring.reconciler, "1", models=inferring.trials)

    assert (await health().diagnose()).checks["language_model"].detail == {"model": "openai/m"}
    model.script = lambda _: Answer("no such key", status=401)
    found = await health().diagnose()
    assert [problem for problem in found.problems if problem.startswith("language_model: ")]
    assert "test-key-0123456789" not in found.model_dump_json()


async def test_without_a_language_model_there_is_nothing_to_check(services: Services) -> None:
    assert "language_model" not in (await services.health.diagnose()).checks


class Slow(FolderObjects):
    """A bucket that takes longer than an upload may."""

    async def put(self, key: str, data: Iterator[bytes]) -> None:
        await asyncio.sleep(3 * admission.GRACE)
        await super().put(key, data)


async def test_a_slow_store_of_documents_is_not_the_clients_fault(
    client, services: Services, new_user: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(admission, "GRACE", 0.2)
    monkeypatch.setattr(services.objects, "_store", Slow(tmp_path))
    answer = await client.post(
        "/api/v1/documents", data={"user_id": new_user}, files={"file": ("lease.md", b"Pets are allowed.")}
    )
    assert answer.status_code == 200, answer.text
