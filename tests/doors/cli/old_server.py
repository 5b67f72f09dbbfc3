"""A server as mem0's OpenMemory was, as far as a migration asks it: export, log of accesses, statistics."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import zipfile
from pathlib import Path
from typing import Any
from uuid import UUID

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


class OldServer:
    """Serves a database. `asked` is what it was asked, `most` how many logs it was asked for at a time."""

    def __init__(self, path: Path, *, exports: bool = True) -> None:
        self.asked: list[tuple[str, str]] = []
        self.most = self._now = 0
        self.failing = 0
        """How many requests for logs are answered with a failure before the next is served."""
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        routes = [
            Route("/openapi.json", self._openapi),
            Route("/api/v1/stats/", self._stats),
            Route("/api/v1/memories/{memory}/access-log", self._log),
        ]
        if exports:
            routes.append(Route("/api/v1/backup/export", self._export, methods=["POST"]))
        self.app = Starlette(routes=routes)

    async def _openapi(self, _: Request) -> Response:
        return JSONResponse({"info": {"title": "OpenMemory API"}})

    async def _stats(self, request: Request) -> Response:
        found = self._rows("SELECT * FROM users WHERE user_id = ?", request.query_params["user_id"])
        return JSONResponse({"total_memories": 0} if found else {"detail": "User not found"}, 200 if found else 404)

    async def _export(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(("export", body["user_id"]))
        users = self._rows("SELECT * FROM users WHERE user_id = ?", body["user_id"])
        if not users:
            return JSONResponse({"detail": "User not found"}, 404)
        [user] = users
        apps = self._rows("SELECT * FROM apps WHERE owner_id = ?", user["id"])
        memories = self._rows("SELECT * FROM memories WHERE user_id = ?", user["id"])
        filed = self._rows("SELECT * FROM memory_categories")
        mine = {memory["id"] for memory in memories}
        for memory in memories:
            memory.pop("vector")
            memory["category_ids"] = [row["category_id"] for row in filed if row["memory_id"] == memory["id"]]
        whole = {
            "user": user, "apps": apps, "categories": self._rows("SELECT * FROM categories"), "memories": memories,
            "memory_categories": [row for row in filed if row["memory_id"] in mine],
            "status_history": [
                row for row in self._rows("SELECT * FROM memory_status_history") if row["memory_id"] in mine
            ],
            "access_controls": [
                row for row in self._rows("SELECT * FROM access_controls")
                if row["subject_id"] in {app["id"] for app in apps}
            ],
            "export_meta": {"app_id_filter": None, "from_date": None, "to_date": None, "version": "1"},
        }  # fmt: skip
        lines = "".join(
            json.dumps({"id": memory["id"], "content": memory["content"], "state": memory["state"]}) + "\n"
            for memory in memories
        )
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("memories.json", json.dumps(whole, indent=2))
            archive.writestr("memories.jsonl.gz", gzip.compress(lines.encode()))
        return Response(out.getvalue(), media_type="application/zip")

    async def _log(self, request: Request) -> Response:
        memory = UUID(request.path_params["memory"])
        page, size = int(request.query_params["page"]), int(request.query_params["page_size"])
        self.asked.append(("access-log", str(memory)))
        if self.failing:
            self.failing -= 1
            return JSONResponse({"detail": "database is locked"}, 500)
        query = """SELECT l.*, a.name AS app_name FROM memory_access_logs AS l JOIN apps AS a ON a.id = l.app_id
                   WHERE memory_id = ? ORDER BY accessed_at DESC"""
        logs = self._rows(query, memory.hex)
        for line in logs:
            line["metadata_"] = line.pop("metadata")
            line["accessed_at"] = line["accessed_at"].removesuffix("+00:00")
        shown = logs[(page - 1) * size : page * size]
        return JSONResponse({"total": len(logs), "page": page, "page_size": size, "logs": shown})

    def _rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        return [self._shown(row) for row in self._connection.execute(query, values)]

    def _shown(self, row: sqlite3.Row) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for name in row.keys():  # noqa: SIM118 - a Row iterates over its values
            value = row[name]
            if name.endswith("_at") and value is not None:
                value = value.replace(" ", "T") + "+00:00"
            shown[name] = json.loads(value) if name == "metadata" and value else value
            if name == "is_active":
                shown[name] = bool(value)
        return shown
