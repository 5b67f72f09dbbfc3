"""PostgreSQL servers that hold nothing."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from openmemory.embedded.folder import DataFolder
from openmemory.embedded.postgres import EmbeddedPostgres
from tests.folders import new_folder


@asynccontextmanager
async def server() -> AsyncIterator[str]:
    """The address of an empty database on a server of its own."""
    parent = new_folder()
    parent.chmod(0o755)
    try:
        folder = DataFolder.claim(parent / "data", listen="")
        postgres = EmbeddedPostgres(folder)
        await postgres.start()
        try:
            yield postgres.url
        finally:
            await postgres.stop()
            folder.release()
    finally:
        shutil.rmtree(parent)
