"""Of an erased user no word is left: not in a table, not in the index, not among the originals. The audit log keeps the
names that keys and rules had."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import text

from openmemory.access.schemas import GrantCreate, KeyCreate
from openmemory.backup.exporting import ExportSelection
from openmemory.config.settings import Settings
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.identity.principal import LOCAL
from openmemory.memories import erasure
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.memories.state import State
from openmemory.projects.context import ContextQuery
from openmemory.projects.schemas import NewCheckpoint, NewProject, NewValue
from openmemory.schema.registry import TABLES
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services, open_services
from openmemory.sources.passages import erase_of_user
from openmemory.sources.schemas import NewDocument, NewFile, NewMessage, NewMessages, NewSession
from tests.backup.test_round_trip import populate
from tests.clusters import furnish
from tests.living import living
from tests.migrations.making import add_rest
from tests.sources.text_extraction.documents import send_document

WORDS = 1_000


class Planted:
    """Unique words that all begin alike."""

    def __init__(self) -> None:
        self.mark = f"zq{uuid4().hex[:10]}"
        self._number = 0

    def __call__(self) -> str:
        self._number += 1
        return f"{self.mark}n{self._number}"

    @property
    def count(self) -> int:
        """How many words there are."""
        return self._number


@pytest.fixture
async def services(short_folder: Path) -> AsyncIterator[Services]:
    """The product over a data folder of its own, whose files hold nothing of other tests."""
    settings = Settings.model_validate({"data_dir": str(furnish(short_folder / "erasure")), "rates": {"saves": 0}})
    async with living(open_services(settings)) as services:
        yield services


async def plant(services: Services, word: Planted) -> str:
    """A user with a word in everything that can hold one. Returns their name."""
    user, app = word(), word()
    caller = await services.directory.caller(user, app)
    owner = await services.directory.caller(user, None, owner=True)

    def memory() -> MemoryCreate:
        return MemoryCreate(
            text=f"The alpaca {word()} likes {word()}.", metadata={word(): [word()]}, categories=(word(),),
            namespace=word(), thread_id=word(), kind=word(), key=word(),
        )  # fmt: skip

    added = await services.memories.add_many(caller, [memory() for _ in range(60)])
    for one in added[:20]:
        await services.memories.update(owner, one.id, MemoryUpdate(text=f"Rather {word()}.", metadata={word(): word()}))
    await services.memories.change_state(owner, [added[0].id], State.ARCHIVED)
    await services.memories.change_state(owner, [added[1].id], State.DELETED)
    grant = GrantCreate(effect="deny", object_type="namespace", object=word(), app=app)
    await services.grants.create(owner, grant)
    await services.keys.create(LOCAL, KeyCreate(name=word(), user_id=user, app=app))
    while word.count < WORDS:
        said = NewMessage(f"I saw {word()}.", word(), word(), metadata={word(): word()})
        await services.conversations.add(caller, NewMessages(word(), [said], word(), f"About {word()}"))
        session = NewSession(word.count, word(), f"It was {word()}.", f"## {word()}\n\nThen {word()}.\n", word())
        await services.sessions.save(caller, session)
        await services.files.store(caller, word(), [NewFile(f"{word()}/a.py", f"def {word()}():\n    {word()}()\n")])
        document = NewDocument(f"{word()}.md", word(), f"About {word()}")
        await send_document(services, caller, document, f"# {word()}\n\nThe original {word()}.\n".encode())
        namespace = word()
        state = NewCheckpoint({word(): word()}, f"It is {word()}.", namespace)
        kept = await services.states.checkpoint(caller, state)
        value = await services.values.set(caller, NewValue(word(), word(), word(), namespace))
        await services.links.link(caller, kept.memory_id, word().lower(), value.id)
        await services.projects.register(caller, NewProject(namespace, word(), word(), word()))
        await services.context.pack(caller, ContextQuery(f"what of {word()}", namespace))
    await services.outbox_delivery.drain()
    await services.search.search(caller, SearchQuery(f"what of {word()}"))
    await services.search.passages(owner, SearchQuery(f"what of {word()}"))
    return user


async def tables_with(tx: Tx, *marks: str) -> set[str]:
    """The tables that hold one of the marks, in any column of any row."""
    found = set()
    tables = await tx.scalars(text("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"))
    for table in tables.all():
        some = "SELECT FROM unnest(CAST(:marks AS text[])) AS mark WHERE strpos(t::text, mark) > 0"
        if await tx.scalar(text(f'SELECT count(*) FROM "{table}" AS t WHERE EXISTS ({some})'), {"marks": list(marks)}):
            found.add(table)
    return found


def files_with(folder: Path, mark: str) -> Iterator[Path]:
    """The files of the data folder that hold the mark. Those of PostgreSQL are read as tables."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and folder / "postgres" not in path.parents and mark.encode() in path.read_bytes():
            yield path


