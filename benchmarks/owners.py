"""Two installations and a copied database on one Qdrant, all written to: what each finds of its own, and of others.

    python -m benchmarks.owners [--seconds 120] [--rate 5] [--engine]

One PostgreSQL has three databases: `first`, `second`, and `copy`, a copy of `first`. All three use the default name of
the collection. Half-way `copy` is declared to be one. With `--engine` they take turns with one data folder, which has
the built-in index, and the copy is declared when it asks for the first time. 3600 seconds are an hour.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import psycopg
from sqlalchemy import text
from sqlalchemy.engine import make_url

from benchmarks.front import running_front
from benchmarks.seed import texts
from benchmarks.service import temporary_folder
from openmemory.config.settings import Settings
from openmemory.identity.principal import LOCAL
from openmemory.index.port import IndexUnavailable
from openmemory.index.sync.reconcile import SyncRunning
from openmemory.jobs.schedule import scheduled
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services, open_services
from openmemory.stores import open_stores

BEFORE = 50
"""The number of memories of `first` that `copy` has too."""

LOOK = 5.0
"""The seconds between two looks at the collections."""

TURN = 15.0
"""The seconds for which one of them has the data folder."""


@dataclass
class Member:
    """One of the three, and what was seen of it."""

    name: str
    seed: int
    written: set[UUID] = field(default_factory=set)
    erased: int = 0
    looks: int = 0
    strange: set[UUID] = field(default_factory=set)
    """Points in its collection that its database never had."""
    refused: int = 0
    """The looks at which its collection was another's."""
    collection: str = ""

    async def write(self, services: Services, rate: float, enough: asyncio.Event) -> None:
        """Add, and erase a tenth of it, until it is enough. An add that is under way ends, so that its id is known."""
        caller = await services.directory.caller("bench-user", None, owner=True)
        source = texts(self.seed + int(time.time()))
        while not enough.is_set():
            added = await services.memories.add(caller, MemoryCreate(text=next(source)))
            self.written.add(added.id)
            if added.id.int % 10 == 0:
                await services.memories.erase(caller, [added.id])
                self.erased += 1
            await asyncio.sleep(1 / rate)

    async def look(self, services: Services) -> None:
        """Compare what its collection holds with all that its database ever had."""
        self.looks += 1
        self.collection = services.spaces.serving.collection
        if services.monitor.lease.foreign is not None:
            self.refused += 1
            return
        with contextlib.suppress(IndexUnavailable):
            present = {entry.id async for page in services.index.entries() for entry in page}
            self.strange |= present - self.written

    async def end(self, services: Services) -> str:
        """A row of the table, after a last sync."""
        for _ in range(120):
            with contextlib.suppress(SyncRunning, IndexUnavailable):
                await services.reconciler.sync(trigger="benchmark")
                break
            await asyncio.sleep(1)
        async with services.database.statement() as tx:
            wanted = set(await tx.scalars(text("SELECT id FROM memories WHERE state = 'active'")))
        present = {entry.id async for page in services.index.entries() for entry in page}
        await self.look(services)
        self.strange -= self.written  # a look may have come before the answer to an add
        numbers = len(self.written), self.erased, self.looks, self.refused, len(self.strange)
        ends = len(wanted - present), len(present - wanted)
        return f"| {' | '.join(map(str, (self.name, *numbers, *ends, self.collection.partition('__')[0])))} |"


