"""Two processes on one PostgreSQL: an SSE session at one of them, its messages at the other."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from openmemory.config.settings import Settings
from openmemory.database.granted import most_connections
from openmemory.errors import Unavailable
from openmemory.services import Services, open_services
from openmemory.sessions import relay
from openmemory.stores import Stores, open_stores
from tests.clusters import furnish
from tests.doors.mcp.conftest import ACCEPT, serving
from tests.doors.mcp.streams import Stream, stream_of, tool
from tests.journeys.service import Service

Eventually = Callable[..., Awaitable[None]]

CUT = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = user AND pid <> pg_backend_pid()"


@dataclass(frozen=True)
class Pair:
    """Two applications that know of each other only through PostgreSQL."""

    here: httpx.AsyncClient
    there: httpx.AsyncClient
    services: Services

    def stream(self, user: str) -> Any:
        return stream_of(self.here, f"/mcp/cursor/sse/{user}")

    async def rows(self, statement: str, **values: Any) -> list[Any]:
        async with self.services.database.statement() as tx:
            return list((await tx.execute(text(statement), values)).all())

    async def post(self, stream: Stream, message: dict[str, Any], where: str = "") -> httpx.Response:
        """Send a message of the session to the process that does not hold it."""
        return await self.there.post(where or stream.messages, json={"jsonrpc": "2.0"} | message)

    async def answer(self, stream: Stream, message: dict[str, Any]) -> dict[str, Any]:
        accepted = await self.post(stream, message)
        assert accepted.status_code == 202, accepted.text
        body: dict[str, Any] = json.loads((await stream.event())[1])
        assert body["id"] == message["id"]
        return body


@pytest.fixture(scope="module")
async def stores(short_folder: Path) -> AsyncIterator[Stores]:
    """A PostgreSQL of its own, for several processes."""
    async with open_stores(Settings(data_dir=str(furnish(short_folder / "relay"))), workers=4) as (_, opened):
        yield opened


@pytest.fixture(scope="module")
async def pair(stores: Stores, short_folder: Path) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        clients, services = [], []
        for name in ("here", "there"):
            folder = short_folder / f"relay-{name}"
            folder.mkdir()
            opened = await stack.enter_async_context(
                open_services(Settings(), stores=Stores(folder, stores.database, shared=True))
            )
            url = await stack.enter_async_context(serving(opened))
            client = httpx.AsyncClient(base_url=url, headers=ACCEPT, timeout=30)
            clients.append(await stack.enter_async_context(client))
            services.append(opened)
        yield Pair(*clients, services[0])


@contextmanager
def another_process(stores: Stores, folder: Path) -> Iterator[Service]:
    """A service process on the same PostgreSQL."""
    service = Service("--data-dir", str(folder), "--port", "0", OPENMEMORY_DATABASE_URL=stores.database)
    try:
        service.ready()
        yield service
    finally:
        service.close()


@asynccontextmanager
async def held_at(service: Service, user: str) -> AsyncIterator[Stream]:
    """A session that a process holds until it is killed, at the latest when the block ends."""
    async with httpx.AsyncClient(base_url=service.ready(), timeout=30) as client:
        with suppress(httpx.TransportError):
            async with stream_of(client, f"/mcp/cursor/sse/{user}") as stream:
                yield stream


def listed(answer: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(answer["result"]["content"][0]["text"])
    return found


def refused(answer: httpx.Response) -> bool:
    return answer.status_code == 404 and answer.json()["error"] == "session_not_found"


async def shake_hands_elsewhere(pair: Pair, stream: Stream) -> None:
    client = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    await pair.answer(stream, {"id": 0, "method": "initialize", "params": {"protocolVersion": "2024-11-05"} | client})
    assert (await pair.post(stream, {"method": "notifications/initialized"})).status_code == 202


async def test_a_message_at_another_process_is_answered_on_the_stream_as_the_sessions_user(
    pair: Pair, new_user: str
) -> None:
    async with pair.stream(new_user) as stream:
        await shake_hands_elsewhere(pair, stream)
        added = await pair.answer(stream, tool("add_memories", text="I like jazz"))
        assert json.loads(added["result"]["content"][0]["text"])["results"][0]["event"] == "ADD"
        [item] = listed(await pair.answer(stream, tool("list_memories")))
        assert (item["user_id"], item["app_name"]) == (new_user, "cursor")
        own = f"/mcp/cursor/sse/{new_user}/messages/?{stream.messages.partition('?')[2]}"
        assert (await pair.post(stream, tool("list_memories"), own)).status_code == 202


async def test_messages_arrive_in_the_order_of_their_requests_whichever_process_gets_them(
    pair: Pair, new_user: str
) -> None:
    # A session refuses what comes before its handshake is over: each of these would fail if it overtook the one before.
    for number in range(25):
        async with pair.stream(f"{new_user}-{number}") as stream:
            await shake_hands_elsewhere(pair, stream)
            assert listed(await stream.answer(tool("list_memories"))) == []


async def test_no_message_is_lost_or_doubled_among_many_at_once(pair: Pair, new_user: str) -> None:
    async with pair.stream(new_user) as stream:
        await stream.shake_hands()
        ids = list(range(100, 300))
        at_once = asyncio.Semaphore(24)  # with more of them a session has no room

        async def ask(number: int) -> None:
            client = pair.there if number % 3 else pair.here
            message = {"jsonrpc": "2.0", "id": number, "method": "ping"}
            async with at_once:
                assert (await client.post(stream.messages, json=message)).status_code == 202

        asking = asyncio.gather(*(ask(number) for number in ids))
        answered = [json.loads((await stream.event())[1])["id"] for _ in ids]
        await asking
        assert sorted(answered) == ids
        assert await pair.rows("SELECT FROM mcp_messages") == []


@pytest.mark.parametrize("session", ["0" * 32, "not-a-session", ""])
async def test_an_unknown_session_is_not_found(pair: Pair, session: str) -> None:
    message = {"jsonrpc": "2.0"} | tool("list_memories")
    assert refused(await pair.there.post(f"/mcp/messages/?session_id={session}", json=message))


async def test_a_post_without_a_session_is_told_what_is_missing(pair: Pair) -> None:
    answer = await pair.there.post("/mcp/messages/", json=tool("list_memories"))
    assert (answer.status_code, answer.text) == (400, "session_id is required")


async def test_a_session_is_found_at_its_own_address_only(pair: Pair, new_user: str) -> None:
    async with pair.stream(new_user) as stream:
        await stream.shake_hands()
        session = stream.messages.partition("?")[2]
        for names in (f"cursor/sse/{new_user}-2", f"claude/sse/{new_user}", "%20/sse/%20"):
            assert refused(await pair.post(stream, tool("list_memories"), f"/mcp/{names}/messages/?{session}"))
        assert await pair.rows("SELECT FROM mcp_messages") == []


async def test_what_is_no_message_is_refused_before_it_is_stored(pair: Pair, new_user: str) -> None:
    async with pair.stream(new_user) as stream:
        await stream.shake_hands()
        json_type = {"Content-Type": "application/json"}
        for body in (b"{", b"[]", b'{"jsonrpc":"2.0","id":{},"method":"ping"}', b"\xff"):
            here = await pair.here.post(stream.messages, content=body, headers=json_type)
            there = await pair.there.post(stream.messages, content=body, headers=json_type)
            assert (there.status_code, there.text) == (here.status_code, here.text)
            assert (there.status_code, there.json()["error"]["code"]) == (400, -32600 if body[-1:] in b"]}" else -32700)
        assert (await pair.there.post(stream.messages, content=b"{}", headers={"Content-Type": "text/plain"})).is_error
        long = b'"' + b"x" * Settings().limits.body + b'"'
        assert (await pair.there.post(stream.messages, content=long, headers=json_type)).status_code == 413


async def test_a_session_that_ended_is_gone_for_every_process(
    pair: Pair, new_user: str, eventually: Eventually
) -> None:
    async with pair.stream(new_user) as stream:
        await stream.shake_hands()

    async def gone() -> bool:
        return refused(await pair.post(stream, tool("list_memories")))

    await eventually(gone)


@pytest.mark.slow
async def test_sessions_of_a_killed_process_are_not_found_and_removed_in_a_while(
    pair: Pair,
    stores: Stores,
    short_folder: Path,
    new_user: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with another_process(stores, short_folder / "killed") as service:
        async with held_at(service, new_user) as stream:
            await shake_hands_elsewhere(pair, stream)
            service.process.kill()
            service.ended(10)
            monkeypatch.setattr(relay, "PATIENCE", 0.5)
            answer = await pair.post(stream, tool("list_memories"))
            assert (answer.status_code, answer.json()["error"]) == (503, "relay_busy")
            monkeypatch.setattr(relay, "STALE", 0.5)

            async def not_found() -> bool:
                return refused(await pair.post(stream, tool("list_memories")))

            await eventually(not_found, within=30)
            assert not await known(pair, new_user)
            assert not await waiting(pair)


@pytest.mark.slow
async def test_a_dead_process_is_cleaned_up_after_though_nobody_asks_for_its_sessions(
    pair: Pair,
    stores: Stores,
    short_folder: Path,
    new_user: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with another_process(stores, short_folder / "forgotten") as service:
        async with held_at(service, new_user):
            service.process.kill()
            monkeypatch.setattr(relay, "STALE", 0.5)

    async def gone() -> bool:
        return not await known(pair, new_user)

    await eventually(gone, within=30)


@pytest.mark.slow
async def test_a_process_that_hangs_never_gets_a_message_that_was_refused(
    pair: Pair, stores: Stores, short_folder: Path, new_user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "PATIENCE", 1.0)
    with another_process(stores, short_folder / "hanging") as service:
        async with (
            httpx.AsyncClient(base_url=service.ready(), timeout=30) as client,
            stream_of(client, f"/mcp/cursor/sse/{new_user}") as stream,
        ):
            await shake_hands_elsewhere(pair, stream)
            service.process.send_signal(signal.SIGSTOP)
            answer = await pair.post(stream, tool("add_memories", text="Never said"))
            assert (answer.status_code, answer.json()["error"]) == (503, "relay_busy")
            assert answer.headers["retry-after"] == "1"
            service.process.send_signal(signal.SIGCONT)
            assert listed(await pair.answer(stream, tool("list_memories"))) == []


@pytest.mark.slow
async def test_a_process_that_dies_with_a_message_waiting_leaves_no_accepted_one(
    pair: Pair,
    stores: Stores,
    short_folder: Path,
    new_user: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with another_process(stores, short_folder / "dying") as service:
        async with held_at(service, new_user) as stream:
            await shake_hands_elsewhere(pair, stream)
            monkeypatch.setattr(relay, "PATIENCE", 2.0)
            service.process.send_signal(signal.SIGSTOP)
            posting = asyncio.create_task(pair.post(stream, tool("list_memories")))
            await eventually(lambda: waiting(pair))
            service.process.kill()
            answer = await posting
            assert (answer.status_code, answer.json()["error"]) == (503, "relay_busy")
            assert not await waiting(pair)


@pytest.mark.slow
async def test_a_message_of_unknown_fate_is_not_called_accepted(
    pair: Pair,
    stores: Stores,
    short_folder: Path,
    new_user: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with another_process(stores, short_folder / "silent") as service:
        async with held_at(service, new_user) as stream:
            await shake_hands_elsewhere(pair, stream)
            monkeypatch.setattr(relay, "PATIENCE", 2.0)
            service.process.send_signal(signal.SIGSTOP)
            posting = asyncio.create_task(pair.post(stream, tool("list_memories")))
            await eventually(lambda: waiting(pair))
            await pair.rows("WITH taken AS (DELETE FROM mcp_messages RETURNING number) SELECT FROM taken")
            answer = await posting
            assert (answer.status_code, answer.json()["error"]) == (503, "relay_uncertain")
            service.process.kill()


async def waiting(pair: Pair) -> bool:
    return bool(await pair.rows("SELECT FROM mcp_messages"))


@pytest.mark.slow
async def test_sessions_outlive_the_connections_of_the_relay(pair: Pair, new_user: str) -> None:
    async with pair.stream(new_user) as stream:
        await stream.shake_hands()
        assert len(await pair.rows(CUT)) >= 2
        assert listed(await pair.answer(stream, tool("list_memories"))) == []


@pytest.mark.slow
async def test_messages_amid_cut_connections_arrive_once_if_accepted_and_never_if_refused(
    pair: Pair, new_user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "PATIENCE", 1.0)
    said: dict[int, str] = {}
    arrived: Counter[int] = Counter()

    async def ask(numbers: range) -> None:
        for number in numbers:
            answer = await pair.post(stream, {"id": number, "method": "ping"})
            said[number] = "accepted" if answer.status_code == 202 else answer.json()["error"]

    async def hear(expected: set[int]) -> None:
        while not expected <= arrived.keys():
            arrived[json.loads((await stream.event())[1])["id"]] += 1

    async with pair.stream(new_user) as stream:
        await stream.shake_hands()
        asking = [asyncio.create_task(ask(range(first, 121, 6))) for first in range(1, 7)]
        while not all(task.done() for task in asking):
            with suppress(Unavailable):
                await pair.rows(CUT)
            await asyncio.wait(asking, timeout=random.uniform(0.3, 1.2))  # how long an undisturbed moment lasts
        await asyncio.gather(*asking)
        accepted = {number for number, answer in said.items() if answer == "accepted"}
        await hear(accepted)
        assert (await stream.post({"id": 999, "method": "ping"})).status_code == 202
        await hear({999})
    assert set(said.values()) <= {"accepted", "relay_busy", "relay_uncertain", "database_unavailable"}
    assert max(arrived.values()) == 1
    assert arrived.keys() - accepted - {999} <= {n for n, answer in said.items() if answer == "relay_uncertain"}


@pytest.mark.slow
async def test_a_delivered_message_is_accepted_though_the_process_that_has_it_is_short_of_connections(
    pair: Pair, new_user: str
) -> None:
    """The holder's pool is taken by slow requests, which may not make its acknowledgement late."""
    database = pair.services.database

    async def slow() -> None:
        async with database.statement() as tx:
            await tx.execute(text("SELECT pg_sleep(0.4)"))

    async def busy() -> None:
        for _ in range(4):
            with suppress(Unavailable):
                await slow()

    async with pair.stream(new_user) as stream:
        await shake_hands_elsewhere(pair, stream)
        load = [asyncio.create_task(busy()) for _ in range(6 * Settings().database.pool_size)]
        answers = await asyncio.gather(*(pair.post(stream, tool("list_memories")) for _ in range(4)))
        assert {answer.status_code for answer in answers} == {202}, [answer.text for answer in answers]
        await asyncio.gather(*load)


