"""Reads what Pimemento stored: its folder of JSON files, or its table in PostgreSQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from openmemory.identity.names import PERSON
from openmemory.importers.databases import ForeignDatabase, Show, must_have, read
from openmemory.importers.filling import Filling, filled, later, object_of, text_or_none
from openmemory.importers.source import BadSource

_FILE = "memory.json"
_PUT_ASIDE = f"{_FILE}.corrupt-*.bak"
_COLUMNS = (
    "id", "client_id", "user_id", "namespace", "content", "metadata", "category", "type", "reason", "created_at",
    "updated_at", "expires_at", "source_mcp", "merged_from",
)  # fmt: skip
_NOBODY = "_anonymous"
_DEFAULT_CLIENT, _DEFAULT_NAMESPACE = "_default", "general"
_MAX_FILE_BYTES = 256 * 1024 * 1024


def stage(database: ForeignDatabase, filling: Filling, show: Show) -> None:
    """Stages the table of the PostgreSQL backend.

    Raises:
        BadSource: it is not a database of Pimemento.
    """
    must_have(database, "Pimemento", {"memories": ("client_id", "content", "source_mcp")})
    for _, row in read(database, {"memories": _COLUMNS}, show):
        _take(filling, row, row.get("client_id"))


def stage_folder(path: Path, filling: Filling, show: Show) -> None:
    """Stages the folder of the JSON backend, which has a folder with a `memory.json` for each client; or one such file.

    Raises:
        BadSource: there is no such file in it.
    """
    folder = path if path.is_dir() else path.parent
    files = (sorted(path.glob(f"*/{_FILE}")) or sorted(path.glob(_FILE))) if path.is_dir() else [path]
    if not files:
        raise BadSource(f"must be the folder of Pimemento; it has no CLIENT/{_FILE}")
    for number, file in enumerate(files, 1):
        client = file.parent.resolve().name
        for place, entry in enumerate(_entries(file, client, filling), 1):
            if isinstance(entry, dict):
                _take(filling, entry, entry.get("client_id") or client)
            else:
                filling.staging.refuse("memories", {"id": f"{client} {place}"}, "must be a JSON object")
        show(number, len(files))
    if damaged_files := sorted(file.relative_to(folder).as_posix() for file in folder.rglob(_PUT_ASIDE)):
        count, first = len(damaged_files), damaged_files[0]
        filling.staging.general_notes.append(
            f"Not imported: {count} damaged files that Pimemento put aside, the first of them {first}."
        )


def _entries(file: Path, client: str, filling: Filling) -> list[Any]:
    reason = f"{_FILE}: must be a JSON array; the file is damaged"
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            reason = f"{_FILE}: must have at most {_MAX_FILE_BYTES:,} bytes"
        elif isinstance(entries := json.loads(file.read_bytes()), list):
            return entries
    except (ValueError, RecursionError):
        pass  # reported below
    except OSError as error:
        reason = f"{_FILE}: cannot be read: {error.strerror}"
    filling.staging.refuse("memories", {"id": f"all of {client}"}, reason)
    return []


def _take(filling: Filling, entry: dict[str, Any], client: Any) -> None:
    created_at = entry.get("created_at") or entry.get("date")
    days = entry.get("ttl_days")
    expires = entry.get("expires_at")
    if not expires and isinstance(days, int | float) and days:
        expires = later(created_at, days=days)
    user = text_or_none(entry.get("user_id")) or _NOBODY
    client = text_or_none(client) or _DEFAULT_CLIENT
    part = text_or_none(entry.get("namespace")) or _DEFAULT_NAMESPACE
    # The fields that the tools of Pimemento read.
    about = {"namespace": part.lower(), "user_id": user} | filled(
        reason=entry.get("reason"),
        source_mcp=text_or_none(entry.get("source_mcp")),
        merged_from=entry.get("merged_from"),
    )
    id_ = entry.get("id") or filling.id("memory", client, part, user, str(created_at), str(entry.get("content")))
    row = {
        "id": filling.memory_id(id_), "content": entry.get("content"),
        "namespace": PERSON if client == _DEFAULT_CLIENT else client,
        "kind": text_or_none(entry.get("type")), "metadata": object_of(entry.get("metadata")) | about,
        "created_at": created_at, "updated_at": entry.get("updated_at") or created_at, "expires_at": expires or None,
    }  # fmt: skip
    category = text_or_none(entry.get("category"))
    owner = None if user == _NOBODY else user
    filling.memory(row, user=owner, app=entry.get("source_mcp"), categories=[category] if category else [])
