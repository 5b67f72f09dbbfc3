"""The pages of activity in Chromium."""

from __future__ import annotations

import pytest

from openmemory.doors.web import activity
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services
from tests.doors.web.conftest import Accessible, OpenPage

pytestmark = pytest.mark.browser


async def test_new_entries_appear_by_themselves(
    open_page: OpenPage, accessible: Accessible, services: Services, new_user: str
) -> None:
    app = await services.directory.caller(new_user, "claude")
    await services.memories.add(app, MemoryCreate("An old fact"))
    async with open_page("activity") as page:
        await page.get_by_text("An old fact").wait_for()
        await services.memories.add(app, MemoryCreate("A new fact"))
        await page.get_by_text("A new fact").wait_for()
        texts = await page.locator("#feed .entry a.text").all_inner_texts()
        assert texts == ["A new fact", "An old fact"]
        await accessible(page)
        links = await page.locator("#feed .entry a.text").evaluate_all("links => links.map((link) => link.pathname)")
        assert all(link.startswith("/ui/memory/") for link in links)


@pytest.mark.parametrize("path", ["activity", "activity/captures", "activity/upcoming"])
async def test_activity_fits_a_narrow_screen(
    open_page: OpenPage, accessible: Accessible, services: Services, new_user: str, path: str
) -> None:
    app = await services.directory.caller(new_user, "claude")
    await services.memories.add(app, MemoryCreate("Something " * 20))
    async with open_page(path, viewport={"width": 320, "height": 900}) as page:
        await accessible(page)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_refused_live_list_stays_and_connects_later(
    open_page: OpenPage, services: Services, new_user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await services.directory.caller(new_user, "claude")
    await services.memories.add(app, MemoryCreate("An old fact"))
    monkeypatch.setattr(activity, "MAX_STREAMS", 0)
    async with open_page("settings") as page:
        async with page.expect_response(lambda response: "/ui/activity/events" in response.url):
            await page.get_by_role("link", name="Activity").click()
        monkeypatch.undo()
        await services.memories.add(app, MemoryCreate("A new fact"))
        await page.get_by_text("A new fact").wait_for()
        assert await page.locator("#feed > *").all_inner_texts() == await page.locator("#feed > li").all_inner_texts()
        assert await page.locator("#feed > li").count() == 2
