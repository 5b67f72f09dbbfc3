"""kill -9 of the service and of its PostgreSQL while messages, files and documents are written."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text

from openmemory.config.settings import Settings
from openmemory.services import Services, open_services
from tests.faults.test_kill import Service, until

KILLS = int(os.environ.get("OPENMEMORY_TEST_KILLS", "6"))
WRITERS = 2
SECTIONS = 12
USER = "load"


@pytest.fixture
def service(short_folder: Path) -> Iterator[Service]:
    service = Service(short_folder / "killed")
    service.start()
    yield service
    service.stop()


def written(name: str, version: int) -> str:
    """A text of several passages, each of which tells its version."""
    return "\n".join(f"# Part {part} of {name}\n\nVersion {version} of it.\n" for part in range(SECTIONS))


class Writers:
    """Clients that repeat each request until it is acknowledged."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._done = asyncio.Event()
        self.acknowledged: Counter[str] = Counter()
        """The last version of each file and document, and the number of messages of each thread."""
        self._tasks = [
            asyncio.create_task(self._write(kind, number))
            for number in range(WRITERS)
            for kind in (self._message, self._file, self._document)
        ]

    @property
    def total(self) -> int:
        assert not any(task.done() for task in self._tasks), "a writer met an answer that it cannot explain"
        return sum(self.acknowledged.values())

    async def end(self) -> None:
        self._done.set()
        await asyncio.gather(*self._tasks)

    async def _write(self, send: Any, number: int) -> None:
        for version in itertools.count(1):
            while not self._done.is_set():
                with suppress(httpx.HTTPError):
                    name, answer = await send(number, version)
                    if answer.status_code == 200:
                        results = answer.json().get("results", ())
                        assert not any("error" in result for result in results), answer.text
                        self.acknowledged[name] = version
                        break
                    assert answer.status_code == 503, answer.text
                await asyncio.sleep(0.02)
            if self._done.is_set():
                return

    async def _message(self, number: int, version: int) -> tuple[str, httpx.Response]:
        said = [{"content": f"Message {version}.", "id": f"m-{version}"}]
        path = f"/api/v1/threads/thread-{number}/messages"
        body = {"user_id": USER, "app": "load", "messages": said}
        return f"thread-{number}", await self._client.post(path, json=body, timeout=20)

    async def _file(self, number: int, version: int) -> tuple[str, httpx.Response]:
        name = f"file-{number}.md"
        body = {"user_id": USER, "app": "load", "files": [{"path": name, "text": written(name, version)}]}
        return name, await self._client.post("/api/v1/files/batch", json=body, timeout=20)

    async def _document(self, number: int, version: int) -> tuple[str, httpx.Response]:
        name = f"document-{number}.md"
        form = {"user_id": USER, "app": "load"}
        sent = {"file": (name, written(name, version).encode())}
        return name, await self._client.post("/api/v1/documents", data=form, files=sent, timeout=20)


@pytest.mark.slow
@pytest.mark.journey
@pytest.mark.timeout(2400)
async def test_sources_are_whole_however_often_we_are_killed(service: Service) -> None:
    chance, killed = random.Random(7), Counter[str]()
    async with httpx.AsyncClient(base_url=service.url) as client:
        writers = Writers(client)
        for _ in range(KILLS):
            enough = writers.total + chance.randint(3, 30)

            async def some_more(enough: int = enough) -> bool:
                return writers.total >= enough

            await until(some_more)
            await asyncio.sleep(chance.random() * 0.1)
            if chance.random() < 0.6:
                service.kill()
                service.start()
                killed["service"] += 1
            else:
                service.kill_postgres()
                killed["postgres"] += 1
        after = writers.total + 10

        async def still_writing() -> bool:
            return writers.total >= after

        await until(still_writing)
        await writers.end()
    service.stop()
    settings = Settings.model_validate({"data_dir": str(service.folder), "port": 0})
    async with open_services(settings) as services:
        await _is_whole(services, writers.acknowledged)
        orphans = await _is_swept(services)
    print(json.dumps({"killed": killed, "acknowledged": writers.acknowledged, "orphans that were swept": orphans}))


async def _is_whole(services: Services, acknowledged: Counter[str]) -> None:
    """Every source has what was acknowledged, and nothing of it twice or in part."""
    query = """
        SELECT s.kind, s.locator, s.id, array_agg(p.content ORDER BY p.position) AS said
        FROM sources AS s JOIN passages AS p ON p.source_id = s.id GROUP BY s.id
    """
    async with services.database.statement() as tx:
        sources = (await tx.execute(text(query))).all()
    assert {source.locator for source in sources} == set(acknowledged)
    owner = await services.directory.caller(USER, None, owner=True)
    for source in sources:
        version = acknowledged[source.locator]
        if source.kind == "conversation":
            # The last one may be stored without its answer.
            assert source.said in ([f"Message {n}." for n in range(1, most + 1)] for most in (version, version + 1))
            continue
        assert len(source.said) == SECTIONS
        [there] = {int(found[1]) for found in map(_version, source.said)}
        assert there in (version, version + 1), source.locator
        if source.kind == "document":
            content = (await services.documents.download(owner, source.id)).content
            original = b"".join([chunk async for chunk in content]).decode()
            assert original == written(source.locator, there)


def _version(said: str) -> re.Match[str]:
    found = re.search(r"Version (\d+)", said)
    assert found is not None, said
    return found


async def _is_swept(services: Services) -> int:
    """After one sweep there are the originals of documents and no others. Returns the number of those that went."""
    async with services.database.transaction() as tx:
        await tx.execute(text("UPDATE object_deletions SET due_at = now()"))
        keys = await tx.scalars(text("SELECT object_key FROM sources WHERE kind = 'document'"))
        kept = {UUID(str(key).partition("/")[2]) for key in keys}
    orphans = await services.objects.sweep()
    there = [path.name for path in (services.stores.folder / "objects").glob("*/*")]
    assert sorted(there) == sorted(map(str, kept))
    return orphans