@pytest.mark.timeout(120)
async def test_no_word_of_an_erased_user_is_left_anywhere(services: Services) -> None:
    gone, stays = Planted(), Planted()
    user = await plant(services, gone)
    await plant(services, stays)
    async with services.database.statement() as tx:
        held, kept = await tables_with(tx, gone.mark), await tables_with(tx, stays.mark)
    assert {"users", "apps", "memories", "memory_revisions", "sources", "passages", "access_controls"} <= held
    originals = sum(1 for path in (services.stores.folder / "objects").rglob("*") if path.is_file())

    await services.memories.erase_user(await services.directory.caller(user, None, owner=True))
    await services.outbox_delivery.drain()
    await services.objects.sweep()
    await services.index.flush()

    async with services.database.statement() as tx:
        # The audit log keeps the names of keys and rules.
        assert await tables_with(tx, gone.mark) == {"audit_events"}
        assert await tables_with(tx, stays.mark) == kept
        events = text("SELECT DISTINCT event FROM audit_events AS t WHERE strpos(t::text, :mark) > 0")
        assert set(await tx.scalars(events, {"mark": gone.mark})) == {"grant.create", "key.create"}
    assert await asyncio.to_thread(list, files_with(services.stores.folder, gone.mark)) == []
    left = sum(1 for path in (services.stores.folder / "objects").rglob("*") if path.is_file())
    assert 0 < left < originals


async def marks_of(tx: Tx, caller: Caller) -> list[str]:
    """A user's name, and the ids of what is theirs."""
    owned = {
        "users": "id", "apps": "owner_id", "memories": "user_id", "sources": "user_id", "passages": "user_id",
        "captures": "user_id", "api_keys": "user_id",
    }  # fmt: skip
    ids = " UNION ALL ".join(f"SELECT id::text FROM {table} WHERE {owner} = :user" for table, owner in owned.items())
    return [caller.user, *await tx.scalars(text(ids), {"user": caller.user_id})]


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_no_table_holds_a_row_of_an_erased_user(services: Services) -> None:
    owner = await populate(services, f"user-{uuid4().hex[:8]}")
    kept = {name for name, table in TABLES.items() if table.erased == "kept"}
    async with services.database.transaction() as tx:  # one transaction, so that no job takes a row away before
        await add_rest(tx)
        # A category stays if it is described for everybody.
        await tx.execute(text("UPDATE categories SET description = NULL"))
        marks = await marks_of(tx, owner)
        held = await tables_with(tx, *marks)
        assert held >= TABLES.keys() - kept, "The test gives the user no row there."
        await erasure.erase_user(tx, owner.user_id, erase_of_user)
    await services.outbox_delivery.drain()
    async with services.database.statement() as tx:
        assert await tables_with(tx, *marks) <= kept


def folder_holds(folder: Path, word: str) -> bool:
    """Returns True if any file of a folder holds the word, those of PostgreSQL included."""
    return any(word.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_new_folder_that_is_filled_from_an_archive_holds_no_trace_of_what_was_erased(
    services: Services, short_folder: Path
) -> None:
    word, user = Planted(), f"user-{uuid4().hex[:8]}"
    owner = await services.directory.caller(user, None, owner=True)
    gone, stays = word(), word() + "x"
    for said in (f"The alpaca is {gone}.", f"The llama is {stays}."):
        added = await services.memories.add(owner, MemoryCreate(text=said))
        if gone in said:
            await services.memories.erase(owner, [added.id])
    assert await asyncio.to_thread(folder_holds, services.stores.folder / "postgres", gone + "."), "the log holds it"

    archive = await services.backup.export(owner, ExportSelection())
    new = furnish(short_folder / "after-erasure")
    with archive:
        async with living(open_services(Settings.model_validate({"data_dir": str(new)}))) as other:
            caller = await other.directory.caller(user, None, owner=True)
            async with other.backup.upload(LOCAL) as file:
                shutil.copyfileobj(archive, file.file)
            await other.backup.restore(caller, file, "skip")
            await other.outbox_delivery.drain()
    assert await asyncio.to_thread(folder_holds, new, stays)
    assert not await asyncio.to_thread(folder_holds, new, gone + ".")
