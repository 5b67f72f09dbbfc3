"""An embedder that is saved over REST, in the running service and at the next start, over the real stores."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from openmemory.config.settings import Settings
from openmemory.doors.server.application import create_app
from openmemory.memories.schemas import MemoryCreate
from openmemory.search.schemas import Method, SearchQuery
from openmemory.services import Services, open_services
from tests.clusters import furnish
from tests.faults.embedding_server import EmbeddingServer
from tests.index.models import LOCAL, ann, collections

KEY = "sk-of-one-server-0123456789"
OTHER_KEY = "sk-of-another-server-0123456789"
EMBEDDER = "/api/v1/config/mem0/embedder"

_numbers = count()


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    server = EmbeddingServer(24, "one")
    yield server
    server.close()


@pytest.fixture
def other() -> Iterator[EmbeddingServer]:
    server = EmbeddingServer(16, "other")
    yield server
    server.close()


@pytest.fixture
def folder(short_folder: Path) -> Path:
    return furnish(short_folder / f"embedders-{next(_numbers)}")


@asynccontextmanager
async def running(folder: Path, **settings: Any) -> AsyncIterator[tuple[Services, httpx.AsyncClient]]:
    """The services and a client of them; jobs run on request."""
    values = {"data_dir": str(folder), "port": 0, "egress": {"allow": ["127.0.0.1"]}} | settings
    async with open_services(Settings.model_validate(values)) as services:
        await services.outbox_delivery.stop()
        transport = httpx.ASGITransport(create_app(services))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield services, http


def asked(server: EmbeddingServer, model: str = "one", key: str = KEY) -> dict[str, Any]:
    address = f"http://127.0.0.1:{server.port}/v1"
    return {"provider": "openai", "config": {"model": model, "api_key": key, "openai_base_url": address}}


async def save(http: httpx.AsyncClient, section: dict[str, Any]) -> httpx.Response:
    answer = await http.put(EMBEDDER, json=section)
    assert answer.status_code == 200, answer.text
    return answer


async def remember(services: Services, number: int = 12) -> None:
    news = [MemoryCreate(text=f"fact number {n} about tea") for n in range(number)]
    await services.memories.add_many(await ann(services), news)
    await services.rebuild.step()
    await services.reconciler.sync(trigger="test")


async def by_meaning(services: Services, query: str = "a fact about tea") -> bool:
    answer = await services.search.search(await ann(services), SearchQuery(query))
    return answer.search_method is Method.HYBRID and all(one.parts.cosine is not None for one in answer.results)


@pytest.mark.slow
async def test_it_takes_over_without_a_restart_and_searches_go_on(folder: Path, server: EmbeddingServer) -> None:
    async with running(folder) as (services, http):
        await remember(services)
        answer = await save(http, asked(server))
        assert "x-openmemory-note" not in answer.headers
        assert services.embedder.model == "all-MiniLM-L6-v2-int8"
        assert await by_meaning(services)
        await services.rebuild.step()
        assert services.embedder.model == "openai/one"
        assert await by_meaning(services)
        assert server.keys == {KEY}
        states = await collections(services)
        assert sorted(states.values()) == ["active", "retired"]
        async with services.database.statement() as tx:
            recorded = json.dumps(
                [dict(row._mapping) for row in await tx.execute(text("SELECT embedder FROM index_generations"))]
            )
        assert KEY not in recorded
        assert KEY not in (await http.get("/api/v1/doctor")).text


@pytest.mark.slow
async def test_the_next_start_uses_it_too(folder: Path, server: EmbeddingServer) -> None:
    async with running(folder) as (services, http):
        await remember(services)
        await save(http, asked(server))
        await services.rebuild.step()
    async with running(folder) as (services, http):
        assert services.embedder.model == "openai/one"
        assert await by_meaning(services, "asked after the start")
        await http.post("/api/v1/config/reset")
        await services.rebuild.step()
        assert (await collections(services))[LOCAL] == "active"
        assert await by_meaning(services)


async def test_one_that_does_not_answer_harms_nobody_and_is_told_of(folder: Path, server: EmbeddingServer) -> None:
    server.away = True
    async with running(folder) as (services, http):
        await remember(services)
        note = (await save(http, asked(server))).headers["x-openmemory-note"]
        assert note.startswith("saved, but it cannot be used now: embedder openai: ")
        assert note.endswith("searches go on with all-MiniLM-L6-v2-int8")
        await services.rebuild.step()
        assert await collections(services) == {LOCAL: "active"}
        assert await by_meaning(services)
        told = (await http.get("/api/v1/doctor")).json()
        assert any(problem.startswith("model: openai/one is configured and cannot") for problem in told["problems"])
        assert KEY not in json.dumps(told) + note
        assert "openai/one" in (await http.get("/health/ready")).json()["checks"]["embedder"]["detail"]["obstacle"]
        server.away = False
        await services.rebuild.step()
        assert services.embedder.model == "openai/one"
        assert (await http.get("/api/v1/doctor")).json()["problems"] == []


@pytest.mark.slow
async def test_a_model_that_is_asked_in_a_wrong_way_goes_on_in_the_right_one(
    folder: Path, server: EmbeddingServer, other: EmbeddingServer
) -> None:
    """The same model at another address, where it does not answer, and then where it does, with another key."""
    other.model, other.dimension, other.away = server.model, server.dimension, True
    async with running(folder) as (services, http):
        await remember(services)
        await save(http, asked(server))
        await services.rebuild.step()
        await save(http, asked(other, key=OTHER_KEY))
        await services.rebuild.step()
        assert await by_meaning(services, "while the new address is silent")
        told = (await http.get("/api/v1/doctor")).json()["problems"]
        assert any(problem.startswith("model: openai/one is configured and cannot be used") for problem in told)
        other.away = False
        await services.rebuild.step()
        assert (await http.get("/api/v1/doctor")).json()["problems"] == []
        before = len(server.embedded)
        assert await by_meaning(services, "by way of the new address")
        assert len(server.embedded) == before
        assert (server.keys, other.keys) == ({KEY}, {OTHER_KEY})
        assert list((await collections(services)).values()).count("active") == 1


@pytest.mark.slow
async def test_another_dimension_is_another_collection(
    folder: Path, server: EmbeddingServer, other: EmbeddingServer
) -> None:
    async with running(folder) as (services, http):
        await remember(services)
        await save(http, asked(server))
        await services.rebuild.step()
        await save(http, asked(other))  # the same name of a model, whose vectors have another size
        assert await by_meaning(services)
        await services.rebuild.step()
        assert await by_meaning(services)
        states = await collections(services)
        assert {name.split("__")[2]: state for name, state in states.items()} == {
            "16": "active", "24": "retired", "384": "retired",
        }  # fmt: skip


@pytest.mark.slow
async def test_after_a_start_the_old_one_is_asked_with_its_key_until_the_new_one_is_complete(
    folder: Path, server: EmbeddingServer, other: EmbeddingServer
) -> None:
    other.away = True
    async with running(folder) as (services, http):
        await remember(services)
        await save(http, asked(server))
        await services.rebuild.step()
        await save(http, asked(other, "two", OTHER_KEY))
    server.keys.clear()
    async with running(folder, sync={"keep": 0}) as (services, http):
        assert await by_meaning(services, "asked of the old one")
        assert server.keys == {KEY}
        other.away = False
        await services.rebuild.step()
        await services.rebuild.step()
        assert await by_meaning(services, "asked of the new one")
        assert (server.keys, other.keys) == ({KEY}, {OTHER_KEY})
        await services.configuration.prune()
        async with services.database.statement() as tx:
            kept = json.dumps(await tx.scalar(text("SELECT value FROM configs")))
        assert KEY not in kept
        assert OTHER_KEY in kept


@pytest.mark.slow
async def test_while_one_is_built_another_may_be_saved(
    folder: Path, server: EmbeddingServer, other: EmbeddingServer
) -> None:
    async with running(folder) as (services, http):
        await remember(services)
        await save(http, asked(server))
        await services.rebuild._watcher.want()
        await services.rebuild._watcher.follow()
        await save(http, asked(other, "two"))
        await services.rebuild.step()
        assert services.embedder.model == "openai/two"
        assert await by_meaning(services)


@pytest.mark.slow
async def test_a_private_address_is_not_reached_even_if_it_stands_in_the_database(
    folder: Path, server: EmbeddingServer
) -> None:
    async with running(folder) as (services, http):
        await remember(services)
        await save(http, asked(server))
        server.keys.clear()
    async with running(folder, egress={}) as (services, http):
        await services.rebuild.step()
        assert await by_meaning(services)
        told = (await http.get("/api/v1/doctor")).json()["problems"]
        assert any("a loopback address" in problem for problem in told)
        assert server.keys == set()


@pytest.mark.slow
async def test_an_address_that_the_settings_name_may_be_private(
    folder: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_API_KEY", OTHER_KEY)
    address = f"http://127.0.0.1:{server.port}/v1"
    settings = {"provider": "openai", "model": "one", "base_url": address, "api_key": KEY}
    async with running(folder, egress={}, embedder=settings) as (services, http):
        await remember(services)
        shown = (await http.get(EMBEDDER)).json()
        shown["config"]["model"] = "two"
        assert "x-openmemory-note" not in (await save(http, shown)).headers
        await services.rebuild.step()
        assert services.embedder.model == "openai/two"
        assert server.keys == {KEY}
        await save(http, asked(server, "three", "env:LLM_API_KEY"))
        await services.rebuild.step()
        assert services.embedder.model == "openai/three"
        assert server.keys == {KEY, OTHER_KEY}


async def test_a_variable_that_this_process_does_not_have_is_told_of(folder: Path) -> None:
    async with running(folder) as (services, http):
        await remember(services)
        section = {"provider": "together", "config": {"model": "m", "api_key": "env:TOGETHER_API_KEY"}}
        note = (await save(http, section)).headers["x-openmemory-note"]
        assert "must name an existing variable; the service has no environment variable TOGETHER_API_KEY" in note
        await services.rebuild.step()
        assert await by_meaning(services)


@pytest.mark.slow
async def test_a_row_that_cannot_be_read_does_not_keep_the_service_from_starting(folder: Path) -> None:
    """It counts as not saved, is told, and gone with the next change."""
    async with running(folder) as (services, http):
        await remember(services)
        async with services.database.statement() as tx:
            await tx.execute(text("INSERT INTO configs (key, value) VALUES ('main', '{}')"))
            broken = '{"mem0": {"embedder": {"provider": "openai", "config": {"model": 7, "embedding_dims": "many"}}}}'
            await tx.execute(text("UPDATE configs SET value = CAST(:v AS jsonb)"), {"v": broken})
    async with running(folder) as (services, http):
        await services.rebuild.step()
        assert await by_meaning(services)
        assert any("cannot be read" in problem for problem in (await http.get("/api/v1/doctor")).json()["problems"])
        shown = (await http.get("/api/v1/config")).json()
        for value, part in (
            ('[1]', "all of it"), ('"x"', "all of it"), ('{"mem0": []}', "mem0"), ('{"openmemory": "x"}', "openmemory"),
            ('{"mem0": {"embedder": {"provider": "openai"}}}', "mem0.embedder"),
            ('{"mem0": {"llm": {"provider": "openai", "config": {"temperature": 1}}}}', "mem0.llm"),
            ('{"embedder": "x"}', "1 of its fields"), ('{"kept": [{"provider": "sk-secret"}]}', "kept[0]"),
        ):  # fmt: skip
            async with services.database.statement() as tx:
                await tx.execute(text("UPDATE configs SET value = CAST(:v AS jsonb)"), {"v": value})
            assert (await http.get("/api/v1/config")).json() == shown, value
            problems = (await http.get("/api/v1/doctor")).json()["problems"]
            [told] = [problem for problem in problems if "cannot be read" in problem]
            assert told.startswith(f"configuration: {part} "), told
        saved = await http.put("/api/v1/config/openmemory", json={"custom_instructions": "Short."})
        assert saved.status_code == 200, saved.text
        problems = (await http.get("/api/v1/doctor")).json()["problems"]
        assert not any("cannot be read" in problem for problem in problems)


@pytest.mark.slow
@pytest.mark.parametrize(
    "value", ['{"mem0": null}', "[1]", '{"mem0": {"embedder": {"provider": "openai"}}}', '{"embedder": "x"}']
)
async def test_the_service_starts_whatever_stands_in_its_row(folder: Path, value: str) -> None:
    async with running(folder) as (services, _):
        model = services.embedder.model
        async with services.database.statement() as tx:
            await tx.execute(text("INSERT INTO configs (key, value) VALUES ('main', CAST(:v AS jsonb))"), {"v": value})
    async with running(folder) as (services, http):
        assert services.embedder.model == model
        assert (await http.get("/api/v1/doctor")).status_code == 200
