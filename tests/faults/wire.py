"""A wire between a client and a server's unix socket that can be cut, jammed and broken in the middle of a message."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from pathlib import Path

from tests.listening import bound

_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104


class Mode(Enum):
    """What the wire does with connections, old and new."""

    PASS = auto()
    REFUSE = auto()
    """Nobody listens; what is connected stays connected."""
    HANG = auto()
    """New connections are accepted, and nothing is ever passed on in either direction."""
    RESET = auto()
    """Questions arrive; the connection is reset in the middle of the answer."""
    SAY = auto()
    """Every new connection is told `refusal`, as PostgreSQL would say it."""


class Wire:
    """Listens on a TCP port of its own and connects every client to the unix socket."""

    def __init__(self, target: Path) -> None:
        self._target = target
        # Bound and never listening: while the wire refuses, no other process is given the port.
        self._reserved = bound(0)
        self.port = self._reserved.getsockname()[1]
        self._listening: socket.socket | None = None
        self._links: dict[asyncio.Task[None], socket.socket] = {}
        self._passing = asyncio.Event()
        self.mode = Mode.REFUSE
        self.refusal = ("53300", "sorry, too many clients already")
        self.silent_to: bytes | None = None
        """Once: a question that holds these bytes arrives, and nothing more is answered on its connection."""
        self.lose_commit_of: bytes | None = None
        """Once: the commit of the transaction in which these bytes were sent arrives, and the connection is reset
        instead of its answer."""

    @property
    def links(self) -> int:
        """How many clients are connected."""
        return len(self._links)

    async def switch(self, mode: Mode) -> None:
        """From now on do this."""
        self.mode = mode
        if mode is Mode.HANG:
            self._passing.clear()
        else:
            self._passing.set()
        loop = asyncio.get_running_loop()
        if mode is Mode.REFUSE and self._listening is not None:
            loop.remove_reader(self._listening)
            # A process that is being started has a copy of the socket for a moment: closing alone would not end it.
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self._listening = None
        if mode is not Mode.REFUSE and self._listening is None:
            self._listening = bound(self.port)
            self._listening.listen(128)
            self._listening.setblocking(False)
            loop.add_reader(self._listening, self._accept, self._listening)

    async def cut(self) -> None:
        """Reset every connection."""
        links = list(self._links)
        for link in links:
            _abruptly(self._links[link])
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def close(self) -> None:
        await self.switch(Mode.REFUSE)
        await self.cut()
        self._reserved.close()

    def _accept(self, listening: socket.socket) -> None:
        # Neither asyncio's server nor `sock_accept`: cancelled while they accept, they lose the connection unclosed.
        with suppress(BlockingIOError):
            connection, _ = listening.accept()
            connection.setblocking(False)
            task = asyncio.create_task(self._serve(connection))
            self._links[task] = connection
            task.add_done_callback(lambda ended: self._links.pop(ended).close())

    async def _serve(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                if self.mode is Mode.SAY:
                    await self._refuse(reader, writer)
                else:
                    await self._link(reader, writer)
        finally:
            writer.transport.abort()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passing.wait()
        up_reader, up_writer = await asyncio.open_unix_connection(self._target)
        losing, silent = asyncio.Event(), asyncio.Event()
        pumps = [
            asyncio.create_task(self._ask(reader, up_writer, losing, silent)),
            asyncio.create_task(self._answer(up_reader, writer, losing, silent)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # First, as whoever cuts a link twice cuts short what is waited for here.
            up_writer.transport.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _ask(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter, losing: asyncio.Event, silent: asyncio.Event
    ) -> None:
        sought: bytes | None = None
        while data := await client.read(65_536):
            await self._passing.wait()
            if self.lose_commit_of is not None and self.lose_commit_of in data:
                sought = self.lose_commit_of
            if self.silent_to is not None and self.silent_to in data:
                self.silent_to = None
                silent.set()
            if sought is not None and sought == self.lose_commit_of and b"COMMIT" in data:
                self.lose_commit_of = None
                losing.set()
            server.write(data)
            await server.drain()

    async def _answer(
        self, server: asyncio.StreamReader, client: asyncio.StreamWriter, losing: asyncio.Event, silent: asyncio.Event
    ) -> None:
        while data := await server.read(65_536):
            await self._passing.wait()
            if self.mode is Mode.RESET or losing.is_set():
                if not losing.is_set():
                    client.write(data[: len(data) // 2])
                    await client.drain()
                _reset(client)
                return
            if silent.is_set():
                continue
            client.write(data)
            await client.drain()

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (length,) = struct.unpack("!I", await reader.readexactly(4))
            body = await reader.readexactly(length - 4)
            if struct.unpack("!I", body[:4])[0] not in (_SSL_REQUEST, _GSS_REQUEST):
                break
            writer.write(b"N")
        code, message = self.refusal
        fields = f"SFATAL\0VFATAL\0C{code}\0M{message}\0\0".encode()
        writer.write(b"E" + struct.pack("!I", len(fields) + 4) + fields)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


def _abruptly(connection: socket.socket) -> None:
    """Let closing be a reset rather than an orderly end."""
    if connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _reset(writer: asyncio.StreamWriter) -> None:
    _abruptly(writer.get_extra_info("socket"))
    writer.transport.abort()


@asynccontextmanager
async def wired(target: Path) -> AsyncIterator[Wire]:
    """A wire to a server's unix socket that passes everything on."""
    wire = Wire(target)
    await wire.switch(Mode.PASS)
    try:
        yield wire
    finally:
        await wire.close()
