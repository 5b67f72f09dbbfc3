"""The data folder and PostgreSQL: claimed, started and upgraded before any service opens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from openmemory.access.first_key import require_a_key
from openmemory.capture import queue
from openmemory.config.settings import DatabaseSettings, Settings
from openmemory.database.engine import Database
from openmemory.database.granted import most_connections, pool_size
from openmemory.embedded.folder import DataFolder, default_data_dir
from openmemory.embedded.postgres import EmbeddedPostgres
from openmemory.index.lease import leased
from openmemory.index.sync import outbox
from openmemory.schema import migrate
from openmemory.search import lexicon

INDEX_FOLDER = "qdrant"
"""The folder of the built-in index, within the data folder."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The data folder, and the address of PostgreSQL. `shared`: other processes may serve the same PostgreSQL.

    `index_socket`: the unix socket on which another process serves the built-in index; None: this process opens it.
    `index_lease`: the name of this service as a holder of the index lease; None: nobody else can want it.
    `local_key`: the credential of those who may read the folder. `database` may contain a password. `pool_size`: the
    connections that the server grants to each pool of a process; None: as many as the settings say.
    """

    folder: Path
    database: str = field(repr=False)
    shared: bool
    index_socket: Path | None = None
    index_lease: str | None = None
    local_key: str | None = field(default=None, repr=False)
    pool_size: int | None = None

    def within_grant(self, settings: DatabaseSettings) -> DatabaseSettings:
        """Returns the settings with pools that the server has connections for."""
        return settings if self.pool_size is None else settings.model_copy(update={"pool_size": self.pool_size})


class Opened(NamedTuple):
    """The result of `open_stores`: the folder that this process owns, and its contents."""

    folder: DataFolder
    stores: Stores


def data_dir(settings: Settings) -> Path:
    """The folder of the built-in stores."""
    return Path(settings.data_dir).expanduser().absolute() if settings.data_dir else default_data_dir()


@asynccontextmanager
async def open_stores(
    settings: Settings, *, listen: str = "", workers: int = 1, serving: bool = False
) -> AsyncIterator[Opened]:
    """Take ownership of the data folder, start the built-in PostgreSQL unless another is configured, and upgrade the
    schema.

    `listen` is the address that is reported to a second process that wants the data folder; `workers` is the number of
    processes that will serve; `serving`: clients will be admitted.

    Raises:
        SetupError: the data folder or PostgreSQL cannot be used as configured, or serves with another index; or clients
            would be admitted, and no credential exists.
    """
    async with AsyncExitStack() as stack:
        folder = DataFolder.claim(data_dir(settings), listen=listen)
        stack.callback(folder.release)
        url = settings.database.url.get_secret_value()
        alone = not url  # the built-in PostgreSQL is ours alone as long as the folder is
        if alone:
            postgres = EmbeddedPostgres(folder, connections=most_connections(settings.database, processes=workers))
            await postgres.start()
            stack.push_async_callback(postgres.stop)
            url = postgres.url
        await migrate.upgrade(url, only_ours=("database", "url") in settings.inherited.values)
        database = Database(url, settings.database)
        stack.push_async_callback(database.close)
        await lexicon.choose(database, settings.search.language)
        if alone:
            async with database.transaction() as tx:
                await outbox.end_leases(tx)
                await queue.end_leases(tx)
        granted = await pool_size(database, settings.database, processes=workers)
        lease = None if alone else await stack.enter_async_context(leased(database, built_in=not settings.qdrant.url))
        if serving:
            await require_a_key(settings, database)
        shared = workers > 1 or not alone
        stores = Stores(folder.path, url, shared, index_lease=lease, local_key=folder.local_key(), pool_size=granted)
        yield Opened(folder, stores)
