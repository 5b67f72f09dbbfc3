"""What lists and counts cost one user with 100,000 memories, filter by filter and sort by sort.

    python -m benchmarks.listing [--size 100000] [--rounds 20] [--data FOLDER] [--plans] [--only PART]

That many memories of one user, of 11 apps, in four states and 20 categories, over two years, which apps have accessed
three times each; nineteen other users hold as many together, under the same categories. A real service process answers
over HTTP. Times are given as they are, and as they would be on a machine of the speed of `benchmarks.yardstick`, which
is measured before every round. `--plans` prints, instead, how PostgreSQL answers: each statement of a request with the
indexes it used.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from sqlalchemy import text

from benchmarks.seed import USER, questions, seed
from benchmarks.service import running_service, temporary_folder
from benchmarks.yardstick import REFERENCE, Yardstick
from openmemory.config.settings import Settings
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.doors.server.application import create_app
from openmemory.memories.state import State
from openmemory.services import open_services

APPS = {
    "openmemory": 40, "claude": 25, "cursor": 15, "cline": 8, "windsurf": 5, "witsy": 3, "roocline": 2, "augment": 1,
    "enconvo": 0.6, "codex": 0.3, "rare": 0.1,
}  # fmt: skip
CATEGORIES = (
    "personal", "relationships", "preferences", "health", "travel", "work", "education", "projects",
    "ai, ml & technology", "technical support", "finance", "shopping", "legal", "entertainment", "messages",
    "customer support", "product feedback", "news", "organization", "goals",
)  # fmt: skip
COMMONNESS = [1 / (rank + 1) for rank in range(len(CATEGORIES))]
STATES = {State.PAUSED: 8, State.ARCHIVED: 8, State.DELETED: 4}
"""Of a hundred memories."""
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
DAYS = 690
SLOW = 50.0

_ACCESSES = text("""
INSERT INTO memory_access_logs (memory_id, app_id, access_type, accessed_at)
SELECT m.id, (SELECT array_agg(id) FROM apps WHERE owner_id = :user)[1 + floor(power(random(), 2) * 11)], 'search',
       now() - random() * interval '80 days'
