"""A listening socket for tests that need exactly one."""

from __future__ import annotations

import socket

from openmemory.server.sockets import listen


def one_socket() -> socket.socket:
    """Returns a socket that listens on a free port of 127.0.0.1."""
    first, *others = listen("127.0.0.1", 0)
    for other in others:
        other.close()
    return first
