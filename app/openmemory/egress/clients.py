"""HTTP clients for every outgoing request of the service: keys, models, hooks."""

from __future__ import annotations

import json
import ssl
from asyncio import timeout as deadline
from collections.abc import Collection, Iterable, Mapping
from contextlib import aclosing
from functools import cached_property
from typing import Any

import httpx

from openmemory.config.addresses import parsed
from openmemory.egress.gate import gate
from openmemory.egress.policy import EgressPolicy, Origin
from openmemory.egress.transports import AsyncTransport, Resolve, Transport, addresses_of, look_up

TIMEOUT = httpx.Timeout(10.0, connect=5.0)
LOOK_UP = 3.0
"""Seconds that a name lookup may take before anything is sent."""

REDIRECTS = 3
DOCUMENT = 1_000_000
"""The maximum size of a JSON document in bytes."""


class NoDocument(httpx.RequestError):
    """The response is not the small JSON document that was requested."""


class Egress:
    """Creates clients whose requests all pass one policy, and never use a proxy from the environment.

    `trusted` are URLs that an administrator configured: a client may reach their origins even if they are private.
    Addresses where clouds hand out credentials are refused even then, unless `egress.allow` contains them. A redirect
    inherits nothing: not the trust, no header that could be a key, and no body.
    """

    def __init__(
        self, allow: Iterable[str] = (), *, resolve: Resolve = look_up, tls: ssl.SSLContext | None = None
    ) -> None:
        self.policy = EgressPolicy.of(allow)
        self._resolve = resolve
        self._given_tls = tls

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        # The only value taken from the environment: SSL_CERT_FILE, with which companies configure their own authority.
        return self._given_tls or httpx.create_ssl_context(trust_env=True)

    async def check(self, url: str, trusted: Iterable[str] = ()) -> None:
        """Check an address before anything is sent to it. A name is resolved and checked again when it is used.

        A name that cannot be resolved now passes, because nothing can be sent to it either.

        Raises:
            EgressRefused: it is not a web URL, or the policy does not allow requests to it.
        """
        transport = gate(self.policy, trusted)
        origin = Origin.of(url)
        try:
            async with deadline(LOOK_UP):
                addresses = await addresses_of(origin, self._resolve)
        except (TimeoutError, OSError):
            return
        self.policy.check(origin, addresses, trusted=origin in transport.trusted)

    def check_literal(self, address: str, *, trusted: bool) -> None:
        """Check an address that is known without a name server. Names pass, for they are checked on use.

        Raises:
            EgressRefused: it is not a web URL, or the policy does not allow requests to it.
        """
        origin = Origin.of(address)
        if literal := parsed(origin.host):
            self.policy.check(origin, [literal], trusted=trusted)

    def client(
        self, trusted: Iterable[str] = (), *, timeout: httpx.Timeout | float = TIMEOUT, redirects: bool = False
    ) -> httpx.Client:
        """Returns a client for use in threads."""
        return httpx.Client(transport=self.transport(trusted), **_options(timeout, redirects=redirects))

    def async_client(
        self, trusted: Iterable[str] = (), *, timeout: httpx.Timeout | float = TIMEOUT, redirects: bool = False
    ) -> httpx.AsyncClient:
        """Returns a client for the event loop."""
        transport = AsyncTransport(self.policy, trusted, resolve=self._resolve, tls=self._tls)
        return httpx.AsyncClient(transport=transport, **_options(timeout, redirects=redirects))

    def transport(self, trusted: Iterable[str] = ()) -> Transport:
        """Returns the transport of `client`, for libraries that create their own client."""
        return Transport(self.policy, trusted, resolve=self._resolve, tls=self._tls)


def _options(timeout: httpx.Timeout | float, *, redirects: bool) -> dict[str, Any]:
    return {"timeout": timeout, "trust_env": False, "follow_redirects": redirects, "max_redirects": REDIRECTS}


async def small_json(
    client: httpx.AsyncClient,
    url: str,
    *,
    form: Mapping[str, str] | None = None,
    auth: tuple[str, str] | None = None,
    statuses: Collection[int] = (200,),
    limit: int = DOCUMENT,
    seconds: float = 10.0,
) -> dict[str, Any]:
    """Get a JSON object of bounded size within a bounded time, however slowly it is sent.

    `form`: these fields are posted, and no redirect is followed. `auth`: name and password of HTTP Basic
    authentication. `statuses`: the accepted ones.

    Raises:
        httpx.HTTPError: there is no such response; the message contains only host, status and reason.
    """
    host = httpx.URL(url).host
    # Uncompressed, because a megabyte may expand to a gigabyte.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    request = client.build_request("GET" if form is None else "POST", url, headers=headers, data=form)
    try:
        async with deadline(seconds):
            response = await client.send(
                request,
                stream=True,
                auth=auth and httpx.BasicAuth(*auth),
                follow_redirects=client.follow_redirects and form is None,
            )
            async with aclosing(response):
                body = await _body(response, host, statuses, limit)
    except TimeoutError:
        raise httpx.ReadTimeout(f"{host}: no whole answer within {seconds:g} s") from None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise NoDocument(f"{host}: the response must be JSON") from None
    if not isinstance(document, dict):
        raise NoDocument(f"{host}: the response must be a JSON object")
    return document


async def _body(response: httpx.Response, host: str, statuses: Collection[int], limit: int) -> bytes:
    if response.status_code not in statuses:
        message = f"{host}: answered {response.status_code}"
        raise httpx.HTTPStatusError(message, request=response.request, response=response)
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise NoDocument(f"{host}: the response must not be compressed")
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > limit:
            raise NoDocument(f"{host}: the response is larger than {limit:,} bytes")
    return bytes(body)
