"""What Prometheus reads: the format, the counts, and how many series there can be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from openmemory.config.settings import DatabaseSettings
from openmemory.database.engine import Database
from openmemory.doors.server.application import create_app
from openmemory.telemetry import stored
from tests.doors.rest.test_guard import KEY

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scraped(client: httpx.AsyncClient, **options: Any) -> Samples:
    """Every sample by name and labels."""
    answer = await client.get("/metrics", **options)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found: Samples = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.documentation, family.name
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)


async def test_a_request_counts_under_its_route_and_never_under_its_path(client, new_user, remember):
    labels = {"route": "/api/v1/memories/{memory_id}", "method": "GET"}
    row = await remember(new_user, "I keep bees.")
    before = await scraped(client)
    for path in (f"/api/v1/memories/{row['id']}", f"/api/v1/memories/{row['id']}/", f"/api/v1/memories/{uuid4()}"):
        await client.get(path, params={"user_id": new_user})
    after = await scraped(client)

    def grown(name: str, **more: str) -> float:
        return value(after, name, **labels, **more) - value(before, name, **labels, **more)

    assert grown("openmemory_http_requests_total", status="200") == 2
    assert grown("openmemory_http_requests_total", status="404") == 1
    assert grown("openmemory_http_request_duration_seconds_count") == 3
    assert 0 < grown("openmemory_http_request_duration_seconds_sum") < 10
    assert not [key for key in after if new_user in str(key) or row["id"] in str(key)]


async def test_what_no_route_is_for_counts_together_however_it_is_spelt(client):
    before = await scraped(client)
    for n in range(20):
        await client.request(f"M{n}", f"/nowhere/{uuid4()}")
    after = await scraped(client)
    labels = {"route": "unmatched", "method": "other", "status": "404"}
    assert value(after, "openmemory_http_requests_total", **labels) == 20 + value(
        before, "openmemory_http_requests_total", **labels
    )
    assert (
        len([key for key in after if "unmatched" in str(key)]) - len([key for key in before if "unmatched" in str(key)])
        <= len(("total", "created", "sum", "count", "created")) + 14
    )


async def test_searches_and_writes_are_counted_by_what_became_of_them(client, new_user, remember):
    before = await scraped(client)
    row = await remember(new_user, "I keep goats.")
    await remember(new_user, "I keep goats.")
    await client.put(f"/api/v1/memories/{row['id']}", json={"user_id": new_user, "memory_content": "I keep a goat."})
    await client.post("/api/v1/memories/search", json={"user_id": new_user, "query": "goats"})
    await client.request("DELETE", "/api/v1/memories", json={"user_id": new_user, "memory_ids": [row["id"]]})
    said = {"user_id": new_user, "messages": [{"content": "I keep goats."}, {"content": "How many?"}]}
    await client.post("/api/v1/threads/chat/messages", json=said)
    after = await scraped(client)

    def grown(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    for operation in ("add", "duplicate", "update", "deleted"):
        assert grown("openmemory_memories_written_total", operation=operation) == 1, operation
    assert grown("openmemory_messages_written_total", operation="add") == 2
    assert grown("openmemory_searches_total", search_method="hybrid", degradation="none") == 1


async def test_a_sync_shows_with_everything_that_it_found(client, new_user, remember):
    await remember(new_user, "I keep ducks.")
    done = (await client.post("/api/v1/sync")).json()["statistics"]
    after = await scraped(client)
    for name in set(done) - {"seconds"}:
        assert value(after, "openmemory_sync_last_run_items", statistic=name) == done[name]
        assert value(after, "openmemory_sync_recent_items", statistic=name) >= done[name]
    assert value(after, "openmemory_sync_last_run_success") == 1
    assert value(after, "openmemory_sync_last_run_duration_seconds") == pytest.approx(done["seconds"], abs=0.5)
    finished = value(after, "openmemory_sync_last_run_timestamp_seconds")
    assert finished == value(after, "openmemory_sync_last_success_timestamp_seconds") > 1_700_000_000
    assert value(after, "openmemory_sync_recent_runs", trigger="rest", outcome="success") >= 1


@pytest.mark.slow
async def test_marks_show_until_they_are_delivered(services, client, new_user, remember, eventually):
    async def delivered() -> bool:
        return value(await scraped(client), "openmemory_index_outbox_entries") == 0

    await eventually(delivered, within=100)  # what other tests have left to be delivered
    async with services.outbox_delivery._round:
        await remember(new_user, "I keep a donkey.")
        waiting = await scraped(client)
    assert value(waiting, "openmemory_index_outbox_entries") >= 1
    assert 0 < value(waiting, "openmemory_index_outbox_oldest_age_seconds") < 60
    await eventually(delivered)
    assert value(await scraped(client), "openmemory_index_outbox_oldest_age_seconds") == 0


async def test_the_state_of_every_breaker_is_one_of_three(client):
    after = await scraped(client)
    for breaker in ("embedder", "index"):
        states = {
            state: value(after, "openmemory_circuit_breaker_state", breaker=breaker, state=state)
            for state in ("closed", "open", "half_open")
        }
        assert states == {"closed": 1, "open": 0, "half_open": 0}


async def test_the_process_its_pools_and_its_build_are_there(client):
    after = await scraped(client)
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"):
        assert value(after, name) > 0, name
    assert [key for key in after if key[0] == "openmemory_build_info"]
    for pool in ("statements", "transactions"):
        limit = value(after, "openmemory_database_connections_limit", pool=pool)
        used = value(after, "openmemory_database_connections", pool=pool, state="used")
        idle = value(after, "openmemory_database_connections", pool=pool, state="idle")
        assert 0 <= used + idle <= limit
    assert value(after, "openmemory_event_loop_tasks") >= 1
    assert value(after, "openmemory_up", dependency="postgres") == 1


async def test_two_applications_count_apart(services):
    async def requests(client: httpx.AsyncClient) -> float:
        labels = {"route": "/health/live", "method": "GET", "status": "200"}
        return value(await scraped(client), "openmemory_http_requests_total", **labels)

    clients = [
        httpx.AsyncClient(transport=httpx.ASGITransport(create_app(services)), base_url="http://localhost:8765")
        for _ in range(2)
    ]
    async with clients[0] as one, clients[1] as other:
        await one.get("/health/live")
        assert (await requests(one), await requests(other)) == (1, 0)


async def test_without_postgres_the_rest_is_there_and_says_so(services):
    away = Database("postgresql://nobody@127.0.0.1:1/none", DatabaseSettings(connect_timeout=2))
    app = create_app(replace(services, database=away))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:8765") as client:
        after = await scraped(client)
    assert value(after, "openmemory_up", dependency="postgres") == 0
    assert value(after, "openmemory_database_failures_total") == 1
    told = {name for name, _ in after if name.startswith(("openmemory_index", "openmemory_sync"))}
    assert told == {"openmemory_index_behind", "openmemory_index_foreign"}
    assert value(after, "process_open_fds") > 0
    await away.close()


@pytest.mark.slow
async def test_a_silent_postgres_is_given_up_and_asked_by_one_scrape_at_a_time(services, client, monkeypatch):
    monkeypatch.setattr(stored, "DEADLINE", 0.2)
    monkeypatch.setattr(stored, "_ASK", stored.text("SELECT pg_sleep(1.5), 0 AS waiting"))
    app = create_app(services)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:8765") as slow:
        for _ in range(3):
            assert value(await scraped(slow), "openmemory_up", dependency="postgres") == 0
        assert value(await scraped(slow), "openmemory_database_connections", pool="statements", state="used") == 1
        await app.state.metrics._stored._asking


async def test_the_key_is_needed_if_there_is_one(make_client):
    async with make_client(access={"api_key": KEY}) as client:
        for path in ("/metrics", "/metrics/"):
            assert (await client.get(path)).status_code == 401
            assert (await client.get(path, headers={"Authorization": f"Bearer {KEY}"})).status_code == 200
        after = await scraped(client, headers={"Authorization": f"Bearer {KEY}"})
    refused = {"route": "unmatched", "method": "GET", "status": "401"}
    assert value(after, "openmemory_http_requests_total", **refused) == 2


def test_it_is_described_with_the_other_operations(rest_app):
    operation = rest_app.openapi()["paths"]["/metrics"]["get"]
    assert list(operation["responses"]["200"]["content"]) == ["text/plain; version=0.0.4; charset=utf-8"]
