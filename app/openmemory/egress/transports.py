"""httpx transports that resolve a host once, check the addresses, and connect to exactly those."""

from __future__ import annotations

import socket
import ssl
from asyncio import timeout as deadline
from collections.abc import Callable, Iterable, Sequence

import httpx

from openmemory.config.addresses import IP, parsed
from openmemory.egress.gate import gate
from openmemory.egress.policy import EgressPolicy, Origin
from openmemory.resilience.daemon_threads import in_daemon

Resolve = Callable[[str, int], Iterable[str]]
"""Resolves a name to the addresses for a port. Blocking."""

_ONCE = httpx.Limits(max_keepalive_connections=0)
"""Connections are pooled by address. One that was opened for another name, with its certificate, must not be reused."""


def look_up(host: str, port: int) -> list[str]:
    """Returns the addresses of a name in the order of the system's preference.

    Raises:
        OSError: the name does not exist, or no name server answers.
    """
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class Transport(httpx.BaseTransport):
    """Sends requests that the policy allows. Connections to trusted origins are kept open, in a pool per origin."""

    def __init__(self, policy: EgressPolicy, trusted: Iterable[str], *, resolve: Resolve, tls: ssl.SSLContext) -> None:
        self._gate = gate(policy, trusted)
        self._resolve = resolve
        self._once = httpx.HTTPTransport(verify=tls, limits=_ONCE)
        self._kept = {origin: httpx.HTTPTransport(verify=tls) for origin in self._gate.trusted}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Resolve, check, and send.

        Raises:
            EgressRefused: the policy does not allow the request.
        """
        outgoing = self._gate.outgoing(request)
        try:
            addresses = _addresses(outgoing.origin, self._resolve)
        except OSError as error:
            raise _unknown(outgoing.origin, error) from error
        inner = self._kept[outgoing.origin] if outgoing.trusted else self._once
        *others, last = self._gate.towards(outgoing, addresses)
        for other in others:
            try:
                return inner.handle_request(other)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return inner.handle_request(last)

    def close(self) -> None:
        """Close every connection."""
        for inner in (self._once, *self._kept.values()):
            inner.close()


class AsyncTransport(httpx.AsyncBaseTransport):
    """Like `Transport`, on an event loop; names are resolved in a thread."""

    def __init__(self, policy: EgressPolicy, trusted: Iterable[str], *, resolve: Resolve, tls: ssl.SSLContext) -> None:
        self._gate = gate(policy, trusted)
        self._resolve = resolve
        self._once = httpx.AsyncHTTPTransport(verify=tls, limits=_ONCE)
        self._kept = {origin: httpx.AsyncHTTPTransport(verify=tls) for origin in self._gate.trusted}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Resolve, check, and send.

        Raises:
            EgressRefused: the policy does not allow the request.
        """
        outgoing = self._gate.outgoing(request)
        inner = self._kept[outgoing.origin] if outgoing.trusted else self._once
        try:
            async with deadline(request.extensions.get("timeout", {}).get("connect")):
                addresses = await addresses_of(outgoing.origin, self._resolve)
        except TimeoutError:
            raise httpx.ConnectTimeout(f"{outgoing.origin.shown}: the name is not found in time") from None
        except OSError as error:
            raise _unknown(outgoing.origin, error) from error
        *others, last = self._gate.towards(outgoing, addresses)
        for other in others:
            try:
                return await inner.handle_async_request(other)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await inner.handle_async_request(last)

    async def aclose(self) -> None:
        """Close every connection."""
        for inner in (self._once, *self._kept.values()):
            await inner.aclose()


async def addresses_of(origin: Origin, resolve: Resolve) -> Sequence[IP]:
    """Returns the addresses of a host, resolved in a thread.

    Raises:
        OSError: the name does not exist, or no name server answers.
    """
    if parsed(origin.host) is not None:
        return _addresses(origin, resolve)
    return await in_daemon(lambda: _addresses(origin, resolve), name="look-up")


def _addresses(origin: Origin, resolve: Resolve) -> list[IP]:
    if (literal := parsed(origin.host)) is not None:
        return [literal]
    addresses = (parsed(text) for text in dict.fromkeys(resolve(origin.host, origin.port)))
    return [address for address in addresses if address is not None]


def _unknown(origin: Origin, error: OSError) -> httpx.ConnectError:
    return httpx.ConnectError(f"{origin.shown}: the name cannot be looked up: {error.strerror or error}")
