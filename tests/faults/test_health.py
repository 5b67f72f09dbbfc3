"""/health/ready and `openmemory doctor` notice a fault that fails every write or read, and name it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.clusters import furnish
from tests.faults.disks import disk
from tests.journeys.service import Service, short_parent, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Served:
    """A service, and the superuser of its database."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.http = httpx.Client(base_url=url, timeout=60)

    def add(self, text: str) -> httpx.Response:
        return self.http.post("/api/v1/memories/", json={"user_id": "ada", "text": text})

    def ready(self) -> tuple[int, str, str | None]:
        """The status code, the status and the error of PostgreSQL."""
        answer = self.http.get("/health/ready")
        assert answer.status_code == 200 or int(answer.headers["retry-after"]) >= 1
        return answer.status_code, answer.json()["status"], answer.json()["checks"]["postgres"]["error"]

    def problems(self) -> list[str]:
        found: dict[str, Any] = self.http.get("/api/v1/doctor").json()
        assert (found["status"] == "ok") == (found["problems"] == [])
        return list(found["problems"])

    @contextmanager
    def superuser(self) -> Iterator[psycopg.Connection]:
        address = f"postgresql://postgres@/openmemory?host={self.folder / 'run'}"
        with closing(psycopg.connect(address, autocommit=True)) as connection:
            yield connection


@contextmanager
def served(folder: Path, **environment: str) -> Iterator[Served]:
    service = Service("--data-dir", str(furnish(folder)), "--port", "0", **environment)
    try:
        found = Served(folder, service.ready())
        with closing(found.http):
            assert found.ready() == (200, "ok", None)
            assert found.add("Ada likes tea.").status_code == 200
            assert found.problems() == []
            yield found
    finally:
        service.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_parent() as parent:
        yield parent / "data"


def long_text() -> str:
    """A text that no other is like and that cannot be compressed well."""
    return "Ada counts: " + " ".join(str(random.randrange(10**6)) for _ in range(1_000))


def fails_as(service: Served, code: str, words: str) -> None:
    """Nothing can be written, and everything that tells of the health says why."""
    answer = service.add(long_text())
    assert (answer.status_code, answer.json()["error"], answer.json()["detail"]) == (503, code, words)
    until(lambda: service.ready() == (503, "down", words), 20)
    assert f"postgres: {words}" in service.problems()


def is_well_again(service: Served) -> None:
    until(lambda: service.ready()[:2] == (200, "ok"), 30)
    assert service.add("Ada likes water.").status_code == 200
    until(lambda: service.problems() == [], 30)


def test_a_full_disk_is_noticed_and_named(folder: Path) -> None:
    with disk(folder, megabytes=400) as small, served(folder) as service:
        small.fill()
        try:
            until(lambda: service.add(long_text()).status_code != 200, 30)
            fails_as(service, "database_full", "The disk of the database is full.")
        finally:
            small.empty()
        is_well_again(service)


def test_a_lock_on_the_data_is_noticed_and_named(folder: Path) -> None:
    with served(folder, OPENMEMORY_DATABASE_STATEMENT_TIMEOUT="3") as service:
        with service.superuser() as admin, admin.transaction():
            admin.execute("LOCK TABLE memories IN ACCESS EXCLUSIVE MODE")
            fails_as(service, "database_locked", "Somebody else has locked the data in the database.")
        is_well_again(service)


def test_a_read_only_database_is_noticed_and_named(folder: Path) -> None:
    with served(folder) as service, service.superuser() as admin:
        admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        admin.execute("SELECT pg_reload_conf()")
        fails_as(service, "database_read_only", "The database is read-only at the moment.")
        admin.execute("SET default_transaction_read_only = off")
        admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
        admin.execute("SELECT pg_reload_conf()")
        is_well_again(service)


def test_something_that_is_missing_in_the_schema_is_noticed_and_named(folder: Path) -> None:
    with served(folder) as service, service.superuser() as admin:
        admin.execute("DROP INDEX idx_capture_failed")
        admin.execute("DROP TABLE memory_links")
        [problem] = service.problems()
        assert problem.startswith("schema: the database lacks table memory_links, check memory_links.")
