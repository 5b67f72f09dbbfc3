"""The configuration of our web servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from openmemory.config.settings import Settings
from openmemory.doors.server.descriptors import room_for
from openmemory.doors.server.http_bounds import BoundedProtocol, Bounds, bounded_protocol
from openmemory.doors.server.proxies import TrustedProxies

_CHECKED_EVERY = 5
"""Ticks of the server, ten a second, from one check of the connections to the next."""


def public(app: ASGIApp, settings: Settings, *, patience: int) -> uvicorn.Config:
    """Returns the configuration for clients of any kind: no client can hold the server up, and only named proxies are
    trusted."""
    proxies = list(settings.http.trusted_proxies)
    bounds = Bounds(
        settings.http.header_timeout,
        settings.http.body_timeout,
        settings.http.write_timeout,
        room_for(settings.limits.connections),
    )
    app = TrustedProxies(app, proxies) if proxies else app  # type: ignore[arg-type,assignment]
    return _quiet(app, patience, http=bounded_protocol(bounds))


def private(app: ASGIApp, *, patience: int) -> uvicorn.Config:
    """Returns the configuration for our own processes."""
    return _quiet(app, patience, http="httptools")


def _quiet(app: ASGIApp, patience: int, **more: Any) -> uvicorn.Config:
    """Returns a configuration with little logging and `patience` seconds for open requests when the server stops."""
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        proxy_headers=False,  # `TrustedProxies` reads them
        lifespan="on",
        # Longer than clients keep idle connections, so that it is never the server that drops one.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=patience,
        **more,
    )


class Server(uvicorn.Server):
    """A web server that does not handle signals itself, and ends connections of clients that are too slow."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def on_tick(self, counter: int) -> bool:
        """Runs ten times a second. Returns True if the server must stop."""
        if counter % _CHECKED_EVERY == 0:
            loop = asyncio.get_running_loop()
            for connection in self.server_state.connections:
                if isinstance(connection, BoundedProtocol):
                    loop.call_soon(connection.check)  # so that an error ends no more than one check
        return await super().on_tick(counter)
