"""Exposes all metrics of one application in the Prometheus format."""

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
from openmemory.telemetry.stored import StoredGauges
from openmemory.telemetry.traffic import Traffic

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

# They would add a third more series and tell nothing that the start time of the process does not.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of one application: counters in their own registry, and values that are read on each scrape."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._registry = CollectorRegistry()
        self._stored = StoredGauges(services.database)
        self.traffic = Traffic(self._registry)
        ProcessCollector(registry=self._registry)

    async def exposition(self) -> bytes:
        """Returns every metric in the text format 0.0.4."""
        stored = await self._stored.families()
        read = CollectorRegistry(auto_describe=False)
        read.register(_Read([*state(self._services), *stored]))
        return await asyncio.to_thread(lambda: generate_latest(self._registry) + generate_latest(read))


class _Read(Collector):
    """Metrics that were already read."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Returns the metrics as they were read."""
        return iter(self._families)