@pytest.mark.slow
async def test_a_session_that_was_taken_for_dead_is_entered_again(
    pair: Pair, new_user: str, eventually: Eventually
) -> None:
    async with pair.stream(new_user) as stream:
        await stream.shake_hands()
        await pair.rows("WITH gone AS (DELETE FROM mcp_sessions RETURNING id) SELECT FROM gone")
        assert refused(await pair.post(stream, tool("list_memories")))
        await eventually(lambda: known(pair, new_user))
        assert listed(await pair.answer(stream, tool("list_memories"))) == []


@pytest.mark.slow
async def test_sessions_outlive_a_crash_of_postgresql(pair: Pair, new_user: str, eventually: Eventually) -> None:
    async with pair.stream(new_user) as stream:
        await stream.shake_hands()
        # What a crash does: unlogged tables are empty, and every connection is cut.
        await pair.rows("WITH gone AS (DELETE FROM mcp_sessions RETURNING id) SELECT FROM gone")
        await pair.rows(CUT)
        await eventually(lambda: known(pair, new_user))
        assert listed(await pair.answer(stream, tool("list_memories"))) == []


async def known(pair: Pair, user: str) -> bool:
    return bool(await pair.rows("SELECT FROM mcp_sessions WHERE user_name = :user", user=user))