FROM memories AS m, generate_series(1, 3) WHERE m.user_id = :user
""")
_OTHERS = text("""
INSERT INTO memory_categories (memory_id, category_id)
SELECT m.id, (SELECT array_agg(id) FROM categories WHERE name = ANY(:names))[1 + floor(power(random(), 2) * 20)]
FROM memories AS m WHERE m.user_id <> :user
""")


def fields(number: int) -> dict[str, Any]:
    """What the memory of a number has besides its text."""
    chance = random.Random(number)
    filed = chance.choices(CATEGORIES, COMMONNESS, k=chance.choice((0, 1, 1, 2, 2, 3)))
    return {
        "app": chance.choices(list(APPS), list(APPS.values()))[0],
        "categories": tuple(set(filed)),
        "created_at": FIRST + timedelta(seconds=chance.randrange(DAYS * 86_400)),
        "namespace": chance.choices(["default", "shop", "blog"], [8, 1, 1])[0],
        "kind": chance.choices(["memory", "decision", "preference"], [7, 2, 1])[0],
        "thread_id": f"thread-{chance.randrange(500)}" if chance.random() < 0.3 else None,
        "importance": round(chance.random(), 2) if chance.random() < 0.5 else None,
        "expires_at": datetime(2099, 1, 1, tzinfo=UTC) if chance.random() < 0.02 else None,
    }


async def furnish(folder: Path) -> None:
    """Bring memories into their states, file those of the others, and have apps access them."""
    async with open_services(Settings(data_dir=str(folder), port=0)) as services:
        owner = await services.directory.caller(USER, None, owner=True)
        async with services.database.statement() as tx:
            rows = await tx.scalars(text("SELECT id FROM memories WHERE user_id = :user"), {"user": owner.user_id})
            ids = sorted(rows)
        random.Random(5).shuffle(ids)
        at = 0
        for state, share in STATES.items():
            some = ids[at : at + len(ids) * share // 100]
            at += len(some)
            for start in range(0, len(some), 1_000):
                await services.memories.change_state(owner, some[start : start + 1_000], state)
        async with services.database.transaction() as tx:
            await tx.execute(_ACCESSES, {"user": owner.user_id})
            await tx.execute(_OTHERS, {"user": owner.user_id, "names": list(CATEGORIES)})
        await services.outbox_delivery.drain()
        async with services.database.statement() as tx:
            await tx.execute(text("VACUUM ANALYZE"))


Request = tuple[str, str, dict[str, Any]]
"""Method, path, and query or body."""


class Requests:
    """Every filter and sort, as requests. Pages are the first, one near it, and the last."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.made: dict[str, Request] = {}

    async def _add(self, name: str, method: str, path: str, values: dict[str, Any], *, pages: bool = True) -> None:
        values = {"user_id": USER} | values
        size = next((key for key in ("size", "page_size") if key in values), None)
        self.made[f"{name}"] = method, path, values
        if not pages:
            return
        answer = (await send(self._http, (method, path, values))).json()
        last = -(-answer["total"] // (values[size] if size else answer["size"]))
        for label, number in (("third page", 3), ("last page", last)):
            if 1 < number <= last:
                self.made[f"{name}, {label}"] = method, path, values | {"page": number}

    async def all(self) -> dict[str, Request]:
        """The requests by what they ask for."""
        get, post = ("GET", "/api/v1/memories"), ("POST", "/api/v1/memories/filter")
        everything = {"state": "active,paused,archived,deleted"}
        apps = (await self._http.get("/api/v1/apps", params={"user_id": USER, "page_size": 100})).json()["apps"]
        app = {each["name"]: each["id"] for each in apps}
        found = (await self._http.get("/api/v1/memories/categories", params={"user_id": USER})).json()["categories"]
        category = {each["name"]: each["id"] for each in found}
        await self._add("GET", *get, {"size": 50})
        for column in (
            "created_at", "updated_at", "memory", "app_name", "state", "namespace", "kind", "importance", "archived_at",
            "deleted_at", "id", "app_id", "expires_at",
        ):  # fmt: skip
            for direction in ("asc", "desc"):
                sorting = {"sort_column": column, "sort_direction": direction, "size": 50}
                await self._add(f"GET by {column} {direction}", *get, sorting)
        for name, values in {
            "namespace": {"namespace": "shop"}, "thread": {"thread_id": "thread-7"}, "kind": {"kind": "decision"},
            "app": {"app_id": app["claude"]}, "rare app": {"app_id": app["rare"]},
            "all states": everything, "only deleted": {"state": "deleted"}, "category": {"categories": "personal"},
            "rare categories": {"categories": "goals,news"}, "text": {"search_query": "zebra"},
            "dates": {"from_date": 1_710_000_000, "to_date": 1_730_000_000},
        }.items():  # fmt: skip
            await self._add(f"GET {name}", *get, values | {"size": 50})
        for column in ("created_at", "memory", "app_name"):
            for direction in ("asc", "desc"):
                sorting = {"sort_column": column, "sort_direction": direction, "size": 10}
                await self._add(f"filter by {column} {direction}", *post, sorting)
                await self._add(f"filter by {column} {direction}, archived", *post, sorting | {"show_archived": True})
        for text_ in ("e", "zq", "qu", "er", "ing", "zebra", "the sea", "no such words", "1x77"):
            for column in ("created_at", "memory", "app_name"):
                sorting = {"sort_column": column, "sort_direction": "desc", "size": 10}
                await self._add(f"filter {text_!r} by {column}", *post, sorting | {"search_query": text_})
        for name, values in {
            "common category": {"category_ids": [category["personal"]]},
            "rare category": {"category_ids": [category["goals"]]},
            "three common categories": {"category_ids": [category[each] for each in CATEGORIES[:3]]},
            "common app": {"app_ids": [app["openmemory"]]}, "rare app": {"app_ids": [app["rare"]]},
            "three apps": {"app_ids": [app[each] for each in ("claude", "cline", "codex")]},
            "a month": {"from_date": 1_725_000_000, "to_date": 1_727_600_000},
            "category of an app": {"category_ids": [category["work"]], "app_ids": [app["cursor"]]},
            "everything at once": {
                "category_ids": [category["work"]], "app_ids": [app["claude"]], "search_query": "er",
                "from_date": 1_710_000_000, "show_archived": True,
            },
        }.items():  # fmt: skip
            for column in ("created_at", "app_name"):
                sorting = {"sort_column": column, "sort_direction": "asc", "size": 10}
                await self._add(f"filter {name} by {column}", *post, values | sorting)
        await self._related()
        await self._add("categories", "GET", "/api/v1/memories/categories", {}, pages=False)
        await self._add("stats", "GET", "/api/v1/stats", {}, pages=False)
        for column in ("name", "memories", "memories_accessed"):
            await self._add(f"apps by {column}", "GET", "/api/v1/apps", {"sort_by": column}, pages=False)
        for name in ("openmemory", "rare"):
            await self._add(f"app {name}", "GET", f"/api/v1/apps/{app[name]}", {}, pages=False)
            for part in ("memories", "accessed"):
                await self._add(f"app {name}, {part}", "GET", f"/api/v1/apps/{app[name]}/{part}", {"page_size": 10})
        return self.made

    async def _related(self) -> None:
        """Of memories with one category, with two, and with the three that most are filed under."""
        wanted: dict[str, Any] = {"one": {"personal"}, "two": {"personal", "work"}, "three": set(CATEGORIES[:3])}
        for page in range(1, 500):
            answer = await self._http.get("/api/v1/memories", params={"user_id": USER, "size": 100, "page": page})
            for item in answer.json()["items"]:
                for name, categories in list(wanted.items()):
                    if set(item["categories"]) == categories:
                        path = f"/api/v1/memories/{item['id']}/related"
                        await self._add(f"related by {name}", "GET", path, {})
                        del wanted[name]
            if not wanted:
                return


async def send(http: httpx.AsyncClient, request: Request) -> httpx.Response:
    """One request, which must succeed."""
    method, path, values = request
    answer = await http.request(method, path, **{"params" if method == "GET" else "json": values})
    assert answer.status_code == 200, (request, answer.text)
    return answer


async def measure(url: str, rounds: int, only: str) -> None:
    """Print p50 and p95 of each request, in milliseconds; all take turns."""
    yardstick, inputs, speeds = Yardstick(), questions(13), []
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        requests = {name: request for name, request in (await Requests(http).all()).items() if only in name}
        took: dict[str, list[float]] = {name: [] for name in requests}
        normal: dict[str, list[float]] = {name: [] for name in requests}
        for turn in range(-1, rounds):
            speeds.append(yardstick.measure(inputs) / REFERENCE)
            for name, request in requests.items():
                started = time.perf_counter()
                await send(http, request)
                if turn >= 0:
                    took[name].append((time.perf_counter() - started) * 1e3)
                    normal[name].append(took[name][-1] / speeds[-1])
    for name, found in took.items():
        print(f"  {name:55} {_spread(found)}   by the yardstick {_spread(normal[name])}", flush=True)
    for label, kinds in (("as they are", took), ("by the yardstick", normal)):
        over = sum(_p95(found) > SLOW for found in kinds.values())
        together = [each for found in kinds.values() for each in found]
        print(f"  {len(kinds)} kinds of requests, {label}: {_spread(together)}; {over} with a p95 over {SLOW:.0f} ms")
    print(f"  this machine took {statistics.median(speeds):.2f} times as long as the yardstick's")


def _p95(found: list[float]) -> float:
    return statistics.quantiles(found, n=20, method="inclusive")[18]


def _spread(found: list[float]) -> str:
    return f"p50 {statistics.median(found):6.1f}  p95 {_p95(found):6.1f}"


@contextmanager
def _explained() -> Iterator[list[str]]:
    """The plans of what is executed meanwhile, each asked of the server before the statement itself."""
    plans: list[str] = []
    execute = CompiledStatement.rows

    async def explain(self: CompiledStatement, tx: Tx, values: Mapping[str, Any]) -> list[Any]:
        plan = await self.plan(tx, values)
        if not plan.startswith("Insert") and "Insert on" not in plan:
            plans.append(await self.plan(tx, values, "ANALYZE, COSTS OFF, TIMING OFF, BUFFERS OFF, SUMMARY ON"))
        return await execute(self, tx, values)

    with patch.object(CompiledStatement, "rows", explain):
        yield plans


async def show_plans(folder: Path, only: str) -> None:
    """Print the plans of every request."""
    unlimited: Any = {"saves": 0, "searches": 0, "requests": 0}
    async with open_services(Settings(data_dir=str(folder), port=0, rates=unlimited)) as services:
        await services.outbox_delivery.stop()
        transport = httpx.ASGITransport(create_app(services))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as http:
            for name, request in (await Requests(http).all()).items():
                if only in name:
                    with _explained() as plans:
                        await send(http, request)
                    print(f"\n== {name}: {request[0]} {request[1]} {request[2]}")
                    print("\n--\n".join(plans), flush=True)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--data", type=Path, help="a folder that this benchmark filled before, or is to fill and keep")
    parser.add_argument("--plans", action="store_true", help="print plans rather than times")
    parser.add_argument("--only", default="", help="a part of the names of what is asked for")
    arguments = parser.parse_args()
    with temporary_folder("listing") as temporary:
        folder = arguments.data or temporary / "data"
        if not folder.exists():
            started = time.perf_counter()
            seed(folder, arguments.size, fields)
            asyncio.run(furnish(folder))
            print(f"{arguments.size:,} memories of one user stored in {time.perf_counter() - started:.0f} s")
        if arguments.plans:
            asyncio.run(show_plans(folder, arguments.only))
            return
        with running_service(folder) as url:
            asyncio.run(measure(url, arguments.rounds, arguments.only))


if __name__ == "__main__":
    main()
