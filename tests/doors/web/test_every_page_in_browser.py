"""Every page in Chromium, in the dark and on a narrow screen, with texts and names as long as they may be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from openmemory.access.oauth.sign_in import REDIRECT_PATH
from openmemory.doors.web.pages import ROUTERS
from tests.clusters import furnish
from tests.doors.web.conftest import Accessible, NewBrowser
from tests.journeys.service import starting

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

NO_PAGES = {"/ui", "/ui/", "/ui/activity/events", "/ui/sign-in/start", REDIRECT_PATH}
"""Redirects, and the stream of the activity."""

PATHS = sorted(
    route.path
    for router in ROUTERS
    for route in router.routes
    if "GET" in getattr(route, "methods", ()) and route.path not in NO_PAGES
)
FURTHER = [
    "/ui/memories?q={word}",
    "/ui/memories?q=coffee",
    "/ui/memories?state=any&category={word}&app={app}",
    "/ui/memories?state=deleted",
    "/ui/memories?q=nothing+at+all&only=expiring",
    "/ui/memory/{memory_id}?who=1&all=1",
    "/ui/apps/{app_id}?q=coffee",
    "/ui/time?q=coffee",
    "/ui/memory/00000000-0000-0000-0000-000000000000",
]
WORD, NAME = "x" * 200, "n" * 120


class Site:
    """The address of a service and the values of the placeholders in the paths of its pages."""

    def __init__(self, url: str, values: dict[str, str]) -> None:
        self.url = url
        self._values = values

    def address(self, path: str) -> str:
        """The address of a page. Erasing asks about a memory."""
        asked = "?id={memory_id}" if path.endswith("/erase") else ""
        return (path + asked).format(**self._values)


@pytest.fixture(scope="module")
async def filled(short_folder: Path) -> AsyncIterator[Site]:
    """A service with something on every page."""
    with starting(furnish(short_folder / "data")) as start:
        service = start(OPENMEMORY_LIMITS_TEXT="100000")
        url = await asyncio.to_thread(service.ready)
        async with httpx.AsyncClient(base_url=f"{url}/api/v1", timeout=60) as http:
            yield Site(url, await _fill(http))


async def _fill(http: httpx.AsyncClient) -> dict[str, str]:
    async def post(path: str, body: dict[str, Any], method: str = "POST") -> dict[str, Any]:
        answer = await http.request(method, path, json=body)
        assert answer.is_success, answer.text
        return dict(answer.json())

    text = "y" * 50_000 + " " + "coffee in long words " * 2_000
    more = {"app": NAME, "categories": [NAME], "namespace": NAME, "kind": NAME, "thread_id": NAME, "infer": False}
    soon = (datetime.now(UTC) + timedelta(days=3)).isoformat()
    added = await post("/memories", {"text": text, "metadata": {NAME: WORD}, "expires_at": soon, **more})
    await post(f"/memories/{added['id']}", {"memory_content": f"{text}. {WORD}"}, "PUT")
    gone = await post("/memories", {"text": WORD, **more})
    await post("/memories", {"memory_ids": [gone["id"]]}, "DELETE")
    for name in ("Vienna", WORD):
        await post("/memories", {"text": f"city: {name}", "infer": False})
    for app, each in (("one", "1"), (NAME, WORD)):
        await post("/memories", {"text": f"key={each}", "app": app, "infer": False})
        await post("/memories", {"text": f"The same {WORD}", "app": app, "infer": False})
    await post("/memories/search", {"query": "coffee", "app": NAME})
    await post("/grants", {"effect": "deny", "app": NAME, "object_type": "category", "object": NAME})
    await post("/archive-policies", {"criteria_type": "category", "criteria_name": NAME, "days_to_archive": 90})
    await post(f"/categories/{NAME}", {"description": WORD}, "PUT")
    await post("/keys", {"name": NAME, "everyone": True})
    apps = (await http.get("/apps")).json()["apps"]
    app_id = next(each["id"] for each in apps if each["name"] == NAME)
    return {"memory_id": added["id"], "app_id": app_id, "word": WORD, "app": NAME}


async def shown(page: Page, address: str) -> None:
    """Open a page with all that can be unfolded on it."""
    await page.goto(address)
    await page.evaluate("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")


@pytest.mark.parametrize("path", [*PATHS, *FURTHER])
async def test_it_can_be_read_in_the_dark(
    new_browser: NewBrowser, filled: Site, accessible: Accessible, path: str
) -> None:
    async with new_browser(filled.url, color_scheme="dark") as browser:
        page = await browser.new_page()
        await shown(page, filled.address(path))
        await accessible(page)


@pytest.mark.parametrize("path", [*PATHS, *FURTHER])
async def test_it_fits_on_a_narrow_screen(
    new_browser: NewBrowser, filled: Site, accessible: Accessible, path: str
) -> None:
    async with new_browser(filled.url, viewport={"width": 390, "height": 800}) as browser:
        page = await browser.new_page()
        await shown(page, filled.address(path))
        widths = await page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")
        assert widths == [390, 390]
        await accessible(page)
