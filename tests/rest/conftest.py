"""A client of the REST API as the product composes it, over real services."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.config import Settings
from app.main import create_app
from app.services import Services

MakeClient = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture(scope="session")
def rest_app(services: Services) -> FastAPI:
    """The application, with every door behind the guard."""
    return create_app(services)


@pytest.fixture(scope="session")
async def client(rest_app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the API with default settings."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(rest_app), base_url="http://localhost:8765") as http:
        yield http


@pytest.fixture(scope="session")
def make_client(services: Services) -> MakeClient:
    """Opens a client of the API with other settings: `make_client(access={"api_key": "k"}, host="0.0.0.0")`."""

    @asynccontextmanager
    async def make(*, base_url: str = "http://localhost:8765", **changes: Any) -> AsyncIterator[httpx.AsyncClient]:
        settings = Settings.model_validate({"data_dir": services.settings.data_dir} | changes)
        transport = httpx.ASGITransport(create_app(replace(services, settings=settings)))
        async with httpx.AsyncClient(transport=transport, base_url=base_url) as http:
            yield http

    return make


@pytest.fixture(scope="session")
def remember(client: httpx.AsyncClient) -> Callable[..., Any]:
    """Adds a memory over REST and returns its row."""

    async def add(user: str, text: str, **more: Any) -> dict[str, Any]:
        answer = await client.post("/api/v1/memories/", json={"user_id": user, "text": text, "infer": False} | more)
        assert answer.status_code == 200, answer.text
        row: dict[str, Any] = answer.json()
        return row

    return add
