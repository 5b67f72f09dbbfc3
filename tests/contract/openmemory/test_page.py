"""What the old page asks, page by page, in the order in which it asks it, with its bodies and nothing but the headers
of a browser; and of each answer what the page reads of it.

The page knows one user, who is built into it, and appends its paths to an address, which is built into it too: once
that of a service on this machine that asks for no key, once one with a key in it.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import pytest

from openmemory.access.directory import Directory
from openmemory.access.schemas import KeyCreate
from openmemory.config.settings import Settings
from openmemory.identity.principal import LOCAL
from openmemory.services import Services
from tests.doors.mcp.conftest import serving

ORIGIN = "http://localhost:3000"
BROWSER = {
    "Origin": ORIGIN, "Referer": f"{ORIGIN}/", "Accept": "application/json, text/plain, */*",
    "Accept-Language": "en", "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Chrome/130.0.0.0 Safari/537.36",
    "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty",
}  # fmt: skip


@dataclass
class Page:
    """The page in a browser: `base` is what it was built with."""

    http: httpx.AsyncClient
    base: str
    user: str
    asked: list[str] = field(default_factory=list)

    async def ask(self, method: str, path: str, **request: Any) -> Any:
        """One call of the page, after the browser has asked whether it may; the decoded answer."""
        answer = await self.send(method, path, **request)
        assert answer.status_code == 200, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    async def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        simple = method == "GET" or "files" in request
        if not simple:
            await self._preflight(method, path)
        answer = await self.http.request(method, self.base + path, headers=BROWSER, **request)
        self.asked.append(f"{method} {urlsplit(path).path}")
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        return answer

    async def _preflight(self, method: str, path: str) -> None:
        headers = BROWSER | {
            "Access-Control-Request-Method": method, "Access-Control-Request-Headers": "content-type",
        }  # fmt: skip
        answer = await self.http.options(self.base + path, headers=headers)
        assert answer.is_success, answer.text
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert method in answer.headers["access-control-allow-methods"]
        assert "content-type" in answer.headers["access-control-allow-headers"].lower()

    async def filtered(self, **filters: Any) -> dict[str, Any]:
        """The table of memories."""
        body = {"user_id": self.user, "page": 1, "size": 10, "search_query": "", "app_ids": [], "category_ids": []}
        found = await self.ask("POST", "/api/v1/memories/filter", json=body | filters)
        assert {"items", "total", "page", "pages", "size"} <= set(found)
        for item in found["items"]:
            assert {"id", "content", "created_at", "state", "app_id", "app_name", "categories", "metadata_"} <= set(
                item
            )
            assert isinstance(item["created_at"], int)
            moment = datetime.fromtimestamp(item["created_at"] * 1000 / 1000, UTC)
            assert abs((datetime.now(UTC) - moment).total_seconds()) < 3600, "the page takes it for seconds"
            assert isinstance(item["categories"], list)
        return dict(found)


@pytest.fixture(params=["no key", "a key in the address"])
async def page(request: pytest.FixtureRequest, services: Services, new_user: str) -> AsyncIterator[Page]:
    """The page, built for the test's user."""
    keyed = request.param != "no key"
    access = {"require": "always"} if keyed else {"default_user": new_user}
    settings = Settings.model_validate({"data_dir": services.settings.data_dir, "access": access})
    directory = Directory(services.database, settings.access)
    base = ""
    if keyed:
        base = f"/key/{(await services.keys.create(LOCAL, KeyCreate(name='page', user_id=new_user))).key}"
    built = replace(services, settings=settings, directory=directory)
    async with serving(built) as url, httpx.AsyncClient(base_url=url, timeout=30) as http:
        opened = Page(http, base, new_user)
        await opened.ask("POST", "/api/v1/memories/", json=_new(new_user, "The first memory"))
        yield opened


def _new(user: str, text: str) -> dict[str, Any]:
    return {"user_id": user, "text": text, "infer": False, "app": "openmemory"}


