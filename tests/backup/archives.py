"""Archives as OpenMemory wrote them, as we write them, and as nobody should."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import httpx

Tables = dict[str, Any]

IMPORT = "/api/v1/backup/import"
EXPORT = "/api/v1/backup/export"


def new_id() -> str:
    return str(uuid4())


class Upstream:
    """An archive by the tables of the contract: the keys that OpenMemory wrote, and no others."""

    def __init__(self, user: str = "alice") -> None:
        self.user_id = new_id()
        self.app_id = new_id()
        self.tables: Tables = {
            "user": {
                "id": self.user_id, "user_id": user, "name": "Alice", "email": None, "metadata": {"theme": "dark"},
                "created_at": "2025-05-01T10:00:00+00:00", "updated_at": "2025-05-02T10:00:00+00:00",
            },
            "apps": [],
            "categories": [],
            "memories": [],
            "memory_categories": [],
            "status_history": [],
            "access_controls": [],
            "export_meta": {
                "app_id_filter": None, "from_date": None, "to_date": None, "version": "1",
                "generated_at": "2025-06-01T10:00:00+00:00",
            },
        }  # fmt: skip
        self.app("openmemory", id=self.app_id)

    def app(self, name: str, **more: Any) -> str:
        row = {
            "id": new_id(), "owner_id": self.user_id, "name": name, "description": None, "metadata": {},
            "is_active": True, "created_at": "2025-05-01T10:00:00+00:00", "updated_at": "2025-05-01T10:00:00+00:00",
        } | more  # fmt: skip
        self.tables["apps"].append(row)
        return str(row["id"])

    def category(self, name: str, **more: Any) -> str:
        row = {
            "id": new_id(), "name": name, "description": f"Automatically created category for {name}",
            "created_at": "2025-05-01T10:00:00+00:00", "updated_at": "2025-05-01T10:00:00+00:00",
        } | more  # fmt: skip
        self.tables["categories"].append(row)
        return str(row["id"])

    def memory(self, content: str, *, categories: Iterable[str] = (), **more: Any) -> str:
        row = {
            "id": new_id(), "user_id": self.user_id, "app_id": self.app_id, "content": content, "metadata": {},
            "state": "active", "created_at": "2025-05-03T10:00:00.123456+00:00",
            "updated_at": "2025-05-04T10:00:00+00:00", "archived_at": None, "deleted_at": None,
            "category_ids": list(categories),
        } | more  # fmt: skip
        self.tables["memories"].append(row)
        self.tables["memory_categories"] += [
            {"memory_id": row["id"], "category_id": category} for category in row["category_ids"]
        ]
        return str(row["id"])

    def change(self, memory: str, old: str, new: str, at: str = "2025-05-03T10:00:00+00:00", **more: Any) -> str:
        row = {
            "id": new_id(), "memory_id": memory, "changed_by": self.user_id, "old_state": old, "new_state": new,
            "changed_at": at,
        } | more  # fmt: skip
        self.tables["status_history"].append(row)
        return str(row["id"])

    def rule(self, subject: str | None, effect: str, object_id: str | None = None, **more: Any) -> str:
        row = {
            "id": new_id(), "subject_type": "app", "subject_id": subject, "object_type": "memory",
            "object_id": object_id, "effect": effect, "created_at": "2025-05-05T10:00:00+00:00",
        } | more  # fmt: skip
        self.tables["access_controls"].append(row)
        return str(row["id"])

    def zip(self, *, folder: str = "") -> bytes:
        """The archive as OpenMemory's export wrote it."""
        names = {row["id"]: row["name"] for row in self.tables["apps"] + self.tables["categories"]}
        lines = [
            {
                "id": row["id"], "content": row["content"], "metadata": row["metadata"],
                "created_at": row["created_at"], "updated_at": row["updated_at"], "state": row["state"],
                "app": names.get(row["app_id"]),
                "categories": [names[each] for each in row["category_ids"] if each in names],
            }
            for row in self.tables["memories"]
        ]  # fmt: skip
        return zipped(
            {
                f"{folder}memories.json": json.dumps(self.tables, indent=2).encode(),
                f"{folder}memories.jsonl.gz": compressed(lines),
            }
        )


def compressed(lines: Iterable[Any]) -> bytes:
    """JSON Lines in gzip."""
    return gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode())


def zipped(members: dict[str, bytes], *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return buffer.getvalue()


def members(archive: bytes) -> dict[str, bytes]:
    """What is in a zip, by name."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        assert file.testzip() is None
        return {name: file.read(name) for name in file.namelist()}


def tables_of(archive: bytes) -> Tables:
    """`memories.json` of an archive."""
    found: Tables = json.loads(members(archive)["memories.json"])
    return found


def lines_of(archive: bytes, name: str) -> list[dict[str, Any]]:
    """The lines of a member."""
    return [json.loads(line) for line in gzip.decompress(members(archive)[name]).splitlines()]


async def export(api: httpx.AsyncClient, user: str, **more: Any) -> bytes:
    """A user's archive."""
    answer = await api.post(EXPORT, json={"user_id": user} | more, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.content


async def send(
    api: httpx.AsyncClient, user: str, archive: bytes, *, name: str = "memories.zip", **more: Any
) -> httpx.Response:
    """Bring an archive in, whatever comes of it."""
    files = {"file": (name, archive, "application/zip")}
    return await api.post(IMPORT, files=files, data={"user_id": user}, timeout=120, **more)


async def bring_in(api: httpx.AsyncClient, user: str, archive: bytes, **more: Any) -> dict[str, Any]:
    """Bring an archive in; the report."""
    answer = await send(api, user, archive, **more)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    assert body["message"] == f'Import completed into user "{user}"'
    report: dict[str, Any] = body["report"]
    return report
