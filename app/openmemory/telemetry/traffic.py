"""Counts and times requests and tool calls in this process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})

UNMATCHED = "unmatched"
"""The route of requests that reached none: unknown paths, and requests that were refused before."""


class Traffic:
    """Counts requests by route template and calls by tool name, never by a value that a client chose."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "openmemory_http_requests",
            "HTTP requests of this process, by route template, method and status. An event stream counts when it"
            f" opens; {UNMATCHED}: no such path, or refused before one was looked for; 499: the client left first.",
            ("route", "method", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "openmemory_http_request_duration_seconds",
            "Seconds until the whole answer was sent; until the first byte for event streams.",
            ("route", "method"),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._calls = Counter(
            "openmemory_mcp_tool_calls",
            "Calls of MCP tools of this process. ok: done; refused: the caller can mend it; unavailable: PostgreSQL or"
            " another store is away; failed: a defect, which the log shows; cancelled: the client left first.",
            ("tool", "outcome"),
            registry=registry,
        )
        self._call_seconds = Histogram(
            "openmemory_mcp_tool_duration_seconds",
            "Seconds that calls of MCP tools took.",
            ("tool",),
            buckets=_BUCKETS,
            registry=registry,
        )
        # Looking up a child by its labels costs more than counting.
        self._request_children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._call_children: dict[tuple[str, str], tuple[Counter, Histogram]] = {}

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Counts a request."""
        if method not in _METHODS:
            method = "other"
        key = (route, method, status)
        children = self._request_children.get(key)
        if children is None:
            children = self._request_children[key] = (
                self._requests.labels(route, method, str(status)),
                self._seconds.labels(route, method),
            )
        children[0].inc()
        children[1].observe(seconds)

    def call(self, tool: str, outcome: str, seconds: float) -> None:
        """Counts a call of a tool that exists."""
        key = (tool, outcome)
        children = self._call_children.get(key)
        if children is None:
            children = self._call_children[key] = (
                self._calls.labels(tool, outcome),
                self._call_seconds.labels(tool),
            )
        children[0].inc()
        children[1].observe(seconds)
