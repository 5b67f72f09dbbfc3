"""The pages in Chromium without JavaScript."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.doors.web.conftest import OpenPage

pytestmark = pytest.mark.browser

LISTS = ("memories", "activity", "activity/upcoming", "time", "time/changes")
"""The pages that show a memory which will expire."""

OTHERS = ("apps", "activity/captures", "activity/conflicts", "connect", "settings", "settings/models", "settings/keys")
OTHERS += ("settings/categories", "settings/policies", "settings/archives", "system")


@pytest.mark.parametrize("path", [*LISTS, *OTHERS])
async def test_every_page_can_be_read(
    open_page: OpenPage, remember: Callable[..., Any], new_user: str, path: str
) -> None:
    await remember(new_user, "Alice drinks her coffee black.", app="claude", ttl_days=5)
    async with open_page(path, java_script_enabled=False) as page:
        await page.locator("main h1").wait_for()
        if path in LISTS:
            assert await page.get_by_text("Alice drinks her coffee black.").is_visible()
        links = await page.get_by_role("navigation", name="Main").get_by_role("link").all_inner_texts()
        assert links == ["Memories", "Apps", "Activity", "Time", "Connect", "Settings", "System"]


async def test_a_memory_is_added_edited_deleted_and_brought_back(open_page: OpenPage) -> None:
    async with open_page("memories", java_script_enabled=False) as page:
        await page.get_by_text("Add a memory", exact=True).click()
        await page.get_by_label("What to remember").fill("Alice drinks tea.")
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.get_by_text("Added.").wait_for()
        await page.get_by_role("link", name="Alice drinks tea.").click()
        await page.locator("#edit summary").click()
        await page.locator("#edit textarea[name=text]").fill("Alice drinks coffee.")
        await page.get_by_role("button", name="Save").click()
        await page.locator("ins", has_text="coffee").wait_for()
        await page.get_by_role("button", name="Undo").click()
        await page.get_by_text("It is as before.").wait_for()
        await page.get_by_role("button", name="Delete", exact=True).click()
        await page.get_by_text("Deleted 1 memory.").wait_for()
        await page.get_by_role("button", name="Undo").click()
        await page.get_by_text("Undone for 1 memory.").wait_for()


async def test_memories_are_found_and_changed(open_page: OpenPage, remember: Callable[..., Any], new_user: str) -> None:
    for text in ("Alice drinks her coffee black.", "The webshop ships in May."):
        await remember(new_user, text)
    async with open_page("memories", java_script_enabled=False) as page:
        await page.get_by_role("searchbox").fill("coffee")
        await page.get_by_role("button", name="Search").click()
        await page.get_by_text("1 memory found").wait_for()
        await page.get_by_label("Alice drinks her coffee black.").check()
        await page.get_by_role("button", name="Archive").click()
        await page.get_by_text("Archived 1 memory.").wait_for()
        await page.get_by_role("button", name="Undo").click()
        await page.get_by_text("Undone for 1 memory.").wait_for()
        await page.get_by_text("1 memory found").wait_for()
