"""Which services may serve one PostgreSQL together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.config import Settings
from app.database import Database
from app.errors import SetupError
from app.index.claim import claimed
from app.services import open_stores
from tests.clusters import furnish


@pytest.fixture(scope="module")
async def database(short_folder: Path) -> AsyncIterator[Database]:
    """One that no other test claims."""
    async with open_stores(Settings(data_dir=str(furnish(short_folder / "claim")))) as (_, stores):
        database = Database(stores.database, Settings().database)
        yield database
        await database.close()


@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True)])
async def test_a_built_in_index_is_the_only_one(database: Database, first: bool, second: bool) -> None:
    async with claimed(database, built_in=first):
        with pytest.raises(SetupError, match=r"^database\.url: another service .*\(qdrant\.url\)"):
            async with claimed(database, built_in=second):
                pass
    async with claimed(database, built_in=second):
        pass


async def test_any_number_may_share_a_server(database: Database) -> None:
    async with claimed(database, built_in=False), claimed(database, built_in=False):
        pass


async def test_a_second_service_with_an_index_of_its_own_is_refused_and_leaves_its_folder(
    database: Database, short_folder: Path
) -> None:
    settings = Settings.model_validate({"data_dir": str(short_folder / "claim-2"), "database": {"url": database.url}})
    async with claimed(database, built_in=True):
        with pytest.raises(SetupError, match="another service"):
            async with open_stores(settings):
                pass
    async with open_stores(settings) as (_, stores):
        assert stores.shared
