"""Writes an archive. Each part is one query in the same snapshot, read in pages that are written immediately."""

from __future__ import annotations

import asyncio
import base64
import gzip
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any, cast
from uuid import UUID

import orjson
from sqlalchemy import text

from openmemory.backup.container import lines_member
from openmemory.backup.format import TABLES, VERSION
from openmemory.database.engine import Tx
from openmemory.errors import NotFound
from openmemory.schema.archives import MEMBERS, MEMORIES, SECTIONS, USER, VECTORS
from openmemory.uploads.spool import Spool

_PAGE = 1_000
"""Rows held in memory at a time."""
_VECTOR_PAGE = 100
"""Rows of vectors held in memory at a time. A long text has 32 vectors of up to 12 kB each."""


@dataclass(frozen=True, slots=True)
class ExportSelection:
    """The selection to export: an app's memories, a time range (ends included), or all; with or without vectors."""

    app_id: UUID | None = None
    from_date: datetime | None = None
    to_date: datetime | None = None
    vectors: bool = True

    @property
    def whole(self) -> bool:
        """True if all of the user's memories are selected."""
        return (self.app_id, self.from_date, self.to_date) == (None, None, None)


class ArchiveWriter:
    """Writes one archive into a file."""

    def __init__(self, tx: Tx, user_id: UUID, selection: ExportSelection, *, generator: str) -> None:
        """`tx` must use one snapshot for its whole duration."""
        self._tx = tx
        self._selection = selection
        self._generator = generator
        self._values = {
            "user": user_id, "app": selection.app_id, "from": selection.from_date, "to": selection.to_date,
            "whole": selection.whole,
        }  # fmt: skip

    async def write(self, archive: Spool, ids: Spool) -> int:
        """Writes the archive to `archive` and the ids of its memories, one per line, to `ids`. Returns their number."""
        with zipfile.ZipFile(cast(IO[bytes], archive), "w", zipfile.ZIP_DEFLATED, compresslevel=6) as zip_file:
            with zip_file.open(TABLES, "w", force_zip64=True) as member:
                count = await self._tables(member, ids)
            for name, of in MEMBERS.items():
                if of is not VECTORS:
                    with lines_member(zip_file, name) as member:
                        async for page in self._pages(text(of.query)):
                            await asyncio.to_thread(member.write, "".join(f"{row[0]}\n" for row in page).encode())
            if self._selection.vectors:
                with lines_member(zip_file, VECTORS.name, level=1) as member:
                    async for page in self._pages(text(VECTORS.query), _VECTOR_PAGE):
                        await asyncio.to_thread(_write_vectors, member, page)
        await asyncio.to_thread(archive.flush)
        return count

    async def _tables(self, member: IO[bytes], ids: Spool) -> int:
        count = 0
        user = await self._tx.scalar(text(USER.query), self._values)
        if user is None:
            raise NotFound("User not found", code="user_not_found")
        await asyncio.to_thread(member.write, f'{{\n"user": {user}'.encode())
        for key, of in SECTIONS.items():
            await asyncio.to_thread(member.write, f',\n"{key}": ['.encode())
            separator = "\n"
            async for page in self._pages(text(of.query)):
                data = separator + ",\n".join(row[0] for row in page)
                separator = ",\n"
                await asyncio.to_thread(member.write, data.encode())
                if of is MEMORIES:
                    count += len(page)
                    await asyncio.to_thread(ids.write, "".join(f"{row[1]}\n" for row in page).encode())
            await asyncio.to_thread(member.write, b"\n]")
        await asyncio.to_thread(member.write, b',\n"export_meta": ' + orjson.dumps(self._meta()) + b"\n}\n")
        return count

    def _meta(self) -> dict[str, Any]:
        selection = self._selection
        return {
            "app_id_filter": None if selection.app_id is None else str(selection.app_id),
            "from_date": None if selection.from_date is None else int(selection.from_date.timestamp()),
            "to_date": None if selection.to_date is None else int(selection.to_date.timestamp()),
            "version": VERSION,
            "generated_at": datetime.now(UTC).isoformat(),
            "include_vectors": selection.vectors,
            "generator": self._generator,
        }

    async def _pages(self, query: Any, size: int = _PAGE) -> AsyncIterator[list[Any]]:
        """The rows of a query, `size` at a time, from a server-side cursor."""
        names = query.compile().params
        values = {name: value for name, value in self._values.items() if name in names}
        async with self._tx.stream(query, values, execution_options={"max_row_buffer": size}) as result:
            async for page in result.partitions(size):
                yield list(page)


def _write_vectors(member: gzip.GzipFile, rows: list[Any]) -> None:
    lines = (
        orjson.dumps(
            row._asdict() | {"vector": base64.b64encode(row.vector).decode()}, option=orjson.OPT_APPEND_NEWLINE
        )
        for row in rows
    )
    member.write(b"".join(lines))
