"""What is decided about one request before it leaves: whether its origin is trusted, and what may go there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import httpx

from openmemory.config.addresses import IP, parsed
from openmemory.egress.policy import EgressRefused, Origin, Policy

ATTEMPTS = 4
"""Addresses of one host that are tried, one after the other."""

_FIRST = "openmemory_first_origin"
"""Where a request carries the origin that its caller asked for; httpx hands the extensions on to a redirect."""

_HARMLESS = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent"}
)
"""Headers that another origin may see. httpx keeps back `Authorization` alone, and keys have many names."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A request on its way out. `trusted`: an administrator wrote its origin, and no redirect led to it."""

    request: httpx.Request
    origin: Origin
    trusted: bool
    headers: httpx.Headers

    def towards(self, address: IP) -> httpx.Request:
        """The same request to the very address that was checked; name and certificate stay those of the host."""
        extensions = dict(self.request.extensions)
        if self.origin.scheme == "https" and parsed(self.origin.host) is None:
            extensions["sni_hostname"] = self.origin.host
        return httpx.Request(
            self.request.method,
            self.request.url.copy_with(host=str(address)),
            headers=self.headers,
            stream=self.request.stream,
            extensions=extensions,
        )


@dataclass(frozen=True, slots=True)
class Gate:
    """The policy for the requests of one client, and the origins that its maker trusts."""

    policy: Policy
    trusted: frozenset[Origin]

    def leaving(self, request: httpx.Request) -> Leaving:
        """What is to be known of a request.

        Raises:
            EgressRefused: it is none of the web, or a redirect that takes more along than it should.
        """
        origin = Origin.of(request.url)
        first: Origin = request.extensions.setdefault(_FIRST, origin)
        if origin == first:
            return Leaving(request, origin, origin in self.trusted, request.headers)
        if first.scheme == "https" and origin.scheme == "http":
            raise EgressRefused(f"{first.shown} redirects to {origin.shown} without TLS; that is not followed")
        if request.method not in ("GET", "HEAD"):
            raise EgressRefused(f"{first.shown} redirects what is sent to it to {origin.shown}; that is not followed")
        kept = [(name, value) for name, value in request.headers.multi_items() if name.lower() in _HARMLESS]
        return Leaving(request, origin, trusted=False, headers=httpx.Headers(kept))

    def passed(self, leaving: Leaving, addresses: Sequence[IP]) -> Sequence[IP]:
        """The addresses to try, all of them checked.

        Raises:
            EgressRefused: one of them may not be reached.
        """
        self.policy.check(leaving.origin, addresses, trusted=leaving.trusted)
        return addresses[:ATTEMPTS]


def gate(policy: Policy, trusted: Iterable[str]) -> Gate:
    """The gate of a client that trusts the origins of these URLs."""
    return Gate(policy, frozenset(Origin.of(url) for url in trusted))
