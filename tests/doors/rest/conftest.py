"""A client of the REST API as the product composes it, over real services."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp

from openmemory.access.authentication import Authenticator
from openmemory.config.settings import Settings
from openmemory.doors.rest.http.guard import Guard
from openmemory.doors.server.application import create_app
from openmemory.services import Services
from tests.addresses import unused_address

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
    """Opens a client of the API with other settings: `make_client(access={"require": "always"}, host="0.0.0.0")`.

    `address`: where it calls from; wrong keys from one address are counted.
    """

    @asynccontextmanager
    async def make(
        *, base_url: str = "http://localhost:8765", address: str = "127.0.0.1", **changes: Any
    ) -> AsyncIterator[httpx.AsyncClient]:
        settings = Settings.model_validate({"data_dir": services.settings.data_dir} | changes)
        transport = httpx.ASGITransport(create_app(replace(services, settings=settings)), client=(address, 1))
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


async def answers(scope: Any, receive: Any, send: Any) -> None:
    """An application that reads the body and tells what it was asked."""
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    body = json.dumps({"length": length, "query": scope["query_string"].decode()}).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="session")
def guard(services: Services) -> Callable[..., Guard]:
    """Makes a guard over an application, with other settings."""

    def make(app: ASGIApp = answers, **settings: Any) -> Guard:
        changed = Settings.model_validate(settings)
        authenticator = Authenticator(
            changed, services.database, services.keys, services.browser_sessions, services.rates
        )
        return Guard(app, changed, authenticator, services.rates)

    return make


@pytest.fixture(scope="session")
def guarded(guard: Callable[..., Guard]) -> Callable[..., httpx.AsyncClient]:
    """Makes a client of a guarded application."""

    def make(app: ASGIApp = answers, base_url: str = "http://localhost:8765", **settings: Any) -> httpx.AsyncClient:
        client = (unused_address(), 1)
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(guard(app, **settings), client=client), base_url=base_url
        )

    return make
