"""An import that is tried: it reports what it would do, and keeps nothing."""

from __future__ import annotations

import httpx

from tests.backup.archives import IMPORT, Upstream


async def test_a_try_reports_and_keeps_nothing(api: httpx.AsyncClient, user: str) -> None:
    archive = Upstream(user)
    archive.memory("Alice drinks her coffee black.")
    name = f"category of {user}"
    archive.category(name)

    async def sent(**query: str) -> httpx.Response:
        files = {"file": ("memories.zip", archive.zip(), "application/zip")}
        return await api.post(IMPORT, params=query, data={"user_id": user}, files=files)

    tried = [(await sent(dry_run="true")).json()["report"] for _ in range(2)]
    assert tried[0] == tried[1]
    assert (tried[0]["memories"]["added"], tried[0]["categories"]) == (1, 1)
    listed = (await api.get("/api/v1/memories", params={"user_id": user})).json()
    assert listed["total"] == 0
    imported = (await sent()).json()["report"]
    assert imported == tried[0]


async def test_a_try_makes_no_user(api: httpx.AsyncClient, user: str) -> None:
    stranger = f"not-{user}"
    archive = Upstream(stranger)
    archive.memory("Alice drinks her coffee black.")

    async def sent(**query: str) -> httpx.Response:
        files = {"file": ("memories.zip", archive.zip(), "application/zip")}
        return await api.post(IMPORT, params=query, data={"user_id": stranger}, files=files)

    tried = await sent(dry_run="true", make_user="true")
    for query in ({"dry_run": "true"}, {}):
        answer = await sent(**query)
        assert (answer.status_code, answer.json()["error"]) == (404, "user_not_found")
    assert tried.json()["report"]["memories"]["added"] == 1
    assert (await sent(make_user="true")).json()["report"] == tried.json()["report"]
