"""How every web server of ours is set up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from openmemory.config.settings import Settings
from openmemory.server.descriptors import room_for
from openmemory.server.http_bounds import Bounds, bounded


def public(app: ASGIApp, settings: Settings, *, patience: int) -> uvicorn.Config:
    """For clients of any kind: nobody holds the server up, and proxies are believed only if they are named."""
    proxies = list(settings.http.trusted_proxies)
    bounds = Bounds(
        settings.http.header_timeout,
        settings.http.body_timeout,
        settings.http.write_timeout,
        room_for(settings.limits.connections),
    )
    return _quiet(app, patience, http=bounded(bounds), proxy_headers=bool(proxies), forwarded_allow_ips=proxies)


def private(app: ASGIApp, *, patience: int) -> uvicorn.Config:
    """For our own processes."""
    return _quiet(app, patience, http="httptools", proxy_headers=False)


def _quiet(app: ASGIApp, patience: int, **more: Any) -> uvicorn.Config:
    """Quiet, and with `patience` seconds for open requests when it is to end."""
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        # Longer than clients keep idle connections, so that it is never the server that drops one.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=patience,
        **more,
    )


class Server(uvicorn.Server):
    """A web server that leaves signals to us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
