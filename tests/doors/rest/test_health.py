from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from openmemory.access.directory import Directory
from openmemory.access.schemas import KeyCreate
from openmemory.config.settings import DatabaseSettings
from openmemory.database.engine import Database
from openmemory.doors.rest.api import include_rest
from openmemory.health.service import Health
from openmemory.identity.principal import LOCAL
from openmemory.identity.request import RequestContext, bind
from openmemory.index.lazy import LazyIndex
from openmemory.index.port import IndexUnavailable, VectorIndex
from openmemory.index.space import Space, Spaces
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.index.sync.reconcile import Reconciler
from openmemory.index.sync.service import IndexSync
from openmemory.services import INDEXED_TABLES, Services


@asynccontextmanager
async def client_of(services: Services, **broken: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    app.state.services = replace(services, **broken)
    include_rest(app)

    async def sent(scope, receive, send):
        bind(scope, RequestContext(LOCAL, None, "1"))
        await app(scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(sent), base_url="http://localhost") as http:
        yield http


@pytest.fixture
async def refused() -> AsyncIterator[Database]:
    """A database at an address where nobody listens."""
    database = Database("postgresql://nobody@127.0.0.1:1/none", DatabaseSettings(connect_timeout=1))
    yield database
    await database.close()


@pytest.fixture
def lost_index() -> LazyIndex:
    """An index that cannot be opened."""

    async def lost() -> VectorIndex:
        raise IndexUnavailable("nobody listens")

    return LazyIndex(lost)


@pytest.mark.parametrize("path", ["/health", "/health/", "/health/live"])
async def test_the_service_says_that_it_runs(client, path):
    answer = await client.get(path)
    assert (answer.status_code, answer.json()) == (200, {"status": "healthy", "service": "openmemory"})


async def test_it_is_ready_while_every_dependency_answers(client):
    answer = await client.get("/health/ready")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    assert set(answer.json()["checks"]) == {"postgres", "index", "embedder", "documents"}
    assert set(answer.json()["checks"]["postgres"]) == {"ok", "detail", "error", "milliseconds"}


SUMMARY = {"status": "ok", "checks": {name: {"ok": True} for name in ("postgres", "index", "embedder", "documents")}}
ALWAYS = {"access": {"require": "always"}}


async def test_whoever_sends_no_credential_learns_only_whether_it_is_ready(make_client):
    async with make_client(**ALWAYS) as client:
        answer = await client.get("/health/ready")
    assert (answer.status_code, answer.json()) == (200, SUMMARY)


async def test_what_a_proxy_passes_on_learns_only_whether_it_is_ready(client):
    answer = await client.get("/health/ready", headers={"X-Forwarded-For": "203.0.113.9"})
    assert (answer.status_code, answer.json()) == (200, SUMMARY)


async def test_only_who_may_see_the_service_as_a_whole_is_told_how_each_dependency_is(make_client, services, new_user):
    async def told(about: dict[str, Any]) -> dict[str, Any]:
        made = await services.keys.create(LOCAL, KeyCreate.model_validate({"name": "probe"} | about))
        async with make_client(**ALWAYS) as client:
            answer = await client.get("/health/ready", headers={"Authorization": f"Bearer {made.key}"})
        assert answer.status_code == 200
        return answer.json()["checks"]["postgres"]

    assert await told({"user_id": new_user}) == {"ok": True}
    assert await told({"user_id": new_user, "app": "claude"}) == {"ok": True}
    for about in ({"everyone": True, "scopes": ["admin"]}, {"everyone": True, "scopes": ["read"]}):
        assert set(await told(about)) == {"ok", "detail", "error", "milliseconds"}


async def test_a_wrong_credential_is_refused_as_everywhere(make_client):
    async with make_client(address="203.0.113.240", **ALWAYS) as client:
        answer = await client.get("/health/ready", headers={"X-API-Key": "wrong"})
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_credential")


@pytest.mark.parametrize("host", ["10.1.2.3", "10.1.2.3:8765", "[fd00::7]:8765", "192.0.2.1.", ""])
async def test_a_probe_that_calls_by_address_learns_whether_it_is_ready(client, host):
    answer = await client.get("/health/ready", headers={"Host": host})
    assert (answer.status_code, answer.json()) == (200, SUMMARY)
    assert (await client.get("/health", headers={"Host": host})).status_code == 421  # elsewhere the name counts


@pytest.mark.parametrize("host", ["rebound.example", "rebound.example:8765", "10.1.2.3.rebound.example", "1.2.3", "a"])
async def test_a_page_that_was_rebound_learns_not_even_whether_it_is_ready(client, host):
    answer = await client.get("/health/ready", headers={"Host": host})
    assert (answer.status_code, answer.json()["error"]) == (421, "host_not_allowed")


async def test_the_root_greets(client):
    answer = await client.get("/")
    assert answer.json()["service"] == "openmemory"
    assert (await client.get(answer.json()["documentation"])).status_code == 200


async def test_without_postgres_it_is_down_and_says_when_to_ask_again(services, refused):
    health = Health(refused, services.spaces, services.reconciler, "1")
    async with client_of(services, health=health) as client:
        answer = await client.get("/health/ready")
    assert (answer.status_code, answer.json()["status"], answer.headers["retry-after"]) == (503, "down", "1")
    assert answer.json()["checks"]["postgres"]["error"] == "The database does not answer."


async def test_without_postgres_a_request_says_so(services, refused):
    directory = Directory(refused, services.settings.access)
    async with client_of(services, directory=directory) as client:
        answer = await client.get("/api/v1/memories", params={"user_id": "alice"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json() == {"error": "database_unavailable", "detail": "The database does not answer.", "hint": None}


async def test_without_the_index_it_is_degraded_and_cannot_sync(services, lost_index):
    spaces = Spaces(Space(services.embedder, lost_index))
    outbox_delivery = OutboxDelivery(services.database, spaces, INDEXED_TABLES)
    reconciler = Reconciler(services.database, spaces, outbox_delivery, INDEXED_TABLES, services.monitor)
    health = Health(services.database, spaces, reconciler, "1")
    async with client_of(services, health=health, index_sync=IndexSync(services.database, reconciler)) as client:
        ready = await client.get("/health/ready")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        sync = await client.post("/sync")
    assert (sync.status_code, sync.json()["error"]) == (503, "index_unavailable")
    assert "nobody listens" in sync.json()["detail"]
