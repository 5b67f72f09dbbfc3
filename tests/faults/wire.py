"""A wire between a client and a server's unix socket that can be cut, jammed and broken in the middle of a message."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from pathlib import Path

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
        self._server: asyncio.Server | None = None
        self._links: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._passing = asyncio.Event()
        self.mode = Mode.REFUSE
        self.port = 0
        self.refusal = ("53300", "sorry, too many clients already")
        self.accepted = 0

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
        if mode is Mode.REFUSE and self._server is not None:
            self._server.close()
            self._server = None
        if mode is not Mode.REFUSE and self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Reset every connection."""
        links = list(self._links)
        for link in links:
            _reset(self._links[link])
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def close(self) -> None:
        await self.switch(Mode.REFUSE)
        await self.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.accepted += 1
        self._links[task] = writer
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                if self.mode is Mode.SAY:
                    await self._refuse(reader, writer)
                else:
                    await self._link(reader, writer)
        finally:
            del self._links[task]
            writer.transport.abort()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passing.wait()
        up_reader, up_writer = await asyncio.open_unix_connection(self._target)
        pumps = [
            asyncio.create_task(self._pump(reader, up_writer, answers=False)),
            asyncio.create_task(self._pump(up_reader, writer, answers=True)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            up_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await reader.read(65_536):
            await self._passing.wait()
            if answers and self.mode is Mode.RESET:
                writer.write(data[: len(data) // 2])
                await writer.drain()
                _reset(writer)
                return
            writer.write(data)
            await writer.drain()

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


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset rather than an orderly end."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
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
