"""A service of its own process on a PostgreSQL behind a wire, and every sort of request to it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
from sqlalchemy.engine import make_url

from openmemory.embedded.folder import DataFolder
from openmemory.embedded.postgres import EmbeddedPostgres
from tests.clusters import furnish
from tests.faults.wire import Wire, wired
from tests.journeys.service import Service

CONNECT, STATEMENT = 1, 3
"""Seconds of `database.connect_timeout` and `database.statement_timeout`."""

PATIENCE = 3 * CONNECT + 1.5
"""Seconds within which every request is answered whatever PostgreSQL does: a free connection, a statement's first
silence, a sign of life that does not come, and what a busy machine adds."""

USER = "outage"
_VERSION = "2026-07-28"


@dataclass
class Stage:
    """What a test of outages plays with."""

    server: EmbeddedPostgres
    wire: Wire
    service: Service
    http: httpx.AsyncClient
    admin: psycopg.AsyncConnection[Any]

    async def sql(self, statement: str) -> list[Any]:
        """Ask PostgreSQL itself, as its superuser, whatever the wire does."""
        try:
            cursor = await self.admin.execute(statement.encode())
        except psycopg.OperationalError:
            self.admin = await superuser(self.server)
            cursor = await self.admin.execute(statement.encode())
        return await cursor.fetchall() if cursor.description else []

    async def counts(self) -> dict[str, int]:
        """Rows of what a write consists of."""
        tables = ("memories", "memory_revisions", "memory_status_history", "memory_access_logs")
        return {table: (await self.sql(f"SELECT count(*) FROM {table}"))[0][0] for table in tables}

    async def connections(self) -> int:
        """How many connections the service has, as PostgreSQL sees it."""
        asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'openmemory'"
        return (await self.sql(asked))[0][0]

    def process(self) -> psutil.Process:
        """The service's process."""
        return psutil.Process(self.service.process.pid)


async def superuser(server: EmbeddedPostgres) -> psycopg.AsyncConnection[Any]:
    """A connection past the wire."""
    return await psycopg.AsyncConnection.connect(
        host=make_url(server.url).query["host"], user="postgres", dbname="openmemory", autocommit=True
    )


def socket_of(server: EmbeddedPostgres) -> Path:
    """The server's unix socket."""
    return Path(str(make_url(server.url).query["host"])) / ".s.PGSQL.5432"


def settings_for(wire: Wire) -> dict[str, str]:
    """The environment of a service behind the wire."""
    return {
        "OPENMEMORY_DATABASE_URL": f"postgresql://openmemory@127.0.0.1:{wire.port}/openmemory",
        "OPENMEMORY_DATABASE_CONNECT_TIMEOUT": str(CONNECT),
        "OPENMEMORY_DATABASE_STATEMENT_TIMEOUT": str(STATEMENT),
        "OPENMEMORY_RATES_SAVES": "0",
        "OPENMEMORY_RATES_SEARCHES": "0",
    }


@asynccontextmanager
async def staged(folder: Path, **environment: str) -> AsyncIterator[Stage]:
    """A stage with its data in `folder`, and a service with this environment besides."""
    owned = DataFolder.claim(furnish(folder / "server"), listen="")
    server = EmbeddedPostgres(owned)
    await server.start()
    try:
        async with wired(socket_of(server)) as wire:
            behind = settings_for(wire) | environment
            service = Service("--data-dir", str(folder / "service"), "--port", "0", **behind)
            try:
                url = await asyncio.to_thread(service.ready)
                async with httpx.AsyncClient(base_url=url, timeout=60) as http:
                    stage = Stage(server, wire, service, http, await superuser(server))
                    try:
                        yield stage
                    finally:
                        await stage.admin.close()
            finally:
                await asyncio.to_thread(service.close)
    finally:
        await server.stop()
        owned.release()


Request = Callable[[Stage, str], Awaitable[httpx.Response]]
"""One sort of request, about the memory of that id."""


