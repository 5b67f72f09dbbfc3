"""What access rules cost a search, and whether it still finds the best that may be read.

    python -m benchmarks.grants [--size 100000] [--rounds 200] [--data FOLDER]

One user with that many memories in 600 namespaces, of 60 apps, half of them under one of 300 categories, among twenty
users. Apps with different rules ask the same queries in turn, so that each meets the machine as the others left it; a
query is told apart by spaces at its end, so that it is embedded each time. Ratios are those of one and the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import text

from benchmarks.seed import USER, questions, seed
from benchmarks.service import temporary_folder
from openmemory.access.schemas import GrantCreate
from openmemory.config.settings import Settings
from openmemory.identity.caller import Caller
from openmemory.index.port import Filter
from openmemory.search.candidates import lexical
from openmemory.search.ranking.linear_model import candidates
from openmemory.search.schemas import SearchQuery
from openmemory.search.sql.lexical_filter import LexicalFilter
from openmemory.services import Services, open_services

APPS, NAMESPACES, CATEGORIES = 60, 600, 300
RULES = 1_000
HARDEST = 8
"""Queries whose thousand best hits are denied, one by one, to an app of its own for each."""

_spaces = count(1)


def fields(number: int) -> dict[str, Any]:
    """Where the memory of a number belongs."""
    filed = (f"subject-{number // 7 % CATEGORIES}",) if number % 2 else ()
    return {
        "namespace": f"project-{number % NAMESPACES}",
        "app": f"app-{number // 3 % APPS}",
        "categories": filed,
    }


def mixed(memories: list[str]) -> list[tuple[str, str]]:
    """A thousand rules about something of everything; they speak of three quarters of the memories."""
    return [
        *(("memory", id_) for id_ in memories[:500]),
        *(("namespace", f"project-{number}") for number in range(250)),
        *(("category", f"subject-{number}") for number in range(230)),
        *(("app", f"app-{number}") for number in range(20)),
    ]


async def rule(services: Services, owner: Caller, app: str, effect: Any, objects: list[tuple[str, str]]) -> Caller:
    """An app with exactly these rules."""
    known = {(grant.object_type, grant.object) for grant in await services.grants.list(owner, app=app)}
    if not known:
        for kind, name in objects:
            made: Any = {"effect": effect, "object_type": kind, "object": name, "app": app}
            await services.grants.create(owner, GrantCreate(**made))
    return await services.directory.caller(USER, app)


async def best(services: Services, owner: Caller, query: str, limit: int) -> list[str]:
    """The best hits of a query without rules."""
    near = await services.index.search((await services.embedder.query(query)).vector, Filter(owner.user_id), limit)
    async with services.database.statement() as tx:
        said = await lexical.search(tx, query, LexicalFilter(owner.user_id), limit, enough=10)
    return [str(hit.id) for hit in candidates(near, said)[:limit]]


async def timed(services: Services, caller: Caller, query: str, found: list[float]) -> None:
    again = SearchQuery(query + " " * next(_spaces))
    started = time.perf_counter()
    answer = await services.search.search(caller, again)
    found.append((time.perf_counter() - started) * 1e3)
    assert answer.note is None
    assert len(answer.results) == 10, f"{caller.app} found {len(answer.results)}"


async def measure(folder: Path, rounds: int) -> None:
    """Print p50 and p95 of every app, and their ratios to those of one without rules."""
    async with open_services(Settings(data_dir=str(folder), port=0)) as services:
        owner = await services.directory.caller(USER, None, owner=True)
        chance = random.Random(4)
        async with services.database.statement() as tx:
            rows = await tx.scalars(text("SELECT id FROM memories WHERE user_id = :user"), {"user": owner.user_id})
            ids = sorted(str(id_) for id_ in rows)
        chance.shuffle(ids)
        free = await services.directory.caller(USER, "without-rules")
        ruled = {
            "1,000 denied": await rule(services, owner, "denied", "deny", mixed(ids)),
            "1,000 allowed": await rule(services, owner, "allowed", "allow", mixed(ids)),
            "own_app, none": replace(await services.directory.caller(USER, "app-7"), default="own_app"),
        }
        asking = questions(11)
        hardest = []
        for number in range(HARDEST):
            query = next(asking)
            denied = [("memory", id_) for id_ in await best(services, owner, query, RULES)]
            hardest.append((query, await rule(services, owner, f"hardest-{number}", "deny", denied)))
        async with services.database.statement() as tx:
            await tx.execute(text("ANALYZE access_controls"))
        took: dict[str, list[float]] = {"owner": [], "no rules": [], **{name: [] for name in ruled}}
        took |= {"hardest: no rules": [], "hardest": []}
        for turn in range(-10, rounds):
            if turn == 0:
                for found in took.values():
                    found.clear()
            query = next(asking)
            await timed(services, owner, query, took["owner"])
            await timed(services, free, query, took["no rules"])
            for name, caller in ruled.items():
                await timed(services, caller, query, took[name])
            hard, denied_to = hardest[turn % HARDEST]
            await timed(services, free, hard, took["hardest: no rules"])
            await timed(services, denied_to, hard, took["hardest"])
        for name, found in took.items():
            bare = took["hardest: no rules" if name.startswith("hardest") else "no rules"]
            p50, p95 = both(found)
            low, high = both(bare)
            print(f"  {name:20} p50 {p50:6.2f} ({p50 / low:.2f})  p95 {p95:6.2f} ({p95 / high:.2f})", flush=True)


def both(milliseconds: list[float]) -> tuple[float, float]:
    """p50 and p95."""
    return statistics.median(milliseconds), statistics.quantiles(milliseconds, n=20)[18]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--data", type=Path, help="a folder that this benchmark filled before, or is to fill and keep")
    arguments = parser.parse_args()
    with temporary_folder("grants") as temporary:
        folder = arguments.data or temporary / "data"
        if not folder.exists():
            started = time.perf_counter()
            seed(folder, arguments.size, fields)
            print(f"{arguments.size:,} memories of one user stored in {time.perf_counter() - started:.0f} s")
        asyncio.run(measure(folder, arguments.rounds))


if __name__ == "__main__":
    main()
