"""`openmemory mcp` as a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.journeys.service import Service
from tests.warm import HOME, clean_environment


class Bridge:
    """`openmemory mcp` with its standard input and output in our hands."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    async def say(self, line: bytes) -> None:
        self._in.write(line + b"\n")
        await self._in.drain()

    async def hear(self) -> Any:
        async with asyncio.timeout(40):
            return json.loads(await self._out.readline())

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        await self.say(json.dumps({"jsonrpc": "2.0"} | message).encode())
        answer: dict[str, Any] = await self.hear()
        assert answer["id"] == message["id"]
        return answer

    async def end(self) -> int:
        self._in.close()
        return await asyncio.wait_for(self.process.wait(), 20)


@asynccontextmanager
async def bridged(folder: str, user: str) -> AsyncIterator[Bridge]:
    """The command, started for a user of the service on a data folder."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "openmemory", "mcp", "--client", "claude", "--user", user, "--data-dir", folder),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=clean_environment(), limit=1 << 24, cwd=HOME,
    )  # fmt: skip
    try:
        yield Bridge(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # its pipe warns when it is left to the collector


@asynccontextmanager
async def assistant(
    service: Service, user: str, folder: Path, toolsets: str = "context,notes,projects", *, app: str = "claude"
) -> AsyncIterator[Any]:
    """A client of a bridge that was started in this folder: `await call(tool, …)` returns the text."""
    arguments = ["--client", app, "--user", user, "--data-dir", service.folder, "--toolsets", toolsets]
    bridge = StdioServerParameters(
        command=sys.executable, args=["-m", "openmemory", "mcp", *arguments], cwd=folder, env=clean_environment()
    )
    async with Client(stdio_client(bridge), mode="legacy", read_timeout_seconds=30) as client:

        async def call(name: str, /, **given: Any) -> str:
            result = await client.call_tool(name, given)
            text = str(result.content[0].text)
            assert not result.is_error, text
            return text

        yield call
