"""The listening sockets, bound before anything else is opened, so that a taken port costs nothing."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence

from openmemory.errors import SetupError

ANOTHER_PORT = "choose another port with --port of `openmemory serve`, or with OPENMEMORY_PORT"

_BACKLOG = 2048
_LOOPBACK = "127.0.0.1"
_LOOPBACK_V6 = "::1"
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
_Address = tuple[socket.AddressFamily, str]


class PortInUse(SetupError):
    """Raised when another process listens on the port."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Returns listening sockets on every address of the host, all with the same port; port 0 takes a free one.

    127.0.0.1 includes ::1, because many clients try the IPv6 address of `localhost` first.

    Connections that come before the service is ready wait in the backlog instead of being refused.

    Raises:
        PortInUse: another process listens there.
        SetupError: the host or the port cannot be used.
    """
    sockets: list[socket.socket] = []
    try:
        addresses = _resolve(host)
        free = port == 0
        for family, address in addresses:
            try:
                listener = _open(family, address, port, only_v6=len(addresses) > 1)
            except OSError as error:
                if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) and len(addresses) > 1:
                    continue  # such as ::1 of localhost where IPv6 is switched off
                if error.errno == errno.EADDRINUSE and free and sockets:
                    continue  # nobody chose this port, and its first address serves
                raise _listen_error(error, host, port) from error
            port = listener.getsockname()[1]
            sockets.append(listener)
        if not sockets:
            raise SetupError(f"host: {host!r} must be an address of this machine")
    except BaseException:
        for listener in sockets:
            listener.close()
        raise
    return sockets


def url_of(host: str, sockets: Sequence[socket.socket]) -> str:
    """Returns the URL under which clients on this machine reach the sockets."""
    port = sockets[0].getsockname()[1]
    host = _WILDCARDS.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _resolve(host: str) -> list[_Address]:
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise SetupError(f"host: {host!r} cannot be resolved; use an address such as 127.0.0.1") from None
    if host == _LOOPBACK:
        return [(socket.AF_INET, _LOOPBACK), (socket.AF_INET6, _LOOPBACK_V6)]
    return list(dict.fromkeys((family, str(where[0])) for family, _, _, _, where in addresses))


def _open(family: socket.AddressFamily, address: str, port: int, *, only_v6: bool) -> socket.socket:
    # The explicit protocol makes asyncio turn Nagle's algorithm off; with it an answer takes 40 ms longer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(only_v6))
        listener.bind((address, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _listen_error(error: OSError, host: str, port: int) -> SetupError:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(f"port {port} of {host} is taken by another program; {ANOTHER_PORT}")
    if error.errno == errno.EADDRNOTAVAIL:
        return SetupError(f"host: {host!r} must be an address of this machine")
    if error.errno == errno.EACCES:
        return SetupError(f"port {port}: this account may only use ports above 1023; {ANOTHER_PORT}")
    return SetupError(f"cannot listen on {host} port {port}: {error.strerror}")