async def test_the_built_in_postgresql_has_room_for_the_pools_of_every_worker(pair: Pair) -> None:
    [(setting,)] = await pair.rows("SELECT current_setting('max_connections')::int")
    assert setting - 5 >= most_connections(Settings().database, processes=4)


async def test_one_process_on_the_built_in_postgresql_relays_nothing(
    http: httpx.AsyncClient, services: Services, new_user: str
) -> None:
    assert not services.stores.shared
    async with stream_of(http, f"/mcp/cursor/sse/{new_user}") as stream, services.database.statement() as tx:
        await stream.shake_hands()
        assert await tx.scalar(text("SELECT count(*) FROM mcp_sessions")) == 0
        relaying = "SELECT count(*) FROM pg_stat_activity WHERE query ~ 'LISTEN|mcp_' AND pid <> pg_backend_pid()"
        assert await tx.scalar(text(relaying)) == 0


@pytest.mark.slow
async def test_a_client_that_sends_without_reading_is_stopped_whichever_process_it_reaches(
    pair: Pair, new_user: str
) -> None:
    async with pair.stream(new_user) as stream:
        await stream.shake_hands()
        sent = 0
        while (answer := await pair.post(stream, {"id": sent, "method": "tools/list"})).status_code == 202:
            sent += 1
            assert sent < 5_000, "nothing stops it"
        assert (answer.status_code, answer.json()["error"]) == (429, "too_many_messages")
        assert int(answer.headers["retry-after"]) > 0
        assert (await stream.post({"id": sent, "method": "ping"})).status_code == 429
        for _ in range(sent):
            await stream.event()
        assert (await pair.answer(stream, {"id": sent, "method": "ping"}))["result"] == {}
