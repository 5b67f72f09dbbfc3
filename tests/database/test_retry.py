"""What PostgreSQL ends because two waited for each other is done again, as often as may help and no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from openmemory.database.retry import retry_on_conflict
from openmemory.errors import WriteConflict
from openmemory.identity.caller import Caller
from openmemory.identity.principal import LOCAL, Door
from openmemory.memories.schemas import Event, MemoryCreate, MemoryQuery, MemoryUpdate
from openmemory.memories.state import State
from openmemory.services import Services

LOCK = text("SELECT FROM memories WHERE id = :id FOR UPDATE")
WAITING = text(
    "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid' AND transactionid ="
    " (SELECT transactionid FROM pg_locks WHERE pid = :pid AND locktype = 'transactionid' AND granted))"
)


class Rival:
    """Locks one memory, and another one when somebody waits for the first."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.pid = 0
        self.reached, self.waited_for = asyncio.Event(), asyncio.Event()

    async def lock(self, first: UUID, second: UUID) -> bool:
        """Whether it got both, rather than be the victim."""
        try:
            async with self._services.database.transaction() as tx:
                self.pid = int(await tx.scalar(text("SELECT pg_backend_pid()")) or 0)
                await tx.execute(LOCK, {"id": first})
                await tx.execute(text("SELECT pg_current_xact_id()"))
                self.reached.set()
                await self.waited_for.wait()
                await tx.execute(LOCK, {"id": second})
        except WriteConflict:
            return False
        return True

    async def is_waited_for(self) -> bool:
        """Whether somebody waits for what it has locked."""
        async with self._services.database.statement() as tx:
            return bool(await tx.scalar(WAITING, {"pid": self.pid}))


async def two_memories(services: Services, owner: Caller) -> list[UUID]:
    added = await services.memories.add_many(owner, [MemoryCreate(text="one"), MemoryCreate(text="two")])
    return sorted(each.id for each in added)


async def test_a_write_that_met_a_deadlock_is_done_again_and_succeeds(
    services: Services, owner: Caller, caplog: pytest.LogCaptureFixture, eventually: Callable[..., Awaitable[None]]
) -> None:
    low, high = await two_memories(services, owner)
    before, targets = services.memories.written["paused"], []
    with caplog.at_level(logging.DEBUG, "openmemory.database.retry"):
        # The one that waits longest looks for a deadlock first and is its victim: ours, unless the machine is slow.
        for _ in range(5):
            targets.append(State.PAUSED)
            other = Rival(services)
            locking = asyncio.create_task(other.lock(high, low))
            await other.reached.wait()
            writing = asyncio.create_task(services.memories.change_state(owner, [low, high], State.PAUSED))
            await eventually(other.is_waited_for)
            other.waited_for.set()
            won = await locking
            assert await writing == 2
            if won:
                break
            targets.append(State.ACTIVE)
            await services.memories.restore(owner, [low, high])
    said = [record.getMessage() for record in caplog.records]
    assert said
    assert said[0] == "Memories.change_state met a write conflict, attempt 1 of 4"
    assert services.memories.written["paused"] == before + 2 * targets.count(State.PAUSED)
    for id_ in (low, high):
        history = await services.memories.history(owner, id_)
        assert [change.new_state for change in history.states] == [State.ACTIVE, *targets], "written once each time"


class Work:
    """One transaction of one statement, as often as it is done."""

    def __init__(self, services: Services, statement: str) -> None:
        self._services, self._statement = services, statement
        self.attempts = 0

    @retry_on_conflict
    async def do(self) -> None:
        self.attempts += 1
        async with self._services.database.transaction() as tx:
            await tx.execute(text(self._statement))


async def test_what_is_overtaken_every_time_is_given_up_and_told(services: Services) -> None:
    work = Work(services, "DO $$ BEGIN RAISE EXCEPTION SQLSTATE '40001'; END $$")
    failures = services.database.failures
    with pytest.raises(WriteConflict) as refused:
        await work.do()
    assert (work.attempts, refused.value.code) == (4, "write_conflict")
    assert services.database.failures == failures, "PostgreSQL is well"


async def test_no_other_failure_is_repeated(services: Services) -> None:
    work = Work(services, "SELECT 1 / 0")
    with pytest.raises(Exception, match="division by zero"):
        await work.do()
    assert work.attempts == 1


@asynccontextmanager
async def overtaking(services: Services, table: str) -> AsyncIterator[None]:
    """While the block runs, of three statements that write into a table two fail as a serialization does."""
    name = f"test_{uuid4().hex}"
    async with services.database.transaction() as tx:
        await tx.execute(text(f"CREATE SEQUENCE {name}"))
        await tx.execute(
            text(
                f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                f" IF nextval('{name}') % 3 <> 0 THEN RAISE EXCEPTION SQLSTATE '40001'; END IF; RETURN NULL; END $$"
            )
        )
        await tx.execute(
            text(f"CREATE TRIGGER {name} AFTER INSERT ON {table} FOR EACH STATEMENT EXECUTE FUNCTION {name}()")
        )
    try:
        yield
    finally:
        async with services.database.transaction() as tx:
            await tx.execute(text(f"DROP FUNCTION {name} CASCADE"))
            await tx.execute(text(f"DROP SEQUENCE {name}"))


async def test_what_is_done_again_is_written_once_and_counted_once(services: Services, new_user: str) -> None:
    assistant = await services.directory.caller(new_user, "claude", principal=replace(LOCAL, door=Door.MCP))
    before = services.memories.written["add"]
    async with overtaking(services, "memory_revisions"):
        added = await services.memories.add(assistant, MemoryCreate(text="once"))
        changed = (await services.memories.update(assistant, added.id, MemoryUpdate(text="twice"))).memory
    assert (added.event, changed.content, changed.revision) == (Event.ADD, "twice", 2)
    assert services.memories.written["add"] == before + 1
    async with services.database.statement() as tx:
        query = text("SELECT used + before FROM rate_limits WHERE bucket = :bucket")  # a minute may end meanwhile
        assert await tx.scalar(query, {"bucket": f"save:{assistant.app_id}"}) == 2, (
            "one of each, not one of each attempt"
        )
        count = text("SELECT count(*) FROM memory_revisions WHERE memory_id = :id")
        assert await tx.scalar(count, {"id": added.id}) == 2


async def test_lists_and_searches_that_are_overtaken_in_writing_the_log_are_done_again(
    services: Services, owner: Caller
) -> None:
    from openmemory.search.schemas import SearchQuery

    await services.memories.add(owner, MemoryCreate(text="Alice drinks tea"))
    async with overtaking(services, "memory_access_logs"):
        assert (await services.memories.list(owner, MemoryQuery())).total == 1
        assert len((await services.search.search(owner, SearchQuery(text="tea"))).results) == 1
