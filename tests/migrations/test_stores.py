"""The stores that earlier versions made, with a row in every table: upgraded, they have everything and work."""

from __future__ import annotations

import asyncio
import gzip
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from openmemory.config.settings import Settings
from openmemory.embedded.binaries import installed
from openmemory.embedded.folder import DataFolder
from openmemory.embedded.postgres import EmbeddedPostgres
from openmemory.schema.catalogue import lacking_now
from openmemory.services import Services, open_services
from tests.backup.archives import export, tables_of
from tests.backup.conftest import client_of
from tests.folders import new_folder
from tests.living import living
from tests.migrations.making import USER
from tests.migrations.test_landed import VERSIONS

STORES = sorted(Path(__file__).with_name("stores").glob("*.sql.gz"))
QUEUES = {
    "embedding_tokens", "index_lease", "index_outbox", "mcp_messages", "mcp_sessions", "near_memories",
    "object_deletions", "pending_categorizations", "pending_comparisons", "rate_limits",
    "reclassification_requests", "alembic_version", "lexical_statistics", "passage_statistics",
}  # fmt: skip
"""Tables whose rows the service makes and removes by itself."""


@asynccontextmanager
async def opened(dump: bytes) -> AsyncIterator[Services]:
    """The service on the data of a dump."""
    parent = new_folder()
    parent.chmod(0o755)
    try:
        folder = DataFolder.claim(parent / "data", listen="")
        postgres = EmbeddedPostgres(folder)
        await postgres.start()
        url = make_url(postgres.url).set(drivername="postgresql").render_as_string(hide_password=False)
        load = [installed().program("psql"), "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", url]
        await asyncio.to_thread(subprocess.run, load, input=dump, check=True, stdout=subprocess.DEVNULL)
        await postgres.stop()
        folder.release()
        async with open_services(Settings(data_dir=str(parent / "data"), port=0)) as services:
            yield services
    finally:
        shutil.rmtree(parent)


def rows_of(dump: bytes) -> dict[str, int]:
    """How many rows every table of a dump has."""
    copies = re.findall(r"^COPY public\.(\w+) .*?;\n(.*?)^\\\.$", dump.decode(), re.MULTILINE | re.DOTALL)
    return {table: rows.count("\n") for table, rows in copies}


async def count(services: Services, table: str) -> int:
    async with services.database.statement() as tx:
        return (await tx.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one()


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES, ids=lambda store: store.name.partition(".")[0])
async def test_a_store_of_an_earlier_version_is_upgraded_with_all_its_rows_and_works(store: Path) -> None:
    dump = gzip.decompress(store.read_bytes())  # noqa: ASYNC240
    made = rows_of(dump)
    assert len(made) > 35
    assert all(made.values())
    async with living(opened(dump)) as services, client_of(services) as client:
        async with services.database.transaction() as tx:
            assert await lacking_now(tx) == []
        kept = {table: rows for table, rows in made.items() if table not in QUEUES}
        # Jobs may add some, but none is lost.
        assert {table: min(await count(services, table), rows) for table, rows in kept.items()} == kept

        archive = tables_of(await export(client, USER))
        assert len(archive["memories"]) >= made["memories"]
        assert len(archive["access_controls"]) == made["access_controls"]
        added = await client.post("/api/v1/memories/", json={"user_id": USER, "text": "Ada moved to Porto."})
        assert added.status_code == 200, added.text
        asked = {"user_id": USER, "query": "who leads the team?", "corpus": "both"}
        found = (await client.post("/api/v1/memories/search", json=asked)).json()
        assert found["results"][0]["memory"] == "team/lead: Zoe leads ada."
        erased = await client.delete(f"/api/v1/users/{USER}", params={"confirm": USER})
        assert erased.status_code == 200, erased.text
        assert [await count(services, table) for table in ("memories", "sources", "embeddings")] == [0, 0, 0]


def test_there_is_a_store_for_every_month_in_which_a_migration_landed() -> None:
    months = {file.name[:7].replace("_", "-") for file in VERSIONS.glob("*.py")}
    assert months - {store.name[:7] for store in STORES} - {max(months)} == set()
    assert STORES
