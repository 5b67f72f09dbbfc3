"""An ASGI application on a TCP socket of this process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

import uvicorn

from tests.listening import stop_accepting


class _Server(uvicorn.Server):
    """One that leaves the signals to pytest."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """Serve on a free port until the block ends, with the lifespan around it; yields the URL."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        server = _Server(uvicorn.Config(app, lifespan="on", log_config=None, timeout_graceful_shutdown=5))
        running = asyncio.create_task(server.serve([listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            await stop_accepting([listening])
            server.should_exit = True
            await running
