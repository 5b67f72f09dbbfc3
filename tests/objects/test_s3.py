"""Originals in a bucket of S3: stored, read, deleted, and what happens when the bucket is away."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from sqlalchemy import text

from openmemory.config.sections import DocumentSettings
from openmemory.config.settings import Settings
from openmemory.errors import NotFound, Unavailable
from openmemory.objects.s3 import S3Objects
from openmemory.services import Services, open_services
from openmemory.sources.schemas import NewDocument
from tests.clusters import furnish
from tests.faults.proxy import Mode, Proxy
from tests.living import living
from tests.required import lacking
from tests.sources.text_extraction.documents import send_document

PYTHON = Path(sys.prefix) / "s3" / "bin" / "python"
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
SECRET = "a-secret-of-the-bucket"
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    """A proxy before a server that speaks S3."""
    if not PYTHON.exists():
        lacking("`make .venv/s3/.done` installs a server that speaks S3")
    server = subprocess.Popen([PYTHON, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdin
        assert server.stdout
        with closing(Proxy(int(server.stdout.readline()))) as proxy:
            yield proxy
    finally:
        server.communicate(timeout=20)


@pytest.fixture
def bucket(proxy: Proxy) -> str:
    """A bucket of its own."""
    proxy.set(Mode.PASS)
    name = f"b-{secrets.token_hex(8)}"
    # The first request loads all of the server, which takes seconds on a busy machine.
    assert httpx.put(f"{proxy.url}/{name}", timeout=60).status_code == 200
    return name


@pytest.fixture
def settings(proxy: Proxy, bucket: str) -> Callable[..., dict[str, Any]]:
    """The settings of documents that are kept in the bucket."""

    def of(**other: str) -> dict[str, Any]:
        return {
            "store": f"s3://{bucket}/memory/originals/", "s3_endpoint": proxy.url, "s3_access_key": "an-access-key",
            "s3_secret_key": SECRET,
        } | other  # fmt: skip

    return of


def got(url: str) -> bytes:
    return httpx.get(url).content


def names(proxy: Proxy, bucket: str) -> list[str]:
    listed = got(f"{proxy.url}/{bucket}?list-type=2").decode()
    return [part.partition("</Key>")[0] for part in listed.split("<Key>")[1:]]


async def read(store: S3Objects, key: str) -> bytes:
    return b"".join([chunk async for chunk in store.get(key)])


@pytest.mark.slow
async def test_objects_are_stored_read_and_deleted(proxy: Proxy, bucket: str, settings) -> None:
    store = S3Objects(DocumentSettings(**settings()))
    for size in (0, 1, 12 * MEGABYTE + 7):
        content = secrets.token_bytes(size)
        pieces = [content[at : at + MEGABYTE] for at in range(0, size, MEGABYTE)]
        await store.put("user/object", iter(pieces))
        assert await read(store, "user/object") == content
    assert names(proxy, bucket) == ["memory/originals/user/object"]
    await store.delete("user/object")
    await store.delete("user/object")
    assert names(proxy, bucket) == []
    with pytest.raises(NotFound):
        await read(store, "user/object")


async def test_an_upload_that_breaks_leaves_no_object(proxy: Proxy, bucket: str, settings) -> None:
    def broken() -> Iterator[bytes]:
        yield secrets.token_bytes(6 * MEGABYTE)
        raise OSError("the disk failed")

    with pytest.raises(Unavailable):
        await S3Objects(DocumentSettings(**settings())).put("user/object", broken())
    assert names(proxy, bucket) == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Mode.REFUSE, Mode.ERROR_500, Mode.GARBAGE])
async def test_a_store_that_fails_is_unavailable_and_the_log_has_no_secret(
    proxy: Proxy, settings, caplog: pytest.LogCaptureFixture, mode: Mode
) -> None:
    store = S3Objects(DocumentSettings(**settings()))
    proxy.set(mode)
    with pytest.raises(Unavailable, match="store of documents"):
        await store.put("user/object", iter([b"tea"]))
    if mode is not Mode.GARBAGE:  # what it says is then taken for the object, and is not decrypted
        with pytest.raises(Unavailable, match="store of documents"):
            await read(store, "user/object")
        with pytest.raises(Unavailable, match="store of documents"):
            await store.delete("user/object")
    assert SECRET not in caplog.text


async def test_a_bucket_that_is_missing_is_no_missing_object(settings) -> None:
    store = S3Objects(DocumentSettings(**settings(store="s3://no-such-bucket")))
    for attempt in (store.put("a/b", iter([b"tea"])), read(store, "a/b"), store.delete("a/b")):
        with pytest.raises(Unavailable):
            await attempt


@pytest.fixture
async def services(short_folder: Path, settings) -> AsyncIterator[Services]:
    """The product with the bucket as its store."""
    folder = furnish(short_folder / "s3")
    whole = Settings.model_validate({"data_dir": str(folder), "documents": settings()})
    async with living(open_services(whole)) as services:
        yield services


@pytest.mark.slow
async def test_originals_are_encrypted_in_the_bucket_and_only_they_need_it(
    proxy: Proxy, bucket: str, services: Services
) -> None:
    caller = await services.directory.caller("alice", None, owner=True)
    content = b"The alpaca drinks tea."
    stored = await send_document(services, caller, NewDocument("a.txt"), content)
    [name] = names(proxy, bucket)
    assert b"alpaca" not in got(f"{proxy.url}/{bucket}/{name}")
    download = await services.documents.download(caller, stored.id)
    assert b"".join([chunk async for chunk in download.content]) == content

    proxy.set(Mode.REFUSE)
    with pytest.raises(Unavailable) as refused:
        await send_document(services, caller, NewDocument("b.txt"), b"The alpaca eats grass.")
    assert refused.value.code == "objects_unavailable"
    with pytest.raises(Unavailable):
        await services.documents.download(caller, stored.id)
    assert [one.name for one in (await services.documents.list(caller)).items] == ["a.txt"]
    without = await send_document(services, caller, NewDocument("c.txt", keep=False), b"The alpaca sleeps.")
    assert (await services.documents.text(caller, without.id)).items[0].content == "The alpaca sleeps."
    await services.documents.erase(caller, stored.id)

    proxy.set(Mode.PASS)
    assert names(proxy, bucket) == [name]
    async with services.database.transaction() as tx:
        await tx.execute(text("UPDATE object_deletions SET due_at = now()"))
    await services.objects.sweep()
    assert names(proxy, bucket) == []
    assert (await send_document(services, caller, NewDocument("b.txt"), b"The alpaca eats grass.")).kept


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"store": "s3://"}, "must name a bucket"),
        ({"s3_access_key": ""}, "must be given for a store in S3"),
        ({"s3_secret_key": ""}, "must be given for a store in S3"),
        ({"s3_endpoint": "localhost:9000"}, "must begin with http"),
    ],
)
def test_settings_of_a_bucket_say_what_is_missing(given: dict[str, str], problem: str) -> None:
    whole = {"store": "s3://bucket", "s3_access_key": "a", "s3_secret_key": "b", "s3_endpoint": "https://s3.example"}
    assert DocumentSettings(**whole).bucket == ("bucket", "")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match=problem):
        DocumentSettings(**(whole | given))  # type: ignore[arg-type]
