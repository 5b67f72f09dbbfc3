"""A listening socket for tests that need exactly one, and the end of accepting."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

from openmemory.doors.server.sockets import listen


def one_socket() -> socket.socket:
    """Returns a socket that listens on a free port of 127.0.0.1."""
    first, *others = listen("127.0.0.1", 0)
    for other in others:
        other.close()
    return first


async def stop_accepting(listening: Iterable[socket.socket | asyncio.trsock.TransportSocket]) -> None:
    """Accept no more on these sockets of asyncio's servers, to be awaited before the servers are closed: one that is
    closed while it accepts loses the connection without closing it."""
    for one in listening:
        asyncio.get_running_loop().remove_reader(one.fileno())
    await asyncio.sleep(0)


def bound(port: int) -> socket.socket:
    """A socket on a port of this machine, beside others of ours on the same; 0: a free one."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    return made
