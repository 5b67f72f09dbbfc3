"""Metrics of this process, read on each scrape."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from openmemory.resilience.circuit_breaker import BreakerState, CircuitBreaker
from openmemory.search.candidates import INDEX_BEHIND, NO_EMBEDDER, NO_INDEX
from openmemory.search.reranking import NO_RERANKER
from openmemory.services import VERSION, Services

_REASONS = {
    None: "none",
    NO_EMBEDDER: "embedder_unavailable",
    NO_INDEX: "index_unavailable",
    INDEX_BEHIND: "index_behind",
    NO_RERANKER: "reranker_unavailable",
}


def state(services: Services) -> Iterator[Metric]:
    """Yields the counts and states of this process; asks no other."""
    build = GaugeMetricFamily(
        "openmemory_build_info", "Always 1; the labels say what runs.", labels=("version", "python")
    )
    build.add_metric((VERSION, platform.python_version()), 1)
    yield build
    searches = CounterMetricFamily(
        "openmemory_searches",
        "Searches that this process answered, by how: hybrid, database_text when only words could be searched, time"
        " when the query was nothing but one, overview when it was broad or nothing was found; and what was missing.",
        labels=("search_method", "degradation"),
    )
    for (method, note), count in services.search.answered.items():
        searches.add_metric((method.value, _REASONS.get(note, "other")), count)
    yield searches
    written = CounterMetricFamily(
        "openmemory_memories_written",
        "Memories that this process wrote, by what was done. duplicate: an active one said it already, nothing stored.",
        labels=("operation",),
    )
    for operation, count in services.memories.written.items():
        written.add_metric((operation,), count)
    yield written
    yield from _captures(services)
    breakers = GaugeMetricFamily(
        "openmemory_circuit_breaker_state",
        "1 for the state that a circuit breaker of this process is in. closed: asks; open: does not; half_open: tries.",
        labels=("breaker", "state"),
    )
    for name, breaker in _breakers(services).items():
        for each in BreakerState:
            breakers.add_metric((name, each.value), float(breaker.state is each))
    yield breakers
    yield GaugeMetricFamily(
        "openmemory_index_behind",
        "1 while the index may lack memories that PostgreSQL holds, or while another service has the index lease.",
        value=float(services.spaces.serving.behind is not None or services.monitor.lease.lost),
    )
    yield from _database(services)
    yield GaugeMetricFamily(
        "openmemory_event_loop_tasks", "Tasks of this process that are not finished.", value=len(asyncio.all_tasks())
    )


def _captures(services: Services) -> Iterator[Metric]:
    worker = services.capturing
    attempts = CounterMetricFamily(
        "openmemory_capture_attempts",
        "Times that this process had the language model extract facts, by how that ended: done, unavailable (it did"
        " not answer), bad_answer, forbidden (the app was paused) or error. All but done and forbidden are repeated.",
        labels=("outcome",),
    )
    for outcome, count in worker.attempts.items():
        attempts.add_metric((outcome,), count)
    yield attempts
    yield CounterMetricFamily(
        "openmemory_llm_calls", "Questions to the language model, failed ones included.", value=worker.spent.calls
    )
    tokens = CounterMetricFamily("openmemory_llm_tokens", "Tokens that they took.", labels=("kind",))
    tokens.add_metric(("prompt",), worker.spent.prompt_tokens)
    tokens.add_metric(("completion",), worker.spent.completion_tokens)
    yield tokens
    yield CounterMetricFamily(
        "openmemory_llm_seconds", "Seconds that its answers took, summed up.", value=worker.spent.seconds
    )


def _breakers(services: Services) -> Mapping[str, CircuitBreaker]:
    space = services.spaces.serving
    return {"embedder": space.embedder_breaker, "index": space.index_breaker}


def _database(services: Services) -> Iterator[Metric]:
    connections = GaugeMetricFamily(
        "openmemory_database_connections",
        "Connections of this process to PostgreSQL, in use and waiting to be used.",
        labels=("pool", "state"),
    )
    limit = GaugeMetricFamily("openmemory_database_connections_limit", "How many each pool may open.", labels=("pool",))
    for name, use in services.database.pools().items():
        connections.add_metric((name, "used"), use.used)
        connections.add_metric((name, "idle"), use.idle)
        limit.add_metric((name,), use.limit)
    yield connections
    yield limit
    yield CounterMetricFamily(
        "openmemory_database_failures",
        "Transactions and statements of this process that met no working PostgreSQL.",
        value=services.database.failures,
    )
