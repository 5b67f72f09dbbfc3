"""The time zone of a request: of the request itself, of its user, or of the settings."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from openmemory.access.schemas import KeyCreate
from openmemory.identity.principal import LOCAL
from openmemory.services import Services

Remember = Callable[..., Awaitable[dict[str, Any]]]
SEARCH, ZONE = "/api/v1/memories/search", "/api/v1/me/timezone"
NOW = "2026-05-03T01:00:00Z"
"""A clock that stands still: everything is asked as of then."""
EVENING, NIGHT = "the evening", "the night"


@pytest.fixture
async def user(new_user: str, remember: Remember) -> str:
    """A user with two memories, of which UTC has both on the 2nd of May, Berlin one on the 2nd and one on the 3rd."""
    await remember(new_user, EVENING, created_at="2026-05-02T21:30:00Z")
    await remember(new_user, NIGHT, created_at="2026-05-02T23:30:00Z")
    return new_user


async def asked(
    client: httpx.AsyncClient, user: str, query: str, *, headers: Any = None, params: Any = None, **body: Any
) -> list[str]:
    answer = await client.post(
        SEARCH, json={"user_id": user, "query": query, "as_of": NOW} | body, headers=headers, params=params
    )
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return [one["memory"] for one in found["results"]] if found["search_method"] == "time" else []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("zone", "today", "yesterday", "last_night"),
    [
        ("UTC", [], [NIGHT, EVENING], [NIGHT, EVENING]),
        ("Europe/Berlin", [NIGHT], [EVENING], [NIGHT, EVENING]),
        ("America/Los_Angeles", [NIGHT, EVENING], [], []),
        ("Pacific/Kiritimati", [NIGHT, EVENING], [], []),
        ("Asia/Kolkata", [NIGHT, EVENING], [], [NIGHT, EVENING]),
    ],
)
async def test_today_is_the_day_of_the_user(
    client: httpx.AsyncClient, user: str, zone: str, today: list[str], yesterday: list[str], last_night: list[str]
) -> None:
    for question, found in (
        ("what happened today?", today), ("what happened yesterday?", yesterday),
        ("what happened last night?", last_night),
        ("what happened in the last 24 hours?", [NIGHT, EVENING]), ("what happened in the last 2 hours", [NIGHT]),
    ):  # fmt: skip
        assert await asked(client, user, question, headers={"X-Timezone": zone}) == found, question
        assert await asked(client, user, question, params={"timezone": zone}) == found, question
        assert await asked(client, user, question, timezone=zone) == found, question


async def test_a_request_comes_before_the_user_and_the_user_before_the_setting(
    client: httpx.AsyncClient, user: str
) -> None:
    async def source(**sent: Any) -> tuple[str, str, str | None]:
        found = (await client.get(ZONE, **({"params": {"user_id": user}} | sent))).json()
        return found["timezone"], found["source"], found["saved"]

    assert (await source())[1:] == ("setting", None)
    saved = await client.put(ZONE, json={"user_id": user, "timezone": "Europe/Berlin"})
    assert saved.json() == {"timezone": "Europe/Berlin", "source": "user", "saved": "Europe/Berlin"}
    assert await source() == ("Europe/Berlin", "user", "Europe/Berlin")
    header = {"X-Timezone": "UTC"}
    assert await source(headers=header) == ("UTC", "request", "Europe/Berlin")
    assert (await source(headers=header, params={"user_id": user, "timezone": "Asia/Tokyo"}))[0] == "Asia/Tokyo"
    assert await asked(client, user, "today") == [NIGHT]
    assert await asked(client, user, "today", app="claude") == [NIGHT]
    assert await asked(client, user, "today", headers=header) == []
    assert await asked(client, user, "today", headers=header, timezone="America/Los_Angeles") == [NIGHT, EVENING]
    forgotten = await client.put(ZONE, json={"user_id": user, "timezone": None})
    assert forgotten.json()["saved"] is None
    assert await asked(client, user, "today", headers={"X-Timezone": "Asia/Kolkata"}) == [NIGHT, EVENING]


async def test_what_is_no_time_zone_is_refused_by_the_name_of_its_field(client: httpx.AsyncClient, user: str) -> None:
    body = {"user_id": user, "query": "today"}
    for field, sent in (
        ("X-Timezone", {"json": body, "headers": {"X-Timezone": "Mars/Phobos"}}),
        ("timezone", {"json": body, "params": {"timezone": "../../etc/passwd"}}),
        ("timezone", {"json": body | {"timezone": "CEST+2"}}),
    ):
        answer = await client.post(SEARCH, **sent)  # type: ignore[arg-type]
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith(f"{field}: must be the IANA name of a time zone")
    answer = await client.put(ZONE, json={"user_id": user, "timezone": "Mars/Phobos"})
    assert answer.json()["detail"].startswith("timezone: must be the IANA name")
    for nothing in ({"headers": {"X-Timezone": ""}}, {"params": {"timezone": ""}}):
        assert (await client.post(SEARCH, json=body, **nothing)).status_code == 200  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bounds", "found"),
    [
        ({"from_date": "2026-05-03"}, {NIGHT}),
        ({"to_date": "2026-05-02"}, {EVENING}),
        ({"from_date": "2026-05-02", "to_date": "2026-05-03"}, {EVENING, NIGHT}),
        ({"from_date": "2026-05-02T23:45"}, {NIGHT}),
        ({"to_date": "2026-05-02T23:15Z"}, {EVENING}),
        ({"filter": {"created_at": "2026-05-03"}}, {NIGHT}),
        ({"filter": {"created_at": {"ne": "2026-05-03"}}}, {EVENING}),
        ({"filter": {"created_at": {"lte": "2026-05-02"}}}, {EVENING}),
        ({"filter": {"created_at": {"lt": "2026-05-03"}}}, {EVENING}),
        ({"filter": {"created_at": {"gt": "2026-05-02"}}}, {NIGHT}),
        ({"filter": {"created_at": {"gte": "2026-05-03"}}}, {NIGHT}),
        ({"filter": {"created_at": {"in": ["2026-05-03", "2020-01-01"]}}}, {NIGHT}),
        ({"filter": {"created_at": {"gte": "2026-05-03T01:00"}}}, {NIGHT}),
        ({"filter": {"created_at": {"gte": "2026-05-02T23:00Z"}}}, {NIGHT}),
    ],
)
async def test_dates_in_filters_are_whole_days_of_the_user(
    client: httpx.AsyncClient, user: str, bounds: dict[str, Any], found: set[str]
) -> None:
    berlin = {"X-Timezone": "Europe/Berlin"}
    answer = await client.post(SEARCH, json={"user_id": user, "query": "the evening night"} | bounds, headers=berlin)
    assert {one["memory"] for one in answer.json()["results"]} == found, answer.text
    if "filter" not in bounds:
        listed = await client.get("/api/v1/memories", params={"user_id": user} | bounds, headers=berlin)
        assert {one["content"] for one in listed.json()["items"]} == found
        filtered = await client.post("/api/v1/memories/filter", json={"user_id": user} | bounds, headers=berlin)
        assert {one["content"] for one in filtered.json()["items"]} == found


async def test_dates_in_the_metadata_are_of_no_time_zone(
    client: httpx.AsyncClient, new_user: str, remember: Remember
) -> None:
    await remember(new_user, "the bill", metadata={"due": "2026-05-03"})
    for zone in ("UTC", "America/Los_Angeles", "Pacific/Kiritimati"):
        for operator in ("gte", "lte"):
            body = {"user_id": new_user, "query": "bill", "filter": {"metadata.due": {operator: "2026-05-03"}}}
            found = (await client.post(SEARCH, json=body, headers={"X-Timezone": zone})).json()["results"]
            assert [one["memory"] for one in found] == ["the bill"], (zone, operator)


async def test_as_of_is_of_the_time_zone_too(client: httpx.AsyncClient, user: str) -> None:
    berlin = {"X-Timezone": "Europe/Berlin"}
    assert await asked(client, user, "what happened yesterday", headers=berlin, as_of="2026-05-03") == [EVENING]
    assert await asked(client, user, "what happened today", headers=berlin, as_of="2026-05-03T01:15") == []
    assert await asked(client, user, "what happened today", headers=berlin, as_of="2026-05-03T01:35") == [NIGHT]


async def test_briefs_and_packs_tell_the_day_of_the_user_in_the_same_bytes(
    client: httpx.AsyncClient, user: str
) -> None:
    body = {"user_id": user, "app": "claude", "query": "the night", "namespace": "default"}
    for path in ("/api/v1/brief", "/api/v1/context"):
        sent = body | ({"min_score": 0} if path == "/api/v1/brief" else {})
        texts = {
            zone: [(await client.post(path, json=sent | {"timezone": zone})).json()["text"] for _ in range(2)]
            for zone in ("UTC", "Europe/Berlin", "Pacific/Kiritimati")
        }
        assert all(first == second for first, second in texts.values())
        for zone, days in (
            ("UTC", {"2026-05-02"}),
            ("Europe/Berlin", {"2026-05-02", "2026-05-03"}),
            ("Pacific/Kiritimati", {"2026-05-03"}),
        ):
            assert {day for day in ("2026-05-02", "2026-05-03") if day in texts[zone][0]} == days, texts[zone][0]


async def test_only_users_themselves_save_their_time_zone(
    services: Services, client: httpx.AsyncClient, user: str
) -> None:
    app = await services.keys.create(LOCAL, KeyCreate(name="app", user_id=user, app="claude"))
    other = await services.keys.create(LOCAL, KeyCreate(name="other", user_id=f"{user}-other"))
    for key, status in ((app, 403), (other, 403)):
        headers = {"Authorization": f"Bearer {key.key}"}
        answer = await client.put(ZONE, json={"user_id": user, "timezone": "Asia/Tokyo"}, headers=headers)
        assert answer.status_code == status, answer.text
    seen = await client.get(ZONE, params={"user_id": user}, headers={"Authorization": f"Bearer {other.key}"})
    assert seen.status_code == 403
    assert (await client.get(ZONE, params={"user_id": user})).json()["saved"] is None


async def test_the_days_of_statistics_are_those_of_the_user(services: Services, user: str, remember: Remember) -> None:
    now = datetime.now(UTC)
    await remember(user, "now")
    for zone in ("UTC", "Pacific/Kiritimati", "Pacific/Midway", "Asia/Kathmandu"):
        owner = (await services.directory.existing(user)).in_timezone(zone)
        days = await services.stats.daily(owner, days=2)
        today = max(one.day for one in days if one.written)
        assert today in (now.astimezone(owner.timezone).date(), datetime.now(owner.timezone).date())
        assert sum(one.written for one in days) == 1


def test_the_description_shows_the_time_zone_wherever_it_makes_a_difference(rest_app: FastAPI) -> None:
    shown, bounded = set(), set()
    described = rest_app.openapi()
    for path, item in described["paths"].items():
        for method, one in item.items():
            parameters = one.get("parameters", [])
            if {"timezone", "x-timezone"} <= {each["name"].lower() for each in parameters}:
                shown.add(f"{method.upper()} {path}")
            body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            fields = described["components"]["schemas"].get(body.get("$ref", "").rpartition("/")[2], {})
            said = [*parameters, *fields.get("properties", {}).values()]
            if "is of the time zone of the request" in json.dumps(said):
                bounded.add(f"{method.upper()} {path}")
    assert len(bounded) > 8
    assert shown >= bounded
    memories, timeline = "/api/v1/memories", "/api/v1/timeline"
    assert shown >= {
        f"GET {memories}", f"POST {memories}/search", f"POST {memories}/actions/change", f"GET {timeline}/memories",
        f"GET {timeline}/changes", "GET /api/v1/audit", "GET /api/v1/slack/search", "GET /api/v1/stats/daily",
        "POST /api/v1/context",
    }  # fmt: skip
