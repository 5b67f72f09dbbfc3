"""What nobody should send: each with its clear error, and nothing of it stays."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import struct
import warnings
import zipfile
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import numpy as np
import pytest

from openmemory.memories.changes import text_hash
from openmemory.services import Services
from tests.backup.archives import IMPORT, Upstream, bring_in, compressed, new_id, send, zipped
from tests.backup.conftest import MakeClient

Counts = Callable[[], Awaitable[dict[str, int]]]
MIB = 2**20


def good() -> dict[str, bytes]:
    """The members of an archive that would be taken."""
    archive = Upstream()
    memory = archive.memory("something good")
    archive.change(memory, "deleted", "active")
    return {
        "memories.json": json.dumps(archive.tables).encode(),
        "memories.jsonl.gz": compressed([{"id": memory, "content": "something good"}]),
    }


def with_members(**more: bytes) -> bytes:
    return zipped(good() | {name.replace("__", "."): data for name, data in more.items()})


def named(name: str) -> bytes:
    return zipped(good() | {name: b"x"})


def truncated() -> bytes:
    return with_members()[:-40]


def halved() -> bytes:
    data = with_members()
    return data[: len(data) // 2]


def with_prefix() -> bytes:
    return b"#!/bin/sh\nexit 1\n" + with_members()


def encrypted() -> bytes:
    data = bytearray(with_members())
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = 0
        while (start := data.find(signature, start)) >= 0:
            data[start + at] |= 1
            start += 4
    return bytes(data)


def twice_the_same() -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w") as file:
        warnings.simplefilter("ignore")
        for _ in range(2):
            file.writestr("memories.json", good()["memories.json"])
    return buffer.getvalue()


def overlapping() -> bytes:
    """Two members of which the second is said to begin within the first."""
    data = bytearray(zipped(good() | {"other": b"y" * 100}, method=zipfile.ZIP_STORED))
    at = data.rfind(b"PK\x01\x02")
    struct.pack_into("<L", data, at + 42, 40)
    return bytes(data)


def one_entry_many_names() -> bytes:
    """The quoted overlap: every name in the directory leads to the same bytes."""
    data = bytearray(zipped(good() | {"a": b"y" * 100, "b": b"y" * 100}, method=zipfile.ZIP_STORED))
    start = data.find(b"PK\x01\x02")
    offsets = []
    while start >= 0:
        offsets.append(start)
        start = data.find(b"PK\x01\x02", start + 4)
    [first] = struct.unpack_from("<L", data, offsets[-2] + 42)
    struct.pack_into("<L", data, offsets[-1] + 42, first)
    return bytes(data)


def too_many() -> bytes:
    return zipped(good() | {f"file-{number}": b"" for number in range(65)})


def huge_directory() -> bytes:
    return zipped(good() | {f"{'long' * 50}-{number}": b"" for number in range(5_000)})


def bomb() -> bytes:
    return zipped({"memories.json": b" " * (80 * MIB) + good()["memories.json"]})


def bomb_in_gzip() -> bytes:
    return with_members(revisions__jsonl__gz=gzip.compress(b"\n" * (80 * MIB)))


def bomb_in_what_is_not_looked_into() -> bytes:
    return zipped(good() | {"memories.jsonl.gz": gzip.compress(b"\n" * (80 * MIB))})


def bad_crc() -> bytes:
    data = zipped(good(), method=zipfile.ZIP_STORED)
    return data.replace(b"something good", b"something else", 1)


def lying_about_its_size() -> bytes:
    data = bytearray(with_members())
    at = data.find(b"PK\x01\x02")
    struct.pack_into("<L", data, at + 24, 10)
    return bytes(data)


def changed(path: str, value: Any) -> bytes:
    """A good archive in which something else stands at a place such as `memories.0.state`; ... takes it out."""
    archive = Upstream()
    category = archive.category("food")
    memory = archive.memory("something", categories=[category])
    archive.change(memory, "deleted", "active")
    archive.rule(archive.app_id, "deny", memory)
    *parents, last = path.split(".")
    at: Any = archive.tables
    for parent in parents:
        at = at[int(parent) if parent.isdigit() else parent]
    if value is ...:
        del at[last]
    else:
        at[int(last) if last.isdigit() else last] = value
    return zipped({"memories.json": json.dumps(archive.tables).encode()})


def lines(name: str, *found: Any) -> bytes:
    archive = Upstream()
    archive.memory("something", id="6f1c2d9e-4b7a-4c53-9e0d-2a8f1b3c4d5e")
    return zipped({"memories.json": json.dumps(archive.tables).encode(), name: compressed(found)})


REVISION = {"memory_id": "6f1c2d9e-4b7a-4c53-9e0d-2a8f1b3c4d5e", "revision": 1, "old_text": None, "new_text": "x"}

FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "Invalid zip file: the file is broken: File is not a zip file"),
    "a text": (lambda: b"hello " * 1000, "Invalid zip file: the file is broken: File is not a zip file"),
    "the end is missing": (truncated, "Invalid zip file: the file is broken"),
    "half of it is missing": (halved, "Invalid zip file: the file is broken"),
    "a zip of something else": (lambda: zipped({"a": b"b"}), "Invalid zip file: memories.json is missing"),
    "a program before it": (with_prefix, "Invalid zip file: it must begin with its first member"),
    "encrypted": (encrypted, "Invalid zip file: the member 'memories.json' is encrypted"),
    "bzip2": (lambda: zipped(good(), method=zipfile.ZIP_BZIP2), "uses an unsupported compression"),
    "lzma": (lambda: zipped(good(), method=zipfile.ZIP_LZMA), "uses an unsupported compression"),
    "the folder above": (lambda: named("../evil"), "a path outside of the archive"),
    "the folder above, within": (lambda: named("a/../../evil"), "a path outside of the archive"),
    "an absolute path": (lambda: named("/etc/passwd"), "a path outside of the archive"),
    "a path of Windows": (lambda: named("..\\evil"), "a path outside of the archive"),
    "a drive": (lambda: named("C:/evil"), "a path outside of the archive"),
    "two of one name": (twice_the_same, "the member 'memories.json' occurs twice"),
    "two folders": (lambda: named("b/memories.json"), "memories.json occurs in two folders"),
    "members within members": (overlapping, "its members overlap"),
    "one member of many names": (one_entry_many_names, "its members overlap"),
    "many members": (too_many, "it has 67 members; at most 64 are taken"),
    "a huge directory": (huge_directory, "its directory has more than 1,048,576 bytes"),
    "a bomb": (bomb, "memories.json unpacks to more than 200 times its size"),
    "a bomb in gzip": (bomb_in_gzip, "revisions.jsonl.gz unpacks to more than 200 times its size"),
    "a bomb in the texts": (bomb_in_what_is_not_looked_into, "memories.jsonl.gz unpacks to more than 200 times"),
    "a wrong checksum": (bad_crc, "Invalid zip file: memories.json is broken: Bad CRC-32"),
    "a wrong size": (lying_about_its_size, "memories.json"),
    "no gzip": (lambda: with_members(vectors__jsonl__gz=b"text"), "vectors.jsonl.gz is broken: Not a gzipped file"),
    "half a gzip": (
        lambda: with_members(access_logs__jsonl__gz=compressed([{"a": 1}] * 99)[:-12]),
        "access_logs.jsonl.gz",
    ),
    "a broken gzip of texts": (
        lambda: zipped(good() | {"memories.jsonl.gz": compressed([{"a": 1}])[:-3]}),
        "memories.jsonl.gz is broken: Compressed file ended",
    ),
    "a gzip with a wrong checksum": (
        lambda: zipped(good() | {"memories.jsonl.gz": compressed([{"a": 1}])[:-8] + b"\0" * 8}),
        "memories.jsonl.gz is broken: CRC check failed",
    ),
    "no JSON": (lambda: zipped({"memories.json": b"PK\x00"}), "memories.json: must be a JSON object"),
    "a list": (lambda: zipped({"memories.json": b"[]"}), "memories.json: must be a JSON object"),
    "an empty object": (lambda: zipped({"memories.json": b"{}"}), "memories: is missing in memories.json"),
    "half of the JSON": (
        lambda: zipped({"memories.json": good()["memories.json"][:-30]}),
        "is not valid JSON: it ends too soon",
    ),
    "no UTF-8": (lambda: zipped({"memories.json": b'{"user": "\xff"}'}), "user: is not valid JSON"),
    "NaN": (lambda: zipped({"memories.json": b'{"apps": [NaN]}'}), r"apps\[0\]: is not valid JSON"),
    "brackets without end": (
        lambda: zipped({"memories.json": b'{"memories": [' + b"[" * 100_000}),
        r"memories\[0\]: is nested more than 64 levels deep",
    ),
    "deep metadata": (
        lambda: changed("memories.0.metadata", json.loads('{"a":' * 70 + "1" + "}" * 70)),
        r"memories\[0\]: is nested more than 64 levels deep",
    ),
    "an enormous text": (
        lambda: changed("memories.0.content", "x" * (9 * MIB)),
        r"memories\[0\]: is larger than 8,388,608 bytes",
    ),
    "an enormous key": (lambda: changed("x" * (9 * MIB), 1), "is larger than 8,388,608 bytes"),
    "an enormous line": (
        lambda: lines("revisions.jsonl.gz", REVISION, REVISION | {"new_text": "x" * (9 * MIB)}),
        "revisions.jsonl.gz, line 2: is larger than 8,388,608 bytes",
    ),
    "version 2": (
        lambda: changed("export_meta.version", "2"),
        'export_meta.version: must be "1", not',
    ),
    "no memories": (lambda: changed("memories", ...), "memories: is missing in memories.json"),
    "version 1.0": (lambda: changed("export_meta.version", 1.0), 'export_meta.version: must be "1"'),
    "version true": (lambda: changed("export_meta.version", True), 'export_meta.version: must be "1"'),
    "a number that is none": (
        lambda: changed("memories.0.importance", float("nan")),
        r"memories\[0\].importance: must be a finite number",
    ),
    "many values in what nobody reads": (
        lambda: changed("more", [{"x": [{}] * 200_000}]),
        r"more\[0\]: has more than 200,000 JSON values \(limits.json_values\)",
    ),
    "many values of the user": (
        lambda: changed("user.metadata", {"x": [{}] * 200_000}),
        "user: has more than 200,000 JSON values",
    ),
    "many values on a line": (
        lambda: lines("access_logs.jsonl.gz", {"metadata": {"x": [{}] * 200_000}}),
        "access_logs.jsonl.gz, line 1: has more than 200,000 JSON values",
    ),
    "another's memory": (
        lambda: changed("memories.0.user_id", new_id()),
        r"memories\[0\].user_id: must be the id of the archive's user",
    ),
    "no object on a line": (
        lambda: lines("revisions.jsonl.gz", REVISION, 5),
        "line 2: must be a JSON object, not a numb",
    ),
    "no number of a revision": (
        lambda: lines("revisions.jsonl.gz", REVISION | {"revision": "1"}),
        "revisions.jsonl.gz, line 1.revision: must be a whole number, not a string",
    ),
    "revision 0": (
        lambda: lines("revisions.jsonl.gz", REVISION | {"revision": 0}),
        "line 1.revision: must be from 1 to 2,147,483,647",
    ),
    "one revision twice": (
        lambda: lines("revisions.jsonl.gz", REVISION, REVISION),
        "revisions.jsonl.gz, line 2.revision: must be unique; revisions.jsonl.gz, line 1 has the same",
    ),
    "no base64": (
        lambda: lines("vectors.jsonl.gz", {"id": REVISION["memory_id"], "model": "m", "text_hash": "h", "vector": "é"}),
        "vectors.jsonl.gz, line 1.vector: must be base64",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
async def test_a_file_that_is_no_good_archive_changes_nothing(
    api: httpx.AsyncClient, user: str, counts: Counts, name: str
) -> None:
    make, words = FILES[name]
    before = await counts()
    answer = await send(api, user, make())
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"] in ("invalid_archive", "archive_too_large")
    assert re.search(words, answer.json()["detail"]), answer.json()["detail"]
    assert await counts() == before


TYPES: dict[str, tuple[Any, str]] = {
    "user": (5, "user: must be an object, not a number"),
    "user.id": ("x", "user.id: must be a UUID, not another string"),
    "user.name": (5, "user.name: must be a string or null, not a number"),
    "user.metadata": ([], "user.metadata: must be an object, not a list"),
    "apps": ({}, "apps: must be a list, not an object"),
    "apps.0": ("openmemory", "apps[0]: must be an object, not a string"),
    "apps.0.name": (None, "apps[0].name: must be a string, not null"),
    "apps.0.is_active": ("yes", "apps[0].is_active: must be true or false, not a string"),
    "categories.0.name": (..., "categories[0].name: is missing; it must be a string"),
    "memories": ("all", "memories: must be a list, not a string"),
    "memories.0.id": (7, "memories[0].id: must be a UUID, not a number"),
    "memories.0.user_id": (..., "memories[0].user_id: is missing; it must be a UUID"),
    "memories.0.content": (None, "memories[0].content: must be a string, not null"),
    "memories.0.metadata": ("x", "memories[0].metadata: must be an object, not a string"),
    "memories.0.state": ("gone", "memories[0].state: must be one of active, paused, archived, deleted"),
    "memories.0.created_at": ("yesterday", "memories[0].created_at: must be a time in ISO 8601"),
    "memories.0.updated_at": (True, "memories[0].updated_at: must be a time in ISO 8601"),
    "memories.0.deleted_at": ("0001-01-01T00:00:00+23:59", "memories[0].deleted_at: must be a time in ISO 8601"),
    "memories.0.category_ids": ("food", "memories[0].category_ids: must be a list of UUIDs, not a string"),
    "memories.0.category_ids.0": ("food", "memories[0].category_ids[0]: must be a UUID, not another string"),
    "memories.0.importance": ("high", "memories[0].importance: must be a number or null, not a string"),
    "memories.0.revision": (2**40, "memories[0].revision: must be from 1 to 2,147,483,647"),
    "memories.0.namespace": (5, "memories[0].namespace: must be a string, not a number"),
    "memory_categories.0.memory_id": (None, "memory_categories[0].memory_id: must be a UUID, not null"),
    "status_history.0.new_state": ("new", "status_history[0].new_state: must be one of active, paused"),
    "status_history.0.changed_at": ("2025-13-01", "status_history[0].changed_at: must be a time in ISO 8601"),
    "access_controls.0.effect": ("maybe", "access_controls[0].effect: must be one of allow, deny"),
    "export_meta": ([], "export_meta: must be an object, not a list"),
}


@pytest.mark.parametrize("path", TYPES)
async def test_a_value_of_another_type_is_told_with_its_place(
    api: httpx.AsyncClient, user: str, counts: Counts, path: str
) -> None:
    value, words = TYPES[path]
    before = await counts()
    answer = await send(api, user, changed(path, value))
    assert answer.status_code == 400, answer.text
    assert answer.json()["detail"].startswith(words), answer.json()["detail"]
    assert await counts() == before


@pytest.mark.parametrize("kind", ["apps", "categories", "memories", "status_history", "access_controls"])
async def test_an_id_that_is_there_twice_is_refused(
    api: httpx.AsyncClient, user: str, counts: Counts, kind: str
) -> None:
    archive = Upstream()
    memory = archive.memory("something", categories=[archive.category("food")])
    archive.change(memory, "deleted", "active")
    archive.rule(archive.app_id, "deny", memory)
    archive.tables[kind].append(archive.tables[kind][0])
    before = await counts()
    answer = await send(api, user, archive.zip())
    detail = f"{kind}[1].id: must be unique; {kind}[0] has the same"
    assert (answer.status_code, answer.json()["detail"]) == (400, detail)
    assert await counts() == before


async def test_a_failure_at_the_very_end_leaves_nothing_of_what_was_good(
    api: httpx.AsyncClient, user: str, counts: Counts
) -> None:
    archive = Upstream()
    for number in range(3_000):
        archive.memory(f"a good memory, number {number}")
    archive.memory("and one that is not", created_at="tomorrow")
    before = await counts()
    answer = await send(api, user, archive.zip())
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("memories[3000].created_at: must be")
    assert await counts() == before


async def test_an_archive_over_the_limit_is_refused_before_it_is_read(
    make_client: MakeClient, user: str, counts: Counts
) -> None:
    before = await counts()
    large = zipped(good() | {"noise": b"x" * 150_000}, method=zipfile.ZIP_STORED)
    little = zipped(good() | {"noise": b"x" * 20_000}, method=zipfile.ZIP_STORED)
    form = httpx.Request("POST", "http://x", files={"file": ("a.zip", large)}, data={"user_id": user})
    form.read()

    async def pieces() -> Any:
        for at in range(0, len(form.content), 1_000):
            yield form.content[at : at + 1_000]

    async with make_client(limits={"backup": 20_000}) as client:
        known = await send(client, user, large)
        unknown = await client.post(IMPORT, content=pieces(), headers={"Content-Type": form.headers["Content-Type"]})
        beside = await send(client, user, little)
    assert (known.status_code, unknown.status_code, beside.status_code) == (413, 413, 413)
    assert known.json()["detail"].endswith("the limit is 85,536 (limits.backup)")
    assert unknown.json()["detail"] == "body: is longer than 85,536 bytes; the limit is 85,536 (limits.backup)"
    assert beside.json()["detail"] == f"file: has {len(little):,} bytes; the limit is 20,000 (limits.backup)"
    assert await counts() == before


async def test_an_archive_that_unpacks_to_too_much_in_all_is_refused(
    make_client: MakeClient, user: str, counts: Counts
) -> None:
    archive = Upstream()
    for number in range(40):
        archive.memory(f"{number} " + "the same again and again " * 100)
    before = await counts()
    async with make_client(limits={"backup": 6_000}) as client:
        answer = await send(client, user, archive.zip())
    assert answer.status_code == 400, answer.text
    assert answer.json()["detail"] == "Invalid zip file: it unpacks to more than 96,000 bytes (16 times limits.backup)"
    assert await counts() == before


async def test_vectors_that_cannot_be_ours_are_not_taken(services: Services, api: httpx.AsyncClient, user: str) -> None:
    archive = Upstream()
    memory = archive.memory("something")
    model, size = services.embedder.model, await services.embedder.dimension()
    right = np.eye(1, size, dtype="<f4")[0]

    def vector(values: Any, *, name: str = model, hash_: str = text_hash("something")) -> dict[str, Any]:
        raw = np.asarray(values, "<f4").tobytes()
        return {"id": memory, "model": name, "text_hash": hash_, "vector": base64.b64encode(raw).decode()}

    wrong = [
        vector(np.full(size, np.nan)), vector(np.full(size, np.inf)), vector(right * 0), vector(right * 5),
        vector(right[:-1]),
        vector(right, name="another-model"), vector(right, hash_=text_hash("something else")),
        {"id": new_id(), "model": model, "text_hash": text_hash("something"), "vector": vector(right)["vector"]},
        {"id": memory, "model": model, "text_hash": text_hash("something"), "vector": "AAA="},
    ]  # fmt: skip
    tables = {"memories.json": json.dumps(archive.tables).encode()}
    report = await bring_in(api, user, zipped(tables | {"vectors.jsonl.gz": compressed(wrong)}))
    assert (report["memories"]["added"], report["vectors"]) == (1, 0)
    await services.outbox_delivery.drain()
    report = await bring_in(api, user, zipped(tables | {"vectors.jsonl.gz": compressed([vector(right)])}))
    assert report["vectors"] == 0  # the one that was made meanwhile is as good
