from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI, HTTPException

from openmemory.doors.rest.http.errors import add_error_handlers
from openmemory.errors import (
    ConflictError,
    Forbidden,
    Invalid,
    NotFound,
    OpenMemoryError,
    SetupError,
    TooLarge,
    TooMany,
    Unauthenticated,
    Unavailable,
)
from openmemory.identity.principal import LOCAL
from openmemory.identity.request import RequestContext, bind
from openmemory.serialization.invalid_fields import not_valid
from openmemory.services import Services


async def answer_to(services: Services, error: Exception) -> httpx.Response:
    app = FastAPI()
    app.state.services = services
    add_error_handlers(app, {})

    @app.get("/")
    async def fail() -> None:
        raise error

    async def sent(scope, receive, send):
        bind(scope, RequestContext(LOCAL, None, "1"))
        await app(scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(sent), base_url="http://localhost") as client:
        return await client.get("/")


@pytest.mark.parametrize(
    ("error", "status", "body", "headers"),
    [
        (
            NotFound("Memory not found", code="memory_not_found"),
            404,
            ("memory_not_found", "Memory not found", None),
            {},
        ),
        (
            Unauthenticated("no"),
            401,
            ("unauthenticated", "no", None),
            {"www-authenticate": "Bearer"},
        ),
        (Forbidden("no", hint="ask"), 403, ("forbidden", "no", "ask"), {}),
        (Invalid("text", "is bad"), 422, ("invalid", "text: is bad", None), {}),
        (TooLarge("text", "is long"), 413, ("too_large", "text: is long", None), {}),
        (ConflictError("no"), 409, ("conflict", "no", None), {}),
        (TooMany("often", retry_after=2.2), 429, ("too_many_requests", "often", None), {"retry-after": "3"}),
        (Unavailable("away", retry_after=0.1), 503, ("unavailable", "away", None), {"retry-after": "1"}),
        (Unavailable("away", retry_after=2.2), 503, ("unavailable", "away", None), {"retry-after": "3"}),
        (SetupError("odd"), 500, ("setup", "odd", None), {}),
        (OpenMemoryError("odd"), 500, ("error", "odd", None), {}),
        (HTTPException(400, "Invalid sort column"), 400, ("bad_request", "Invalid sort column", None), {}),
        (Invalid("x", "half \ud83d of a pair"), 422, ("invalid", "x: half \ud83d of a pair", None), {}),
    ],
)
async def test_every_expected_failure_has_one_shape(services, error, status, body, headers):
    answer = await answer_to(services, error)
    assert answer.status_code == status
    assert answer.json() == dict(zip(("error", "detail", "hint"), body, strict=True))
    assert {name: answer.headers[name] for name in headers} == headers


@pytest.mark.parametrize(
    ("location", "field"),
    [
        (("body", "text"), "text"),
        (("body", "memories", 3, "text"), "memories[3].text"),
        (("body",), "body"),
        (("body", 0), "body[0]"),
        (("query", "page"), "page"),
        (("path", "memory_id"), "memory_id"),
        (("body", "(object)", "memory_ids", 0), "memory_ids[0]"),
        (("text",), "text"),
        ((), "body"),
    ],
)
def test_the_field_is_named_as_the_client_wrote_it(location, field):
    assert not_valid([{"type": "missing", "loc": location, "msg": "Field required"}]) == f"{field}: is required"


async def test_no_field_is_named_twice(client):
    unknown = await client.get("/api/v1/memories/not-an-id")
    assert unknown.json()["detail"].count("memory_id: ") == 1
    policy = await client.post("/api/v1/archive-policies", json={"criteria_type": "user"})
    assert policy.json()["detail"] == "days_to_archive: must be given, or days_to_expire"


def test_only_the_first_problems_are_told():
    errors = [{"type": "missing", "loc": ("body", f"f{n}"), "msg": "Field required"} for n in range(7)]
    told = not_valid(errors)
    assert told.count("is required") == 5
    assert told.endswith("; and 2 more")