def naive(moment: str) -> datetime:
    """A time as the page reads it: it appends a Z, so one with an offset of its own would be no date."""
    assert "T" in moment
    assert not moment.endswith("Z")
    assert "+" not in moment
    return datetime.fromisoformat(f"{moment}Z")


async def test_the_dashboard(page: Page) -> None:
    stats = await page.ask("GET", f"/api/v1/stats?user_id={page.user}")
    assert (stats["total_memories"], stats["total_apps"]) == (1, 1)
    assert {app["name"] for app in stats["apps"]} == {"openmemory"}
    apps = await page.ask("GET", "/api/v1/apps/?page=1&page_size=10&sort_by=name&sort_direction=asc")
    assert [(app["name"], app["is_active"]) for app in apps["apps"]] == [("openmemory", True)]
    assert {"total", "page", "page_size"} <= set(apps)
    [app] = apps["apps"]
    assert (app["total_memories_created"], app["total_memories_accessed"]) == (1, 0)
    categories = await page.ask("GET", f"/api/v1/memories/categories?user_id={page.user}")
    assert categories["total"] == len(categories["categories"]) == 0
    found = await page.filtered()
    assert (found["total"], found["page"], found["pages"], found["size"]) == (1, 1, 1, 10)
    assert found["items"][0]["content"] == "The first memory"


@pytest.mark.slow
async def test_the_table_of_memories(page: Page) -> None:
    rows = []
    for number in range(12):
        row = await page.ask("POST", "/api/v1/memories/", json=_new(page.user, f"Fact {number:02}"))
        assert row["content"] == f"Fact {number:02}"
        assert row["state"] == "active"
        UUID(row["user_id"])
        naive(row["created_at"])
        rows.append(row)
    found = await page.filtered(sort_column="created_at", sort_direction="desc", show_archived=False)
    assert (found["total"], found["pages"], len(found["items"])) == (13, 2, 10)
    second = await page.filtered(page=2, sort_column="created_at", sort_direction="desc")
    assert len({item["id"] for item in [*found["items"], *second["items"]]}) == 13
    for size in (10, 20, 50, 100):
        assert len((await page.filtered(size=size))["items"]) == min(13, size)
    searched = await page.filtered(search_query="fact 03")
    assert [item["content"] for item in searched["items"]] == ["Fact 03"]
    for column in ("memory", "app_name", "created_at"):
        for direction in ("asc", "desc", "ASC", "DESC"):
            await page.filtered(sort_column=column, sort_direction=direction)
    ordered = await page.filtered(sort_column="memory", sort_direction="asc", size=20)
    assert [item["content"] for item in ordered["items"]] == sorted(item["content"] for item in ordered["items"])
    by_app = await page.filtered(app_ids=[rows[0]["app_id"]])
    assert by_app["total"] == 13

    async def bring(ids: list[str], state: str) -> None:
        body = {"memory_ids": ids, "all_for_app": True, "state": state, "user_id": page.user}
        done = await page.ask("POST", "/api/v1/memories/actions/pause", json=body)
        assert done["message"] == "Successfully paused all memories"

    ids = [row["id"] for row in rows]
    await bring(ids[:2], "paused")
    states = {item["id"]: item["state"] for item in (await page.filtered(size=20))["items"]}
    assert [states[id_] for id_ in ids[:3]] == ["paused", "paused", "active"]
    await bring(ids[:1], "active")
    await bring(ids[2:4], "archived")
    assert (await page.filtered(size=20))["total"] == 11
    assert (await page.filtered(size=20, show_archived=True))["total"] == 13
    change = {"memory_id": ids[4], "memory_content": "Fact, corrected", "user_id": page.user}
    changed = await page.ask("PUT", f"/api/v1/memories/{ids[4]}", json=change)
    assert (changed["id"], changed["content"]) == (ids[4], "Fact, corrected")
    gone = {"memory_ids": ids[5:7], "user_id": page.user}
    answer = await page.ask("DELETE", "/api/v1/memories/", json=gone)
    assert answer["message"] == "Successfully deleted 2 memories"
    assert (await page.filtered(size=20, show_archived=True))["total"] == 11


