"""Do context packs keep corrections? Pairs of an older and a newer memory, asked for at several budgets.

    python -m benchmarks corrections [FILE] [--budgets 300 1000 2500] [--each]

FILE holds a pair a line, and is `benchmarks/corrections.jsonl` if it is left out: `older`, `newer`, the `question`, and
the `sort` of the correction. `older_key` or `newer_key` is the topic and key under which that side is set as a value.
All pairs are stored in one namespace, beside the memories of `benchmarks/everyday.json`. The packaged model embeds
them. For each budget, a line says how many packs hold the newer side, how many of them name the conflict, and how many
hold the older side alone, which none should. `--each` lists these.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from benchmarks import everyday
from benchmarks.evaluation import patient
from benchmarks.service import temporary_folder
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.projects.context import ContextQuery
from openmemory.projects.pack_schemas import ContextPack
from openmemory.projects.schemas import NewValue
from openmemory.services import Services, open_services

FILE = Path(__file__).with_name("corrections.jsonl")
NAMESPACE = "corrections"
BUDGETS = (300, 1_000, 2_500)
OLDER, NEWER = timedelta(days=60), timedelta(days=2)
"""The ages of the sides."""


class Pair(NamedTuple):
    """A correction. Each side has its text, and perhaps the topic and key under which it is a value."""

    sort: str
    question: str
    older: str
    newer: str
    older_key: tuple[str, str] | None = None
    newer_key: tuple[str, str] | None = None


class StoredPair(NamedTuple):
    """A pair and the ids of its sides."""

    pair: Pair
    older: UUID
    newer: UUID


class Outcome(NamedTuple):
    """What a pack holds of a pair. `named`: it names the conflict of both sides."""

    pair: Pair
    older: bool
    newer: bool
    named: bool

    @property
    def misleads(self) -> bool:
        """Returns True if the pack holds the older side alone."""
        return self.older and not self.newer


def read(file: Path = FILE) -> list[Pair]:
    """Reads the pairs of a file."""
    lines = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    keys = ("older_key", "newer_key")
    return [Pair(**line | {key: tuple(line[key]) for key in keys if key in line}) for line in lines]


def outcome(stored: StoredPair, pack: ContextPack) -> Outcome:
    """What a pack holds of a pair."""
    there = {id_ for one in pack.memories for id_ in (one.id, *one.cluster_ids)}
    sides = {stored.older, stored.newer}
    named = any({one.newer.memory_id, one.older.memory_id} == sides for one in pack.conflicts)
    return Outcome(stored.pair, stored.older in there, stored.newer in there, named)


async def store(services: Services, caller: Caller, pairs: Sequence[Pair]) -> list[StoredPair]:
    """Stores the pairs, older sides first, and everyday memories beside them."""
    now = datetime.now(UTC)
    noise = [
        MemoryCreate(one.text, namespace=NAMESPACE, created_at=now - timedelta(days=one.days))
        for one in everyday.read().memories
    ]
    await services.memories.add_many(caller, noise)

    async def side(text: str, key: tuple[str, str] | None, age: timedelta) -> UUID:
        if key is not None:
            return (await services.values.set(caller, NewValue(*key, text, NAMESPACE))).id
        return (await services.memories.add(caller, MemoryCreate(text, namespace=NAMESPACE, created_at=now - age))).id

    older = [await side(pair.older, pair.older_key, OLDER) for pair in pairs]
    newer = [
        # A value is set now. What corrects it is newer.
        await side(pair.newer, pair.newer_key, NEWER if pair.older_key is None else timedelta(0))
        for pair in pairs
    ]
    await services.outbox_delivery.drain()
    return [StoredPair(*each) for each in zip(pairs, older, newer, strict=True)]


def line(budget: int, found: Sequence[Outcome]) -> str:
    """The figures of a budget."""
    count = len(found)
    return (
        f"  {budget:>6,} tokens: newer side {sum(one.newer for one in found)} of {count}, "
        f"both {sum(one.newer and one.older for one in found)}, named {sum(one.named for one in found)}, "
        f"older side alone {sum(one.misleads for one in found)}"
    )


async def measure(pairs: Sequence[Pair], data: Path, budgets: Sequence[int], *, each: bool) -> None:
    """Store the pairs, ask for packs, and print the figures."""
    async with open_services(patient(data / "corrections")) as services:
        await services.outbox_delivery.stop()
        caller = await services.directory.caller("corrections", "corrections", owner=True)
        stored = await store(services, caller, pairs)
        print(f"  {len(stored)} pairs")
        for budget in budgets:
            found = list[Outcome]()
            for one in stored:
                query = ContextQuery(one.pair.question, NAMESPACE, budget)
                pack: Any = await services.context.pack(caller, query)
                found.append(outcome(one, pack))
            print(line(budget, found), flush=True)
            for one in found if each else ():
                if one.misleads or not one.newer:
                    print(f"    {one.pair.sort}: {one.pair.question} {'older alone' if one.older else 'neither'}")


def main() -> None:
    """Measure the pairs of a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    parser.add_argument("--budgets", nargs="+", type=int, default=BUDGETS)
    parser.add_argument("--each", action="store_true", help="list the packs that lack the newer side")
    given = parser.parse_args()
    with temporary_folder("corrections") as data:
        asyncio.run(measure(read(given.file), data, given.budgets, each=given.each))


if __name__ == "__main__":
    main()
