"""The state of the service at the page."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import func, select

from openmemory.access.directory import Directory
from openmemory.access.schemas import KeyCreate
from openmemory.database.engine import Database
from openmemory.doors.server.application import create_app
from openmemory.doors.web import system
from openmemory.identity.principal import LOCAL
from openmemory.index.sync.reconcile import LOCK
from openmemory.services import Services
from tests.doors.rest.conftest import MakeClient
from tests.doors.web.conftest import Visitor

OUTSIDE = "http://memory.example:8765"


async def test_the_state_of_each_part_is_shown(visitor: Visitor) -> None:
    await visitor.get("system")
    for words in ("PostgreSQL answers", "Vector index answers", "Embedder answers", "circuit breaker closed"):
        assert words in visitor.words
    assert "vectors waiting" in visitor.words
    assert re.search(r"database on disk \d+\.\d MB index on disk \d+(\.\d)? [kMB]", visitor.words)


@pytest.mark.slow
async def test_a_sync_runs_on_request_and_is_listed(
    visitor: Visitor, remember: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "PATIENCE", 100)
    await remember(visitor.user, "I keep two hives of bees.")
    # An application that another test started on the same stores may run a sync of its own.
    refused = "Another synchronisation is running."
    async with asyncio.timeout(100):
        while refused in visitor.words or not visitor.words:
            await visitor.get("system")
            await visitor.submit("system/sync", status=None, full="1")
    assert re.search(r"Compared [\d,]+ memories in \d+\.\d s: [\d,]+ written, \d+ removed", visitor.words)
    assert re.search(r"just now rest success", visitor.words)


async def test_a_long_sync_goes_on_after_its_page(
    visitor: Visitor, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def finished() -> list[UUID]:
        async with services.database.statement() as tx:
            # A sync that holds the lock comes to its end.
            await tx.execute(select(func.pg_advisory_lock(LOCK)))
            await tx.execute(select(func.pg_advisory_unlock(LOCK)))
        runs = (await services.index_sync.runs(LOCAL, 20)).runs
        return [run.id for run in runs if run.trigger == "rest" and run.finished_at]

    monkeypatch.setattr(system, "PATIENCE", 0)
    known = await finished()
    async with asyncio.timeout(100):
        while await finished() == known:
            await visitor.get("system")
            await visitor.submit("system/sync")
            assert "The sync goes on." in visitor.words
    await visitor.get("system")
    assert re.search(r"just now rest success", visitor.words)


async def test_a_key_of_one_user_sees_nothing_of_it(make_client: MakeClient, services: Services, new_user: str) -> None:
    key = await services.keys.create(LOCAL, KeyCreate(name="test", user_id=new_user))
    async with make_client(base_url=OUTSIDE, access={"require": "always"}, host="0.0.0.0") as http:
        http.headers["Origin"] = OUTSIDE
        await http.post("/ui/sign-in", data={"key": key.key})
        shown = (await http.get("/ui/system")).text
        assert "It needs a key with the scope" in shown
        assert "vectors waiting" not in shown
        token = re.search(r'name="token" value="(\w+)"', (await http.get("/ui/memories")).text)
        assert token
        assert (await http.post("/ui/system/sync", data={"token": token[1]})).status_code == 403


async def test_without_postgresql_the_page_says_so(services: Services) -> None:
    settings = services.settings.database
    away = Database("postgresql://nobody@127.0.0.1:1/nothing", settings)
    changed = replace(services, database=away, directory=Directory(away, services.settings.access))
    transport = httpx.ASGITransport(create_app(changed))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8765") as http:
        answer = await http.get("/ui/system")
    await away.close()
    assert answer.status_code == 503
    assert answer.headers["content-type"].startswith("text/html")
    assert "Something that this page needs does not answer" in answer.text
    assert "does not answer." in answer.text