@pytest.mark.slow
async def test_one_memory(page: Page) -> None:
    row = await page.ask("POST", "/api/v1/memories/", json=_new(page.user, "Shown alone"))
    for other, names in (("Related", ["home", "work"]), ("Less related", ["work"]), ("Not related", ["sport"])):
        added = await page.ask("POST", "/api/v1/memories/", json=_new(page.user, other))
        filed = {"user_id": page.user, "categories": names}
        await page.ask("PUT", f"/api/v1/memories/{added['id']}", json=filed)
    await page.ask("PUT", f"/api/v1/memories/{row['id']}", json={"user_id": page.user, "categories": ["home", "work"]})
    shown = await page.ask("GET", f"/api/v1/memories/{row['id']}?user_id={page.user}")
    assert (shown["id"], shown["text"], shown["state"]) == (row["id"], "Shown alone", "active")
    assert isinstance(shown["created_at"], int)
    assert (sorted(shown["categories"]), shown["app_name"]) == (["home", "work"], "openmemory")
    log = await page.ask("GET", f"/api/v1/memories/{row['id']}/access-log?page=1&page_size=10")
    assert log["total"] >= 1
    for line in log["logs"]:
        assert {"id", "app_name", "accessed_at", "access_type"} <= set(line)
        assert abs((datetime.now(UTC) - naive(line["accessed_at"])).total_seconds()) < 3600
    related = await page.ask("GET", f"/api/v1/memories/{row['id']}/related?user_id={page.user}")
    assert [item["content"] for item in related["items"]] == ["Related", "Less related"]
    assert (related["total"], related["size"]) == (2, 5)
    assert all(isinstance(item["created_at"], int) for item in related["items"])
    change = {"memory_id": row["id"], "memory_content": "Changed here", "user_id": page.user}
    assert (await page.ask("PUT", f"/api/v1/memories/{row['id']}", json=change))["content"] == "Changed here"
    pause = {"memory_ids": [row["id"]], "all_for_app": True, "state": "paused", "user_id": page.user}
    await page.ask("POST", "/api/v1/memories/actions/pause", json=pause)
    assert (await page.ask("GET", f"/api/v1/memories/{row['id']}?user_id={page.user}"))["state"] == "paused"


async def test_a_memory_that_is_not_there_is_told_so(page: Page) -> None:
    answer = await page.send("GET", f"/api/v1/memories/{UUID(int=1)}?user_id={page.user}")
    assert (answer.status_code, answer.json()["detail"]) == (404, "Memory not found")


