"""What it costs to make memories of what is said, and what is kept in the end: this service beside mem0ai as a library.

    python -m benchmarks extraction [--facts 12] [--json FILE]

Both ask the same language model and the same embedder, in one run, by OpenAI's protocol on 127.0.0.1. The model is a
script (`scripted`), so nothing is measured of a model's wits: each system is answered in the form that it asks for
with the best answer that its own prompt allows, made of the facts that are known to be in a text (`sayings`). Our
prompt wants operations: a fact that is shown is NONE, one that replaces a shown one is SUPERSEDE, else ADD. mem0's
wants new memories alone: what it shows is left out, and a change is told as one and linked to what it changes, as its
prompt says. The embedder is the packaged model behind `/v1/embeddings`; as it comes, our service asks nobody for
embeddings.

mem0 is used as its documentation says: `Memory.from_config` with its Qdrant in a folder, `add(text, user_id=…)`;
without its extra for natural language, whose entities would take further embeddings. We are `openmemory serve` over
REST, with `categories.assign` off, for mem0 files nothing. Counted by the server, for both: questions (also those
that were answered with errors), tokens of the prompt with its schema and of the answer by the packaged model's
tokenizer, requests for embeddings and texts in them. `s`: until what was said is remembered or given up. `told`: adds
of which the caller hears that they failed or take longer. `lost`: facts that are not stored in the end; `stale`: what
is stored as true and was said to be over.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import httpx

from benchmarks.sayings import FACTS, Said, Scenario, lost, scenarios, stale
from benchmarks.scripted import Counts, Scripted
from benchmarks.service import idle, running_service, temporary_folder
from openmemory.embeddings.providers import configure_mem0

KEY = "none"
PATIENCE = 120.0
"""Seconds that a text may take, with all its retries."""

WARM = Said("My shoes are blue.", ("User has blue shoes.",))


class System(Protocol):
    """One that remembers."""

    name: str

    def add(self, user: str, text: str) -> bool:
        """Have memories made of a text; returns when that is over. False: the caller hears that it failed at first."""
        ...

    def settle(self) -> None:
        """Wait for what goes on behind."""
        ...

    def stored(self, user: str) -> list[str]:
        """What is remembered as true, sorted."""
        ...


@dataclass
class Measured:
    """One scenario of one system."""

    scenario: str
    system: str
    adds: int
    counts: Counts
    seconds: float
    told: int
    stored: list[str]
    lost: list[str]
    stale: list[str]

    def row(self) -> str:
        """A line of the table."""
        of = self.counts
        return (
            f"{self.scenario:15} {self.system:12}{self.adds:5}{of.calls:7}{of.prompt:9}{of.completion:8}"
            f"{of.embeddings:7}{of.embedded:7}{self.seconds:8.2f}{self.told:6}{len(self.stored):8}"
            f"{len(self.lost):6}{len(self.stale):7}"
        )


HEAD = (
    f"{'scenario':15} {'system':12}{'adds':>5}{'calls':>7}{'prompt':>9}{'answer':>8}{'embed':>7}{'texts':>7}{'s':>8}"
    f"{'told':>6}{'stored':>8}{'lost':>6}{'stale':>7}"
)


class Mem0:
    """mem0ai in this process."""

    def __init__(self, url: str, folder: Path) -> None:
        configure_mem0(folder)
        from mem0 import Memory  # type: ignore[import-untyped]

        logging.getLogger("mem0").setLevel(logging.CRITICAL)  # it is told of each failure, as we are
        self.name = f"mem0ai {version('mem0ai')}"
        store = {"collection_name": "m", "embedding_model_dims": 384, "path": str(folder / "qdrant"), "on_disk": True}
        self._memory = Memory.from_config(
            {
                "llm": {"provider": "openai", "config": {"model": "m", "api_key": KEY, "openai_base_url": url}},
                "embedder": {"provider": "openai", "config": {"model": "m", "api_key": KEY, "openai_base_url": url}},
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": str(folder / "history.db"),
            }
        )

    def add(self, user: str, text: str) -> bool:
        """See `System`."""
        from mem0.exceptions import LLMError  # type: ignore[import-untyped]

        try:
            self._memory.add(text, user_id=user)
        except LLMError:
            return False
        return True

    def settle(self) -> None:
        """Nothing goes on behind."""

    def stored(self, user: str) -> list[str]:
        """See `System`."""
        return sorted(each["memory"] for each in self._memory.get_all(filters={"user_id": user}, top_k=1000)["results"])


class Ours:
    """This service over REST."""

    name = "openmemory"

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = httpx.Client(base_url=url, timeout=PATIENCE)

    def add(self, user: str, text: str) -> bool:
        """See `System`."""
        answer = self._http.post("/api/v1/memories", json={"user_id": user, "text": text})
        answer.raise_for_status()
        until = time.monotonic() + PATIENCE
        status = answer.json()["status"]
        while status in ("pending", "working") and time.monotonic() < until:
            time.sleep(0.05)
            status = self._http.get(f"/api/v1/captures/{answer.json()['capture_id']}").json()["status"]
        return answer.status_code == 200

    def settle(self) -> None:
        """Wait until what was stored is in the index."""
        asyncio.run(idle(self._url))

    def stored(self, user: str) -> list[str]:
        """See `System`."""
        answer = self._http.get("/api/v1/memories", params={"user_id": user, "size": 100})
        return sorted(each["content"] for each in answer.raise_for_status().json()["items"])


def measured(system: System, scenario: Scenario, model: Scripted) -> Measured:
    """Play one scenario to one system."""
    user = scenario.name.replace(" ", "-")
    counts = model.begin(scenario.said)
    started = time.perf_counter()
    told = sum(not system.add(user, each.text) for each in scenario.said)
    seconds = time.perf_counter() - started
    system.settle()
    stored = system.stored(user)
    return Measured(
        scenario.name, system.name, len(scenario.said), counts, seconds, told, stored,
        lost(scenario.holds, scenario.said, stored), stale(scenario.said, stored),
    )  # fmt: skip


@contextmanager
def systems(model: Scripted, folder: Path) -> Iterator[list[System]]:
    """Both, after their first add: imports, connections and models are open."""
    asks = {"PROVIDER": "openai", "MODEL": "m", "API_KEY": KEY, "BASE_URL": model.url}
    given = {f"OPENMEMORY_{part}_{name}": value for part in ("LLM", "EMBEDDER") for name, value in asks.items()}
    given |= {"OPENMEMORY_LOG_LEVEL": "error", "OPENMEMORY_CATEGORIES_ASSIGN": "off"}
    with running_service(folder / "data", **given) as url:
        both: list[System] = [Mem0(model.url, folder), Ours(url)]
        model.begin([WARM])
        for system in both:
            system.add("warm", WARM.text)
            system.settle()
        yield both


def main() -> None:
    """Print the table, and what is stored in the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=int, default=12, choices=range(1, len(FACTS) + 1), metavar="N")
    parser.add_argument("--json", type=Path, help="write all of it to this file too")
    arguments = parser.parse_args()
    found: list[Measured] = []
    model = Scripted()
    try:
        with temporary_folder("extraction") as folder, systems(model, folder) as both:
            print(HEAD)
            for scenario in scenarios(arguments.facts):
                for system in both:
                    found.append(measured(system, scenario, model))
                    print(found[-1].row(), flush=True)
    finally:
        model.close()
    _tell(found)
    if arguments.json is not None:
        report: list[dict[str, Any]] = [asdict(each) for each in found]
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _tell(found: list[Measured]) -> None:
    for each in found:
        print(f"\n{each.scenario}, {each.system}: {len(each.stored)} stored")
        for text in each.stored:
            print(f"  {text}{'  (stale)' if text in each.stale else ''}")
        for text in each.lost:
            print(f"  LOST: {text}")


if __name__ == "__main__":
    main()
