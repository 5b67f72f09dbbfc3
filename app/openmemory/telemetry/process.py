"""Metrics of this process, read on each scrape."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from openmemory.resilience.circuit_breaker import BreakerState
from openmemory.search.candidates.retrieval import INDEX_BEHIND, NO_EMBEDDER, NO_INDEX
from openmemory.search.ranking.reranking import NO_RERANKER
from openmemory.services import VERSION, Services

_REASONS = {
    None: "none",
    NO_EMBEDDER: "embedder_unavailable",
    NO_INDEX: "index_unavailable",
    INDEX_BEHIND: "index_behind",
    NO_RERANKER: "reranker_unavailable",
}


def state(services: Services) -> Iterator[Metric]:
    """Yields the counts and states of this process alone."""
    worker, space = services.capturing, services.spaces.serving
    yield labelled(
        GaugeMetricFamily("openmemory_build_info", "Always 1; the labels say what runs.", labels=("version", "python")),
        {(VERSION, platform.python_version()): 1},
    )
    yield labelled(
        CounterMetricFamily(
            "openmemory_searches",
            "Searches that this process answered, by how: hybrid, database_text when only words could be searched, time"
            " when the query was nothing but one, overview when it was broad or nothing was found; and what was"
            " missing.",
            labels=("search_method", "degradation"),
        ),
        {(method.value, _REASONS.get(note, "other")): n for (method, note), n in services.search.answered.items()},
    )
    yield labelled(
        CounterMetricFamily(
            "openmemory_memories_written",
            "Memories that this process wrote, by what was done. duplicate: an active one said it already, nothing"
            " stored.",
            labels=("operation",),
        ),
        {(operation,): count for operation, count in services.memories.written.items()},
    )
    yield labelled(
        CounterMetricFamily(
            "openmemory_messages_written",
            "Messages of conversations that this process wrote, by what was done: add, delete, restore or erase.",
            labels=("operation",),
        ),
        {(operation,): count for operation, count in services.conversations.written.items()},
    )
    yield labelled(
        CounterMetricFamily(
            "openmemory_capture_attempts",
            "Times that this process had the language model extract facts, by how that ended: done, unavailable (it did"
            " not answer), bad_answer, forbidden (the app was paused) or error. All but done and forbidden are"
            " repeated.",
            labels=("outcome",),
        ),
        {(outcome,): count for outcome, count in worker.attempts.items()},
    )
    yield CounterMetricFamily(
        "openmemory_llm_calls", "Questions to the language model, failed ones included.", value=worker.spent.calls
    )
    yield labelled(
        CounterMetricFamily("openmemory_llm_tokens", "Tokens that they took.", labels=("kind",)),
        {("prompt",): worker.spent.prompt_tokens, ("completion",): worker.spent.completion_tokens},
    )
    yield CounterMetricFamily(
        "openmemory_llm_seconds", "Seconds that its answers took, summed up.", value=worker.spent.seconds
    )
    breakers = {"embedder": space.embedder_breaker, "index": space.index_breaker}
    yield labelled(
        GaugeMetricFamily(
            "openmemory_circuit_breaker_state",
            "1 for the state that a circuit breaker of this process is in. closed: asks; open: does not; half_open:"
            " tries.",
            labels=("breaker", "state"),
        ),
        {(name, state): float(breaker.state is state) for name, breaker in breakers.items() for state in BreakerState},
    )
    yield GaugeMetricFamily(
        "openmemory_index_behind",
        "1 while the index may lack memories that PostgreSQL holds, or while another service has the index lease.",
        value=float(space.behind is not None or services.monitor.lease.lost),
    )
    yield GaugeMetricFamily(
        "openmemory_index_foreign",
        "1 while the collection in use belongs to another installation, so that this one leaves it alone.",
        value=float(services.monitor.lease.foreign is not None),
    )
    pools = services.database.pools()
    yield labelled(
        GaugeMetricFamily(
            "openmemory_database_connections",
            "Connections of this process to PostgreSQL, in use and waiting to be used.",
            labels=("pool", "state"),
        ),
        {
            (name, state): count
            for name, use in pools.items()
            for state, count in (("used", use.used), ("idle", use.idle))
        },
    )
    yield labelled(
        GaugeMetricFamily("openmemory_database_connections_limit", "How many each pool may open.", labels=("pool",)),
        {(name,): use.limit for name, use in pools.items()},
    )
    yield CounterMetricFamily(
        "openmemory_database_failures",
        "Transactions and statements of this process that met no working PostgreSQL.",
        value=services.database.failures,
    )
    yield GaugeMetricFamily(
        "openmemory_event_loop_tasks", "Tasks of this process that are not finished.", value=len(asyncio.all_tasks())
    )


def labelled(
    family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[tuple[str, ...], float]
) -> CounterMetricFamily | GaugeMetricFamily:
    """Returns the family with a value for each combination of its labels."""
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