async def test_the_apps(page: Page) -> None:
    await page.ask("POST", "/api/v1/memories/", json=_new(page.user, "By cursor") | {"app": "cursor"})
    for by in ("name", "memories", "memories_accessed"):
        for direction in ("asc", "desc"):
            query = f"page=1&page_size=10&sort_by={by}&sort_direction={direction}"
            found = await page.ask("GET", f"/api/v1/apps/?{query}")
            assert {app["name"] for app in found["apps"]} == {"openmemory", "cursor"}
    named = await page.ask("GET", "/api/v1/apps/?name=curs&is_active=true&page=1&page_size=10")
    [app] = named["apps"]
    assert {"id", "name", "is_active", "total_memories_created", "total_memories_accessed"} <= set(app)
    await page.filtered()
    detail = await page.ask("GET", f"/api/v1/apps/{app['id']}")
    assert {"is_active", "total_memories_created", "total_memories_accessed", "first_accessed", "last_accessed"} <= set(
        detail
    )
    assert (detail["is_active"], detail["total_memories_created"]) == (True, 1)
    created = await page.ask("GET", f"/api/v1/apps/{app['id']}/memories?page=1&page_size=10")
    assert (created["total"], created["page"], created["page_size"]) == (1, 1, 10)
    [memory] = created["memories"]
    assert memory["content"] == "By cursor"
    assert isinstance(memory["categories"], list)
    naive(memory["created_at"])
    own = await page.ask("GET", "/api/v1/apps/?name=openmemory&page=1&page_size=10")
    accessed = await page.ask("GET", f"/api/v1/apps/{own['apps'][0]['id']}/accessed?page=1&page_size=10")
    assert accessed["memories"] == [], "what the page itself shows is no access of an app"
    body = {"user_id": page.user, "query": "By cursor", "app": "cursor"}
    await page.ask("POST", "/api/v1/memories/search", json=body)
    accessed = await page.ask("GET", f"/api/v1/apps/{app['id']}/accessed?page=1&page_size=10")
    assert {"total", "page", "page_size", "memories"} <= set(accessed)
    assert accessed["memories"]
    for line in accessed["memories"]:
        assert line["access_count"] >= 1
        naive(line["memory"]["created_at"])
        assert {"id", "content", "app_name", "categories"} <= set(line["memory"])
    for active in ("false", "true"):
        done = await page.ask("PUT", f"/api/v1/apps/{app['id']}?is_active={active}")
        assert done == {"status": "success", "message": "Updated app details successfully"}
        assert (await page.ask("GET", f"/api/v1/apps/{app['id']}"))["is_active"] is (active == "true")


SETTINGS = ("/api/v1/config", "/api/v1/config/mem0/llm", "/api/v1/config/mem0/embedder")


async def test_the_settings_are_read_saved_and_reset_as_the_form_does_it(page: Page) -> None:
    if page.base:
        # Settings are for everybody: with the key of one user they are refused in words.
        for path in SETTINGS:
            assert (await page.send("GET", path)).status_code == 403
        assert (await page.send("POST", "/api/v1/config/reset", json={})).status_code == 403
        return
    whole, llm, embedder = [await page.ask("GET", path) for path in SETTINGS]
    assert (whole["mem0"]["llm"], whole["mem0"]["embedder"]) == (llm, embedder)
    # The form sends all that it was shown, masked keys too, with what was typed into it.
    whole["openmemory"]["custom_instructions"] = "Only what concerns the garden."
    assert (await page.ask("PUT", "/api/v1/config", json=whole)).items() >= whole.items()
    assert (await page.ask("GET", "/api/v1/config"))["openmemory"] == whole["openmemory"]
    assert await page.ask("PUT", "/api/v1/config/mem0/llm", json=llm) == llm
    assert await page.ask("PUT", "/api/v1/config/mem0/embedder", json=embedder) == embedder
    assert (await page.ask("POST", "/api/v1/config/reset", json={}))["openmemory"]["custom_instructions"] is None


async def test_export_and_import(page: Page) -> None:
    answer = await page.send("POST", "/api/v1/backup/export", json={"user_id": page.user})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    assert f'filename="memories_export_{page.user}.zip"' in answer.headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        tables = json.loads(archive.read("memories.json"))
    assert [memory["content"] for memory in tables["memories"]] == ["The first memory"]
    files = {"file": ("memories.zip", answer.content, "application/zip")}
    done = await page.ask("POST", "/api/v1/backup/import", files=files, data={"user_id": page.user})
    assert done["message"].startswith('Import completed into user "')
    assert (await page.filtered())["total"] == 1


@pytest.mark.parametrize("port", [3000, 3001, 3010])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_the_page_may_ask_from_every_port_that_its_script_starts_it_on(api, host, port):
    """run.sh takes the first free port from 3000 to 3010."""
    headers = {
        "Origin": f"http://{host}:{port}", "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type",
    }  # fmt: skip
    answer = await api.options("/api/v1/memories/filter", headers=headers)
    assert answer.headers.get("access-control-allow-origin") == f"http://{host}:{port}", answer.text
