"""Two users in Chromium at the same moment: in two browsers, and in two tabs of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services
from tests.doors.web.conftest import NewBrowser

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

pytestmark = pytest.mark.browser


@pytest.fixture
async def users(services: Services, new_user: str) -> tuple[str, str]:
    """Two users with a memory each."""
    names = (f"{new_user}-anna", f"{new_user}-ben")
    for name in names:
        owner = await services.directory.caller(name, None, owner=True)
        await services.memories.add(owner, MemoryCreate(f"Secret of {name}"))
    return names


async def opened(browser: BrowserContext, user: str) -> Page:
    """The list of a user."""
    page = await browser.new_page()
    await page.goto(f"/ui/memories?user={user}")
    return page


async def delete(page: Page, user: str) -> None:
    """Delete the memory of a user."""
    await page.get_by_label(f"Secret of {user}").check()
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_text("Deleted 1 memory.").wait_for()


async def test_two_browsers(new_browser: NewBrowser, site: str, users: tuple[str, str]) -> None:
    anna, ben = users
    async with new_browser(site) as first, new_browser(site) as second:
        here, there = await opened(first, anna), await opened(second, ben)
        await delete(here, anna)
        for page, user in ((there, ben), (await opened(second, anna), anna)):
            await page.reload()
            await page.get_by_role("heading", name="Memories").wait_for()
            assert await page.locator(".notice").count() == 0, user
        assert await there.locator("li.memory").all_inner_texts() != []
        assert anna not in await there.content()
        await here.get_by_role("button", name="Undo").click()
        await here.get_by_text("Undone for 1 memory.").wait_for()
        assert ben not in await here.content()


async def test_two_tabs(new_browser: NewBrowser, site: str, users: tuple[str, str]) -> None:
    anna, ben = users
    async with new_browser(site) as browser:
        here, there = await opened(browser, anna), await opened(browser, ben)
        await delete(here, anna)
        await there.reload()
        await there.get_by_label(f"Secret of {ben}").wait_for()
        assert await there.locator(".notice").count() == 0
        assert anna not in await there.content()
        await delete(there, ben)
        await here.get_by_role("button", name="Undo").click()  # of the notice that this tab still shows
        await here.get_by_label(f"Secret of {anna}").wait_for()
        assert ben not in await here.content()
        await there.reload()
        await there.get_by_role("heading", name="Memories").wait_for()
        assert await there.locator("li.memory").count() == 0
        assert anna not in await there.content()
