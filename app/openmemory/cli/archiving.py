"""Exports all memories of a user to an archive: a zip that the service creates and this module writes to a file."""

from __future__ import annotations

from openmemory.cli.client import Client
from openmemory.cli.exporting import drafted
from openmemory.cli.output import note, receiving
from openmemory.errors import Unavailable

SUFFIX = ".zip"
"""File name suffix of an archive."""


async def export_archive(client: Client, name: str, *, user: str | None, vectors: bool) -> None:
    """Writes the archive of a user to a file, which appears only when it is complete.

    Raises:
        SetupError: the file cannot be written.
        NotFound: there is no such user.
        Unavailable: the service does not answer, or the response ended early.
    """
    user = client.user(user)
    body = {"user_id": user, "include_vectors": vectors}
    with drafted(name, binary=True) as file, receiving("preparing") as show:
        async with client.stream("POST", "/api/v1/backup/export", body=body) as answer:
            total = int(answer.headers.get("content-length", "0"))
            written = 0
            async for data in answer.aiter_raw():
                file.write(data)
                written += len(data)
                show(written, total or None)
            if written != total:
                raise Unavailable(f"the archive broke off after {written:,} of {total:,} bytes")
    note(f"All that {user} remembers written to {name} ({written / 2**20:.1f} MiB).")
