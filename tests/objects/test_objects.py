"""Originals are encrypted with a key of their user, survive crashes, and go when nothing refers to them."""

from __future__ import annotations

import io
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from openmemory.errors import NotFound, SetupError, Unavailable
from openmemory.identity.caller import Caller
from openmemory.objects import encryption
from openmemory.objects.encryption import ObjectDamaged
from openmemory.objects.service import Objects
from openmemory.objects.service_key import service_key
from openmemory.objects.stores import FolderObjects
from openmemory.services import Services
from openmemory.sources.schemas import DocumentStored, NewDocument
from tests.sources.text_extraction.documents import send_document

KEY = secrets.token_bytes(32)
MEGABYTE = 1024 * 1024


async def chunks(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def opened(data: bytes, *, key: bytes = KEY, name: str = "a/b", size: int = 70_000) -> bytes:
    return b"".join([chunk async for chunk in encryption.opened(key, name, chunks(data, size))])


def sealed(data: bytes) -> bytes:
    return b"".join(encryption.sealed(KEY, "a/b", io.BytesIO(data)))


@pytest.mark.parametrize("length", [0, 1, MEGABYTE - 1, MEGABYTE, MEGABYTE + 1, 3 * MEGABYTE])
@pytest.mark.parametrize("size", [7 * MEGABYTE, 65_537])
async def test_what_is_sealed_is_opened(length: int, size: int) -> None:
    plain = secrets.token_bytes(length)
    assert await opened(sealed(plain), size=size) == plain


async def test_bytes_that_come_one_by_one_are_opened() -> None:
    assert await opened(sealed(b"tea"), size=1) == b"tea"


FRAME = MEGABYTE + 16


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data + b"a",
        lambda data: data[: 8 + FRAME],
        lambda data: data[: 8 + 2 * FRAME],
        lambda data: data[:8] + data[8 + FRAME : 8 + 2 * FRAME] + data[8 : 8 + FRAME] + data[8 + 2 * FRAME :],
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
        lambda data: bytes([2]) + data[1:],
        lambda data: data[:5],
        lambda data: data[:0],
    ],
)
async def test_a_changed_object_is_noticed(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ObjectDamaged):
        await opened(change(sealed(bytes(2 * MEGABYTE + 5))))


async def test_another_key_or_name_does_not_open_an_object() -> None:
    with pytest.raises(ObjectDamaged):
        await opened(sealed(b"tea"), key=secrets.token_bytes(32))
    with pytest.raises(ObjectDamaged):
        await opened(sealed(b"tea"), name="a/c")
    wrapped = encryption.wrap(KEY, b"u" * 32, b"alice")
    assert encryption.unwrap(KEY, wrapped, b"alice") == b"u" * 32
    with pytest.raises(ObjectDamaged):
        encryption.unwrap(KEY, wrapped, b"bob")


def test_the_key_of_the_service_is_made_once(tmp_path: Path) -> None:
    key = service_key(tmp_path)
    assert len(key) == 32
    assert service_key(tmp_path) == key
    assert (tmp_path / "objects.key").stat().st_mode & 0o077 == 0
    assert [each.name for each in tmp_path.iterdir()] == ["objects.key"]
    (tmp_path / "objects.key").write_bytes(b"short")
    with pytest.raises(SetupError, match="damaged"):
        service_key(tmp_path)


def files(services: Services, user: UUID) -> list[Path]:
    return sorted((services.stores.folder / "objects" / str(user)).glob("*"))


async def due(services: Services) -> None:
    async with services.database.transaction() as tx:
        await tx.execute(text("UPDATE object_deletions SET due_at = now() - interval '1 minute'"))


@pytest.fixture
async def spooled(services: Services, owner: Caller):
    """Stores a document from a file of the operating system, as an upload does."""

    async def send(content: bytes, name: str = "a.txt") -> DocumentStored:
        return await send_document(services, owner, NewDocument(name), content)

    return send


