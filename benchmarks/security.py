"""What authentication, access rules, the audit log and limits cost a search and a write.

    python -m benchmarks.security [--size 10000] [--rounds 300] [--data FOLDER]

The same search over the same application, in turn with more and more of what protects it, so that each meets the
machine as the others left it; `bare` has no guard, asks of a memory only whose it is, and writes no audit event. Then
the time in which an id of somebody else is refused, beside one that never was.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import httpx
from sqlalchemy import and_, bindparam, literal_column, select

from benchmarks.seed import USER, questions, seed
from benchmarks.service import temporary_folder
from openmemory.access.schemas import KeyCreate
from openmemory.config.settings import Settings
from openmemory.doors.rest.api import include_rest
from openmemory.doors.server.application import create_app
from openmemory.identity.principal import LOCAL
from openmemory.identity.request import RequestContext, bind
from openmemory.memories.schemas import MemoryCreate
from openmemory.search.answers import readback
from openmemory.search.sql import as_of
from openmemory.search.sql.filter import by_shape
from openmemory.services import Services, open_services

SEARCH, MEMORIES = "/api/v1/memories/search", "/api/v1/memories"


def _mine(_: Any, rows: Any, **__: Any) -> Any:
    return and_(rows.user_id == bindparam("caller_user_id"), rows.state == literal_column("'active'::memory_state"))


def _silent(_: Any) -> Any:
    return select(literal_column("1").label("nothing")).cte("audited")


@contextmanager
def without(*, rules: bool = False, audit: bool = False) -> Any:
    """Compiles the statement of a search without these parts while the block runs."""
    with (
        patch.object(as_of, "readable_by", _mine if rules else as_of.readable_by),
        patch.object(readback.audit_log, "inserted", _silent if audit else readback.audit_log.inserted),
        patch.object(readback, "_statement", by_shape(readback._statement.__wrapped__)),  # type: ignore[attr-defined]
    ):
        yield


def unguarded(services: Services) -> Any:
    """The application without anything before its routes."""
    from fastapi import FastAPI

    app = FastAPI()
    app.state.services = services
    include_rest(app)

    async def sent(scope: Any, receive: Any, send: Any) -> None:
        bind(scope, RequestContext(LOCAL, None, "1"))
        await app(scope, receive, send)

    return sent


async def measure(folder: Path, rounds: int) -> None:
    """Print p50 of every variant and what it adds."""
    settings = Settings.model_validate(
        {"data_dir": str(folder), "port": 0, "access": {"require": "always"}, "rates": {"saves": 0, "searches": 10**6}}
    )
    async with open_services(settings) as services:
        whole, bare = create_app(services), unguarded(services)
        owner = await services.keys.create(LOCAL, KeyCreate(name="owner", user_id=USER))
        app = await services.keys.create(LOCAL, KeyCreate(name="app", user_id=USER, app="claude"))
        asking, chance = questions(13), random.Random(13)

        async def ask(application: Any, key: str | None, query: str) -> float:
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(application), base_url="http://localhost", headers=headers
            ) as http:
                started = time.perf_counter()
                answer = await http.post(SEARCH, json={"user_id": USER, "query": query})
                took = (time.perf_counter() - started) * 1e3
            assert len(answer.json()["results"]) == 10, answer.text
            return took

        def variant(application: Any, key: str | None, **left_out: bool) -> Callable[[str], Awaitable[float]]:
            async def run(query: str) -> float:
                with without(**left_out):
                    readback._statement(key is not app.key, "user", False, ())  # compiled beforehand, not in the time
                    return await ask(application, key, query)

            return run

        variants = {
            "bare": variant(bare, None, rules=True, audit=True),
            "+ guard and key": variant(whole, owner.key, rules=True, audit=True),
            "+ readable_by": variant(whole, owner.key, audit=True),
            "+ audit (a user's search)": variant(whole, owner.key),
            "+ rules, pace (an app's)": variant(whole, app.key),
        }
        took: dict[str, list[float]] = {name: [] for name in variants}
        for turn in range(-20, rounds):
            query = next(asking)
            await services.embedder.query(query)  # remembered: what is measured is not the model
            # In another order each time: the first one meets a query that PostgreSQL has not seen yet.
            for name, run in chance.sample(list(variants.items()), len(variants)):
                milliseconds = await run(query)
                if turn >= 0:
                    took[name].append(milliseconds)
        least = statistics.median(took["bare"])
        for name, found in took.items():
            p50, p95 = statistics.median(found), statistics.quantiles(found, n=20)[18]
            print(f"  {name:28} p50 {p50:6.2f} ms  +{p50 - least:5.2f} ms ({p50 / least:.2f})  p95 {p95:6.2f}")
        await refusals(services, whole, rounds)


async def refusals(services: Services, application: Any, rounds: int) -> None:
    """Print how long a memory of somebody else takes to be refused, and one that never was."""
    stranger = await services.directory.caller("stranger", "claude")
    theirs = (await services.memories.add(stranger, MemoryCreate(text=f"A secret {uuid4()}"))).id
    key = (await services.keys.create(LOCAL, KeyCreate(name="curious", user_id=USER))).key
    took: dict[str, list[float]] = {"somebody else's": [], "never was": []}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(application), base_url="http://localhost", headers={"X-API-Key": key}
    ) as http:
        for turn in range(2 * rounds):
            asked: list[tuple[str, UUID]] = [("somebody else's", theirs), ("never was", uuid4())]
            for name, id_ in asked if turn % 2 else reversed(asked):
                started = time.perf_counter()
                answer = await http.get(f"{MEMORIES}/{id_}")
                took[name].append((time.perf_counter() - started) * 1e3)
                assert answer.status_code == 404
    for name, found in took.items():
        quartiles = statistics.quantiles(found, n=4)
        print(f"  refused, {name:18} p50 {quartiles[1]:.3f} ms  quartiles {quartiles[0]:.3f} to {quartiles[2]:.3f}")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--data", type=Path, help="a folder that this benchmark filled before, or is to fill and keep")
    arguments = parser.parse_args()
    with temporary_folder("security") as temporary:
        folder = arguments.data or temporary / "data"
        if not folder.exists():
            seed(folder, arguments.size)
        asyncio.run(measure(folder, arguments.rounds))


if __name__ == "__main__":
    main()