@dataclass
class Place:
    """Where the databases are, and the Qdrant; empty: the built-in index in one data folder."""

    folder: Path
    postgres: str
    qdrant: str

    async def create(self, name: str, template: str = "") -> None:
        """Create a database, or copy one that nobody uses now."""
        copying = f" TEMPLATE {template}" if template else ""
        root = make_url(self.url("postgres")).set(username="postgres").render_as_string(hide_password=False)
        async with await psycopg.AsyncConnection.connect(root, autocommit=True) as connection:
            await connection.execute(f"CREATE DATABASE {name} OWNER openmemory{copying}".encode())

    def url(self, database: str) -> str:
        """The address of a database."""
        url = make_url(self.postgres).set(database=database, drivername="postgresql")
        return url.render_as_string(hide_password=False)

    @contextlib.asynccontextmanager
    async def serving(self, name: str) -> AsyncIterator[Services]:
        """A service with its jobs."""
        folder = self.folder / (f"of-{name}" if self.qdrant else "shared")
        settings = Settings.model_validate({
            "data_dir": str(folder), "port": 0, "database": {"url": self.url(name)}, "qdrant": {"url": self.qdrant},
            "rates": {"saves": 0, "searches": 0, "requests": 0},
        })  # fmt: skip
        async with open_services(settings) as services, scheduled(services):
            yield services


@contextlib.asynccontextmanager
async def writing(member: Member, services: Services, rate: float) -> AsyncIterator[None]:
    """A member that is written to while the block runs."""
    enough = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(member.write(services, rate, enough))
        try:
            yield
        finally:
            enough.set()


async def ask(services: Services) -> bool:
    """Declare a copy, if its service asks."""
    foreign = services.monitor.lease.foreign
    if foreign is None or not foreign.asked:
        return False
    await services.installations.decide(LOCAL, "copied")
    return True


async def on_a_server(place: Place, members: list[Member], seconds: float, rate: float) -> list[str]:
    """All at once."""
    first, second, copy = members
    declared = False
    async with (
        place.serving("first") as one, place.serving("second") as two, place.serving("copy") as three,
        writing(first, one, rate), writing(second, two, rate), writing(copy, three, rate),
    ):  # fmt: skip
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            await asyncio.sleep(LOOK)
            for member, services in zip(members, (one, two, three), strict=True):
                await member.look(services)
            if not declared and ends - time.monotonic() < seconds / 2:
                declared = await ask(three)
    async with contextlib.AsyncExitStack() as stack:
        again = [await stack.enter_async_context(place.serving(member.name)) for member in members]
        return [await member.end(services) for member, services in zip(members, again, strict=True)]


async def on_the_engine(place: Place, members: list[Member], seconds: float, rate: float) -> list[str]:
    """One after the other, since one process has the folder."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for member in members:
            async with place.serving(member.name) as services, writing(member, services, rate):
                stops = time.monotonic() + TURN
                while time.monotonic() < stops:
                    await asyncio.sleep(LOOK / 2)
                    await member.look(services)
                    await ask(services)
    rows = []
    for member in members:
        async with place.serving(member.name) as services:
            rows.append(await member.end(services))
    return rows


async def main(folder: Path, seconds: float, rate: float, engine: bool) -> None:
    """Make the three databases, write to all of them, and print what was found."""
    with contextlib.ExitStack() as stack:
        qdrant = "" if engine else stack.enter_context(running_front(folder / "qdrant"))
        async with open_stores(Settings(data_dir=str(folder / "postgres"))) as (_, stores):
            place = Place(folder, stores.database, qdrant)
            members = [Member("first", 1), Member("second", 2), Member("copy", 3)]
            for name in ("first", "second"):
                await place.create(name)
            async with place.serving("first") as services:
                caller = await services.directory.caller("bench-user", None, owner=True)
                source = texts(7)
                news = [MemoryCreate(text=next(source)) for _ in range(BEFORE)]
                known = {one.id for one in await services.memories.add_many(caller, news)}
                members[0].written |= known
                members[2].written |= known
                await asyncio.sleep(LOOK)
            await place.create("copy", "first")
            rows = await (on_the_engine if engine else on_a_server)(place, members, seconds, rate)
    print("| | added | erased | looks | refused | strange points | missing | left over | name |")
    print("|---|---|---|---|---|---|---|---|---|", *rows, sep="\n", flush=True)


def arguments() -> argparse.Namespace:
    """How long, and where."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=5.0, help="adds a second, to each")
    parser.add_argument("--engine", action="store_true", help="one data folder with the built-in index, in turns")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    with temporary_folder("owners") as parent:
        asyncio.run(main(parent, given.seconds, given.rate, given.engine))
