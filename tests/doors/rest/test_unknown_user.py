"""A user who does not exist yet has nothing: lists and searches are empty, and make nobody."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from sqlalchemy import select

from openmemory.access.models import User
from openmemory.services import Services
from tests.doors.rest.test_default_user import REQUESTS, UNTRIED, M

EXPORTS = {"GET /api/v1/bundles"}
"""An export of nobody is a mistake."""

READING = [
    one for one in (*REQUESTS, f"POST {M}/search", f"POST {M}/filter")
    if (one.startswith("GET ") or one in (f"POST {M}/search", f"POST {M}/filter")) and one not in UNTRIED | EXPORTS
]  # fmt: skip
LISTS = [
    f"GET {M}", f"POST {M}/filter", f"GET {M}/search", f"POST {M}/search", f"GET {M}/categories", "GET /api/v1/stats",
    "GET /api/v1/apps", "GET /api/v1/threads", "GET /api/v1/sources", "GET /api/v1/projects", "GET /api/v1/grants",
]  # fmt: skip
ROWS = ("items", "results", "apps", "categories", "grants", "projects")


@pytest.mark.slow
@pytest.mark.parametrize("operation", sorted(set(READING)))
async def test_who_does_not_exist_has_nothing(client, services: Services, new_user: str, operation: str):
    path, body = REQUESTS[operation]
    path = re.sub(r"\{(\w+)\}", lambda part: "1" if part[1] == "session" else str(uuid4()), path)
    who = {"user_id": new_user}
    sent = {"params": who} if body is None else {"json": body | who}
    if "?" in path:
        path, _, query = path.partition("?")
        sent = {"params": dict(each.split("=") for each in query.split("&")) | who}
    answer = await client.request(operation.partition(" ")[0], path, **sent)
    assert answer.status_code == 200 or (answer.status_code, operation in LISTS) == (404, False), answer.text
    if answer.status_code == 200 and operation in LISTS:
        found = answer.json()
        assert [found[name] for name in ROWS if name in found] == [[]]
    async with services.database.statement() as tx:
        assert await tx.scalar(select(User.id).where(User.user_id == new_user)) is None


async def test_a_search_says_why_it_is_empty(client, new_user: str):
    found = (await client.get(f"{M}/search", params={"query": "tea", "user_id": new_user})).json()
    assert found["results"] == []
    assert found["note"] == "There is no memory that you may read"
