"""Decides about each request before it leaves: whether its origin is trusted, and what may be sent to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import httpx

from openmemory.config.addresses import IP, parsed
from openmemory.egress.policy import EgressPolicy, EgressRefused, Origin

ATTEMPTS = 4
"""The maximum number of addresses of one host to try, one after the other."""

_FIRST = "openmemory_first_origin"
"""The request extension that holds the origin of the original request; httpx passes extensions on to redirects."""

_HARMLESS = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent"}
)
"""Headers that another origin may see. httpx removes only `Authorization` on redirects, and keys have many names."""


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """An outgoing request. `trusted`: an administrator configured its origin, and it was not reached by a redirect."""

    request: httpx.Request
    origin: Origin
    trusted: bool
    headers: httpx.Headers

    def towards(self, address: IP) -> httpx.Request:
        """Returns the same request to the exact address that was checked. TLS still uses the name of the host."""
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
    """The policy for the requests of one client, and the origins that its creator trusts."""

    policy: EgressPolicy
    trusted: frozenset[Origin]

    def outgoing(self, request: httpx.Request) -> OutgoingRequest:
        """Classify a request.

        Raises:
            EgressRefused: it is not to a web URL, or is a redirect that would pass on more than it should.
        """
        origin = Origin.of(request.url)
        first: Origin = request.extensions.setdefault(_FIRST, origin)
        if origin == first:
            return OutgoingRequest(request, origin, origin in self.trusted, request.headers)
        if first.scheme == "https" and origin.scheme == "http":
            raise EgressRefused(f"{first.shown} redirects to {origin.shown} without TLS, which is not followed")
        if request.method not in ("GET", "HEAD"):
            raise EgressRefused(
                f"{first.shown} redirects a request with a body to {origin.shown}, which is not followed"
            )
        harmless = [(name, value) for name, value in request.headers.multi_items() if name.lower() in _HARMLESS]
        return OutgoingRequest(request, origin, trusted=False, headers=httpx.Headers(harmless))

    def towards(self, outgoing: OutgoingRequest, addresses: Sequence[IP]) -> list[httpx.Request]:
        """Returns the requests to try, one after the other, to addresses that were all checked.

        Raises:
            EgressRefused: one of the addresses may not be reached.
            ConnectError: there is none.
        """
        if not addresses:
            raise httpx.ConnectError(f"{outgoing.origin.shown}: the name has no address")
        self.policy.check(outgoing.origin, addresses, trusted=outgoing.trusted)
        return [outgoing.towards(address) for address in addresses[:ATTEMPTS]]


def gate(policy: EgressPolicy, trusted: Iterable[str]) -> Gate:
    """Returns the gate of a client that trusts the origins of these URLs."""
    return Gate(policy, frozenset(Origin.of(url) for url in trusted))
