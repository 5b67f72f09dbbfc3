"""The REST API keeps to its own description, whatever it is sent.

schemathesis makes requests from `/openapi.json`: examples, bounds of every field and what lies beyond, random data, and
sequences in which the ids of one answer go into the next request. The data is the same in each run, so that a change is
judged by itself. `OPENMEMORY_TEST_EXAMPLES` sets how many random requests it makes of each operation instead.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder

from openmemory.config.settings import Settings
from openmemory.services import open_services
from tests.clusters import furnish
from tests.doors.mcp.conftest import serving
from tests.living import living

KEY = "an-administrator-for-everyone-0123456789"
AUTHORIZED = {"Authorization": f"Bearer {KEY}"}
EXAMPLES = os.environ.get("OPENMEMORY_TEST_EXAMPLES")

CHECKS = {
    # An answer is right although the description alone would have it otherwise. A request that fits the description may
    # be refused: names must not be blank, times need an offset, limits are settings. One that does not may be taken:
    # numbers and booleans may come as text, as OpenMemory took them, and each memory of a batch is answered for itself.
    "positive_data_acceptance": {"enabled": False},
    "negative_data_rejection": {"enabled": False},
    # PUT /api/v1/memories/search names a memory that is called `search`: 422, as for every id that is none.
    "unsupported_method": {"enabled": False},
}


@dataclass
class Run:
    """What was asked, and what was wrong with the answers."""

    seed: int
    requests: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def note(self, event: events.EngineEvent) -> None:
        if isinstance(event, events.FatalError):
            raise event.exception
        if isinstance(event, events.NonFatalError):
            self.wrong.append(f"{event.label}: {event.value!r}")
        elif isinstance(event, events.ScenarioFinished):
            self._look_at(event.recorder, event.phase.value)

    def _look_at(self, recorder: ScenarioRecorder, phase: str) -> None:
        for id_, interaction in recorder.interactions.items():
            self.requests[recorder.cases[id_].value.operation.label] += 1
            if interaction.response is None:
                self.wrong.append(f"no answer: {interaction.request.method} {interaction.request.uri}")
            else:
                self.statuses[interaction.response.status_code] += 1
        for checks in recorder.checks.values():
            for check in checks:
                if (found := check.failure_info) is not None:
                    self.wrong.append(f"{phase} {check.name}: {found.failure.message}\n{found.code_sample[:2000]}")


@pytest.fixture(scope="module")
async def url(short_folder: Path) -> AsyncIterator[str]:
    """The product behind a socket, over a data folder of its own, for an administrator whom no rate holds up."""
    settings = Settings.model_validate(
        {
            "data_dir": str(furnish(short_folder / "openapi")),
            "access": {"require": "always", "api_key": KEY},
            "rates": {"saves": 0, "searches": 0, "requests": 0, "failures": 0},
        }
    )

    @asynccontextmanager
    async def served() -> AsyncIterator[str]:
        async with open_services(settings) as services, serving(services) as address:
            yield address

    async with living(served()) as address:
        yield address


def run(url: str, described: dict[str, Any], **more: Any) -> Run:
    """Make requests from a description."""
    config = schemathesis.Config.from_dict(
        {
            "base-url": url,
            "headers": AUTHORIZED,
            "checks": CHECKS,
            "continue-on-failure": True,
            "request-timeout": 20,
            "warnings": False,
            "suppress-health-check": ["all"],
            **more,
        }
    )
    done = Run(config.seed)
    for event in from_schema(schemathesis.openapi.from_dict(described, config=config)).execute():
        done.note(event)
    return done


async def described_by(url: str) -> dict[str, Any]:
    async with httpx.AsyncClient(headers=AUTHORIZED, timeout=20) as http:
        answer = await http.get(f"{url}/openapi.json")
    described: dict[str, Any] = answer.json()
    return described


def assert_kept(done: Run, described: dict[str, Any]) -> None:
    """Every operation was called, most of them with success, and nothing was wrong."""
    operations = {
        f"{method.upper()} {path}" for path, operations in described["paths"].items() for method in operations
    }
    shown = "\n\n".join(done.wrong[:10])
    assert not done.wrong, f"{len(done.wrong)} answers were wrong (seed {done.seed}):\n\n{shown}"
    assert done.requests.keys() == operations
    assert done.statuses[200] + done.statuses[201] > 100
    print(f"\n{done.requests.total()} requests of {len(operations)} operations: {dict(done.statuses)}")


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_every_operation_answers_as_it_is_described(url: str) -> None:
    described = await described_by(url)
    generation = {"max-examples": int(EXAMPLES or 5), "database": "none", "allow-x00": True}
    same = {} if EXAMPLES else {"deterministic": True}
    seed = {} if EXAMPLES else {"seed": 1}
    done = await asyncio.to_thread(run, url, described, generation=generation | same, **seed)
    assert_kept(done, described)
