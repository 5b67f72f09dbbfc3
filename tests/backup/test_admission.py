"""An archive that is sent or read takes from others neither their turn nor their disk."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import namedtuple
from typing import Any

import httpx
import pytest

from openmemory.backup import service
from openmemory.errors import Unavailable
from openmemory.uploads import admission
from openmemory.uploads.admission import Admission, paced
from tests.backup.archives import Upstream, new_id, send, zipped


async def test_who_has_a_turn_waits_behind_themself_and_not_before_others() -> None:
    few = Admission(2, patience=5)
    order: list[str] = []
    first_may_end = asyncio.Event()

    async def take(of: str, name: str, until: asyncio.Event | None = None) -> None:
        async with few.turn(of):
            order.append(name)
            if until is not None:
                await until.wait()

    tasks = [asyncio.create_task(take("a", "a1", first_may_end))]
    tasks += [asyncio.create_task(take("a", f"a{number}")) for number in (2, 3, 4)]
    await asyncio.sleep(0)
    await take("b", "b1")
    assert order == ["a1", "b1"]
    first_may_end.set()
    await asyncio.gather(*tasks)
    assert order == ["a1", "b1", "a2", "a3", "a4"]
    assert few._own == {}


async def test_a_turn_that_does_not_come_is_told_and_held_against_nobody() -> None:
    few = Admission(1, patience=0.05)
    async with few.turn("a"):
        for of in ("a", "b"):
            with pytest.raises(Unavailable) as refused:
                async with few.turn(of):
                    pass
            assert refused.value.code == "backup_busy"
    for of in ("a", "b"):
        async with few.turn(of):
            pass
    assert few._own == {}


async def test_what_comes_fast_enough_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "GRACE", 0.1)
    async with paced() as came:
        came(admission.MIN_UPLOAD_RATE)
        await asyncio.sleep(0.3)

    async def stall() -> None:
        async with paced() as came:
            came(admission.MIN_UPLOAD_RATE // 10)
            await asyncio.sleep(5)

    with pytest.raises(Unavailable) as refused:
        await stall()
    assert refused.value.code == "upload_too_slow"


@pytest.mark.slow
async def test_slow_uploads_of_one_user_do_not_keep_others_out(api: httpx.AsyncClient, user: str) -> None:
    """The wire lets 1,024 bytes a second pass: four such uploads of 1 GB last for days."""
    app: Any = api._transport.app  # type: ignore[attr-defined]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/api/v1/backup/import", "raw_path": b"/api/v1/backup/import", "query_string": b"", "root_path": "",
        "client": ("127.0.0.1", 1), "server": ("localhost", 8765),
        "headers": [(b"host", b"localhost:8765"), (b"content-type", b"multipart/form-data; boundary=b")],
    }  # fmt: skip
    answers: list[dict[str, Any]] = []

    async def slow() -> None:
        async def receive() -> dict[str, Any]:
            await asyncio.sleep(1)
            return {"type": "http.request", "body": b"", "more_body": True}

        async def answered(message: Any) -> None:
            answers.append(message)

        await app(dict(scope), receive, answered)

    uploads = [asyncio.create_task(slow()) for _ in range(4)]
    await asyncio.sleep(0.5)
    archive = Upstream()
    archive.memory("mine")
    try:
        answer = await send(api, user, archive.zip())
    finally:
        for each in uploads:
            each.cancel()
        await asyncio.gather(*uploads, return_exceptions=True)
    assert answer.status_code == 200, answer.text
    assert {message["status"] for message in answers if message["type"] == "http.response.start"} == {503}


@pytest.mark.parametrize("kind", ["memories", "status_history"])
async def test_an_id_that_is_repeated_is_refused_before_the_rest_is_read(
    api: httpx.AsyncClient, user: str, kind: str
) -> None:
    """A zip says the same row a million times in next to no bytes; what is broken at the end is never reached."""
    archive = Upstream()
    archive.change(archive.memory("something"), "deleted", "active")
    archive.tables[kind] = [*archive.tables[kind], *archive.tables[kind], 5]
    answer = await send(api, user, zipped({"memories.json": json.dumps(archive.tables).encode()}))
    detail = f"{kind}[1].id: must be unique; {kind}[0] has the same"
    assert (answer.status_code, answer.json()["detail"]) == (400, detail)


async def test_lists_have_so_many_entries_and_no_more(
    api: httpx.AsyncClient, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Upstream()
    archive.memory("something")
    for number in range(10_000):
        archive.tables["apps"].append(archive.tables["apps"][0] | {"id": new_id(), "name": f"app {number}"})
    answer = await send(api, user, archive.zip())
    assert answer.status_code == 400
    assert answer.json()["detail"] == "Invalid zip file: apps has more than 10,000 entries"


async def test_reading_stops_where_the_disk_ends(
    api: httpx.AsyncClient, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read comes to be written: there must be room for that too."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**40, 2**40, 300 * 2**20))
    monkeypatch.setattr(service, "_SPACE_CHECK_BYTES", 100_000)
    monkeypatch.setattr(service, "_WRITE_FACTOR", 1_000)
    archive = Upstream()
    for number in range(2_000):
        archive.memory(f"{number} is a number that is remembered")
    answer = await send(api, user, archive.zip())
    assert (answer.status_code, answer.json()["error"]) == (503, "no_room")


async def test_reading_ends_in_time(api: httpx.AsyncClient, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_READING", 0)
    monkeypatch.setattr(service, "_PACE", 10**12)
    archive = Upstream()
    archive.memory("something")
    answer = await send(api, user, archive.zip())
    assert (answer.status_code, answer.json()["error"]) == (400, "archive_too_large")
