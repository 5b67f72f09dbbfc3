"""How every web server of ours is set up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp


def configuration(app: ASGIApp, *, patience: int) -> uvicorn.Config:
    """Quiet, and with `patience` seconds for open requests when it is to end."""
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        http="httptools",
        ws="none",
        lifespan="on",
        # Longer than clients keep idle connections, so that it is never the server that drops one.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=patience,
    )


class Server(uvicorn.Server):
    """A web server that leaves signals to us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
