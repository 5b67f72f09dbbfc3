"""The built-in index for several processes: the owner of the data folder serves it to its workers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

from openmemory.doors.server.web import Server, private
from openmemory.embedded import sockets
from openmemory.stores import INDEX_FOLDER, Stores

_SOCKET = "index.sock"
_PURPOSE = "-index"


@asynccontextmanager
async def hosted_index(stores: Stores) -> AsyncIterator[Stores]:
    """Serves the index of the data folder on a private unix socket while the block runs. Yields the stores, which name
    the socket."""
    from openmemory.index.engine.rest_api import QdrantRestApi

    front = QdrantRestApi(stores.folder / INDEX_FOLDER)
    server = Server(private(front, patience=1))
    with _socket_folder(stores.folder) as folder, _listening(path := folder / _SOCKET) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]), name="index")
        try:
            while not server.started:
                if serving.done():
                    await serving
                    raise RuntimeError("the built-in index cannot be served")
                await asyncio.sleep(0.01)
            yield replace(stores, index_socket=path)
        finally:
            server.should_exit = True
            await serving


@contextmanager
def _socket_folder(data_folder: Path) -> Iterator[Path]:
    folder = sockets.socket_folder(data_folder, None, _PURPOSE)
    sockets.create(folder, None)
    try:
        yield folder
    finally:
        sockets.remove(folder, names=[_SOCKET])


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    path.unlink(missing_ok=True)  # left by an owner that was killed
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(128)
        listener.setblocking(False)
        yield listener
