"""Categories that the service assigns, over REST."""

from __future__ import annotations

import httpx

from app.services import Services

ASSIGN = "/api/v1/categories/assign"


async def test_what_waits_is_told(client: httpx.AsyncClient, services: Services, new_user: str) -> None:
    await client.post("/api/v1/memories/", json={"user_id": new_user, "text": "I am allergic to nuts", "infer": False})
    await services.deliverer.drain()
    told = await client.get(ASSIGN, params={"user_id": new_user})
    assert (told.status_code, told.json()) == (200, {"waiting": 1, "failed": 0})


async def test_where_the_service_assigns_none_that_is_said(client: httpx.AsyncClient, new_user: str) -> None:
    await client.post("/api/v1/memories/", json={"user_id": new_user, "text": "I am allergic to nuts", "infer": False})
    refused = await client.post(ASSIGN, json={"user_id": new_user, "again": True})
    assert refused.status_code == 409
    assert "assigns no categories" in refused.text


async def test_nobody_is_made_by_asking(client: httpx.AsyncClient, new_user: str) -> None:
    for answer in (
        await client.get(ASSIGN, params={"user_id": new_user}),
        await client.post(ASSIGN, json={"user_id": new_user}),
    ):
        assert answer.status_code == 404
