"""All metrics of one application as Prometheus reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from openmemory.services import Services
from openmemory.telemetry.process import state
from openmemory.telemetry.stored import Stored
from openmemory.telemetry.traffic import Traffic

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

# A third as many series again, which tell nothing that the start of the process does not.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """What one application counts, in a registry of its own, and what it reads when it is scraped."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._registry = CollectorRegistry()
        self._stored = Stored(services.database)
        self.traffic = Traffic(self._registry)
        ProcessCollector(registry=self._registry)

    async def exposition(self) -> bytes:
        """Every metric in the text format 0.0.4."""
        stored = await self._stored.families()
        read = CollectorRegistry(auto_describe=False)
        read.register(_Read([*state(self._services), *stored]))
        return await asyncio.to_thread(lambda: generate_latest(self._registry) + generate_latest(read))


class _Read(Collector):
    """Metrics that have been read already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def describe(self) -> Iterator[Metric]:
        """Nothing beforehand: the registry is as old as what it holds."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """As they were read."""
        return iter(self._families)
