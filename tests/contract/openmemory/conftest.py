"""The product behind a real socket, and a client that speaks to it as programs written for OpenMemory do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from openmemory.services import Services
from tests.doors.mcp.conftest import serving

Remember = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(scope="module")
async def address(services: Services) -> AsyncIterator[str]:
    """Where the product listens, on loopback and without keys: as OpenMemory's page and clients expect it."""
    async with serving(services) as url:
        yield url


@pytest.fixture(scope="module")
async def api(address: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client over TCP that follows no redirect: both forms of every path must answer by themselves."""
    async with httpx.AsyncClient(base_url=address, timeout=30) as client:
        yield client


@pytest.fixture
def remember(api: httpx.AsyncClient, new_user: str) -> Remember:
    """Adds a memory of the test's own user as OpenMemory's page does, and returns its row."""

    async def add(text: str, *, user: str = new_user, **more: Any) -> dict[str, Any]:
        body = {"user_id": user, "text": text, "infer": False, "app": "openmemory"} | more
        answer = await api.post("/api/v1/memories/", json=body)
        assert answer.status_code == 200, answer.text
        row: dict[str, Any] = answer.json()
        return row

    return add


@pytest.fixture
def bring(api: httpx.AsyncClient, new_user: str) -> Callable[..., Awaitable[None]]:
    """Brings memories of the test's own user into a state, as the buttons of OpenMemory's page do."""

    async def change(state: str, *rows: dict[str, Any], user: str = new_user) -> None:
        ids = [row["id"] for row in rows]
        body = {"user_id": user, "memory_ids": ids, "all_for_app": True, "state": state}
        answer = await api.post("/api/v1/memories/actions/pause", json=body)
        assert answer.status_code == 200, answer.text

    return change