async def test_a_kept_original_is_one_encrypted_file(services: Services, owner: Caller, spooled) -> None:
    stored = await spooled(b"The alpaca drinks tea.")
    [file] = files(services, owner.user_id)
    assert b"alpaca" not in file.read_bytes()
    await due(services)
    await services.objects.sweep()
    assert files(services, owner.user_id) == [file]
    content = (await services.documents.download(owner, stored.id)).content
    assert b"".join([chunk async for chunk in content]) == b"The alpaca drinks tea."


async def test_a_replaced_or_erased_original_goes(services: Services, owner: Caller, spooled) -> None:
    await spooled(b"The alpaca drinks tea.")
    [before] = files(services, owner.user_id)
    stored = await spooled(b"The alpaca drinks coffee.")
    await services.objects.sweep()
    [after] = files(services, owner.user_id)
    assert before != after
    await services.documents.erase(owner, stored.id)
    assert files(services, owner.user_id) == []
    assert not (services.stores.folder / "objects" / str(owner.user_id)).exists()


async def test_the_originals_and_the_key_of_an_erased_user_go(services: Services, owner: Caller, spooled) -> None:
    await spooled(b"The alpaca drinks tea.")
    assert files(services, owner.user_id)
    async with services.database.transaction() as tx:
        await tx.execute(text("DELETE FROM users WHERE id = :id"), {"id": owner.user_id})
        assert await tx.scalar(text("SELECT count(*) FROM object_keys WHERE user_id = :id"), {"id": owner.user_id}) == 0
    assert await services.objects.sweep() >= 1
    assert files(services, owner.user_id) == []


async def test_an_object_that_no_row_refers_to_goes_when_its_time_has_come(services: Services, owner: Caller) -> None:
    key = await services.objects.put(owner.user_id, io.BytesIO(b"tea"))
    await services.objects.sweep()
    assert len(files(services, owner.user_id)) == 1
    await due(services)
    await services.objects.sweep()
    assert files(services, owner.user_id) == []
    with pytest.raises(Unavailable, match="too long"):
        async with services.database.transaction() as tx:
            await services.objects.keep(tx, key)
    with pytest.raises(NotFound):
        await services.objects.get(owner.user_id, key)


async def test_a_store_that_fails_leaves_no_document(services: Services, owner: Caller, spooled, monkeypatch) -> None:
    async def full(*_: object) -> None:
        raise Unavailable("full", code="objects_unavailable")

    monkeypatch.setattr(services.objects._store, "put", full, raising=False)
    with pytest.raises(Unavailable):
        await spooled(b"The alpaca drinks tea.")
    monkeypatch.undo()
    assert (await services.documents.list(owner)).total == 0
    assert (await spooled(b"The alpaca drinks tea.")).kept


async def test_a_folder_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text("in the way")
    store = FolderObjects(tmp_path / "objects")
    with pytest.raises(Unavailable, match="store of documents"):
        await store.put(f"{uuid4()}/{uuid4()}", iter([b"tea"]))
    with pytest.raises(Unavailable, match="store of documents"):
        [chunk async for chunk in store.get(f"{uuid4()}/{uuid4()}")]


async def test_a_draft_that_a_crash_left_goes_with_its_object(services: Services, owner: Caller) -> None:
    key = await services.objects.put(owner.user_id, io.BytesIO(b"tea"))
    [file] = files(services, owner.user_id)
    file.rename(file.with_name(f".{file.name}.draft"))
    await due(services)
    await services.objects.sweep()
    assert files(services, owner.user_id) == []
    assert not (services.stores.folder / "objects" / key).parent.exists()


async def test_another_key_of_the_service_says_so(services: Services, owner: Caller, spooled) -> None:
    stored = await spooled(b"tea")
    other = Objects(
        services.database, FolderObjects(services.stores.folder / "objects"), lambda: secrets.token_bytes(32)
    )
    async with services.database.statement() as tx:
        key = await tx.scalar(text("SELECT object_key FROM sources WHERE id = :id"), {"id": stored.id})
    with pytest.raises(ObjectDamaged, match=r"objects\.key"):
        await other.get(owner.user_id, key)