def rest(method: str, path: str, **options: Any) -> Request:
    """A request over REST."""

    async def ask(stage: Stage, memory: str) -> httpx.Response:
        body = options.get("json")
        if body is not None and "text" in body:
            body = body | {"text": f"{body['text']} {os.urandom(4).hex()}"}
        if body is not None and "memory_ids" in body:
            body = body | {"memory_ids": [memory]}
        url = path.replace("{id}", memory)
        return await stage.http.request(method, url, params=options.get("params"), json=body)

    return ask


def mcp(tool: str, **arguments: Any) -> Request:
    """A call of a tool over streamable HTTP."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": _VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "outage", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {"MCP-Protocol-Version": _VERSION, "Mcp-Method": "tools/call", "Mcp-Name": tool}
    headers["Accept"] = "application/json, text/event-stream"

    async def ask(stage: Stage, memory: str) -> httpx.Response:
        given = {name: [memory] if value == ["{id}"] else value for name, value in arguments.items()}
        if given.get("memory_id") == "{id}":
            given["memory_id"] = memory
        if "text" in given:
            given["text"] = f"{given['text']} {os.urandom(4).hex()}"
        params = {"name": tool, "arguments": given, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return await stage.http.post(f"/mcp/claude/http/{USER}", json=message, headers=headers)

    return ask


_USER = {"user_id": USER}
REQUESTS: dict[str, Request] = {
    "REST add": rest("POST", "/api/v1/memories", json=_USER | {"text": "Tea is drunk at four.", "infer": False}),
    "REST list": rest("GET", "/api/v1/memories", params=_USER),
    "REST get": rest("GET", "/api/v1/memories/{id}", params=_USER),
    "REST history": rest("GET", "/api/v1/memories/{id}/history", params=_USER),
    "REST search": rest("POST", "/api/v1/memories/search", json=_USER | {"query": "when is tea drunk"}),
    "REST update": rest("PUT", "/api/v1/memories/{id}", json=_USER | {"memory_content": "Tea is drunk at five."}),
    "REST archive": rest("POST", "/api/v1/memories/actions/archive", json=_USER | {"memory_ids": ["{id}"]}),
    "REST restore": rest("POST", "/api/v1/memories/actions/restore", json=_USER | {"memory_ids": ["{id}"]}),
    "REST apps": rest("GET", "/api/v1/apps", params=_USER),
    "REST grants": rest("GET", "/api/v1/grants", params=_USER),
    "REST sync": rest("POST", "/api/v1/sync", params={"dry_run": "true"}),
    "MCP add": mcp("add_memories", text="Coffee is drunk at nine.", infer=False),
    "MCP search": mcp("search_memory", query="when is coffee drunk"),
    "MCP list": mcp("list_memories"),
    "MCP update": mcp("update_memory", memory_id="{id}", text="Coffee is drunk at ten."),
    "MCP delete": mcp("delete_memories", memory_ids=["{id}"]),
    "MCP restore": mcp("restore_memories", memory_ids=["{id}"]),
}


def refused_in_words(answer: httpx.Response) -> bool:
    """True if the answer says that the database is away, or that a sync of the service is running."""
    if answer.status_code == 409:
        return bool(answer.json()["error"] == "sync_running")
    if answer.status_code == 503:
        body = answer.json()
        return body["error"].startswith("database_") and int(answer.headers["retry-after"]) >= 1
    if answer.status_code == 200 and "result" in (body := answer.json()):
        words = body["result"]["content"][0]["text"]
        return body["result"].get("isError", False) and "currently unavailable" in words
    return False


def served(answer: httpx.Response) -> bool:
    """Whether the answer is what was asked for, or that the service's own sync is at it."""
    if answer.status_code == 409:
        return bool(answer.json()["error"] == "sync_running")
    return answer.is_success and not answer.json().get("result", {}).get("isError", False)


async def timed(work: Awaitable[httpx.Response]) -> tuple[httpx.Response, float]:
    """The answer and the seconds it took."""
    started = time.perf_counter()
    answer = await work
    return answer, time.perf_counter() - started
