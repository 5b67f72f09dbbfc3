"""The list of memories in Chromium."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.doors.web.conftest import Accessible, OpenPage

pytestmark = pytest.mark.browser


async def test_search_as_you_type(open_page: OpenPage, remember: Callable[..., Any], new_user: str) -> None:
    await remember(new_user, "Alice drinks her coffee black.")
    await remember(new_user, "The webshop ships in May.")
    async with open_page("memories") as page:
        await page.get_by_role("searchbox").press_sequentially("coffee", delay=20)
        await page.wait_for_url(re.compile("q=coffee(&|$)"))
        await page.get_by_text("1 memory found").wait_for()
        assert await page.locator("li.memory").count() == 1


async def test_add(open_page: OpenPage) -> None:
    async with open_page("memories") as page:
        await page.get_by_text("Add a memory", exact=True).click()
        await page.get_by_label("What to remember").fill("Bob is allergic to peanuts.")
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.locator("li.memory", has_text="peanuts").wait_for()


async def test_a_refused_text_stays_in_its_form(open_page: OpenPage) -> None:
    async with open_page("memories") as page:
        await page.get_by_text("Add a memory", exact=True).click()
        await page.get_by_label("What to remember").fill("Something")
        await page.locator("form.stack").get_by_label("Namespace").fill("x" * 300)
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.locator("form .refusal").wait_for()
        assert await page.get_by_label("What to remember").input_value() == "Something"


async def test_the_list_is_accessible(
    open_page: OpenPage, accessible: Accessible, remember: Callable[..., Any], new_user: str
) -> None:
    await remember(new_user, "Alice drinks her coffee black.", categories=["drinks"], kind="note")
    async with open_page("memories?q=coffee&kind=note") as page:
        await page.get_by_text("Why it is here").click()
        await accessible(page)
        await page.goto(f"/ui/memories?user={new_user}&kind=nothing")
        await accessible(page)


async def test_an_empty_memory_is_accessible(open_page: OpenPage, accessible: Accessible) -> None:
    async with open_page("memories") as page:
        await page.get_by_text("Nothing is remembered yet").wait_for()
        await accessible(page)


async def test_select_all_on_the_page_delete_and_undo(
    open_page: OpenPage, remember: Callable[..., Any], new_user: str
) -> None:
    for text in ("Red", "Green", "Blue"):
        await remember(new_user, text)
    async with open_page("memories") as page:
        await page.get_by_label("All on this page").check()
        await page.get_by_text("3 selected").wait_for()
        await page.get_by_label("Green", exact=True).uncheck()
        await page.get_by_text("2 selected").wait_for()
        assert not await page.get_by_label("All on this page").is_checked()
        await page.get_by_role("button", name="Delete").click()
        await page.get_by_text("Deleted 2 memories.").wait_for()
        assert await page.locator("li.memory").count() == 1
        await page.get_by_role("button", name="Undo").click()
        await page.get_by_text("Undone for 2 memories.").wait_for()
        assert await page.locator("li.memory").count() == 3


async def test_a_refused_change_is_shown_beside_its_buttons(
    open_page: OpenPage, remember: Callable[..., Any], new_user: str
) -> None:
    await remember(new_user, "Red")
    async with open_page("memories") as page:
        await page.get_by_role("button", name="Pause").click()
        await page.locator("#selection .refusal").wait_for()
        assert "select at least one first" in await page.locator("#selection").inner_text()


async def test_enter_in_a_field_of_the_selection_changes_nothing(
    open_page: OpenPage, remember: Callable[..., Any], new_user: str
) -> None:
    await remember(new_user, "Red")
    async with open_page("memories") as page:
        await page.get_by_label("Red", exact=True).check()
        await page.get_by_text("More", exact=True).click()
        await page.locator("#selection").get_by_label("Category").fill("colours")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="File").click()
        await page.get_by_text("Filed 1 memory under colours.").wait_for()
        assert await page.locator("li.memory").count() == 1


async def test_the_keys(open_page: OpenPage, remember: Callable[..., Any], new_user: str) -> None:
    for text in ("Red", "Green", "Blue"):
        await remember(new_user, text)
    async with open_page("memories") as page:
        await page.keyboard.press("/")
        search = page.get_by_role("searchbox")
        await page.keyboard.type("jx?")
        assert await search.input_value() == "jx?"
        await page.wait_for_url(lambda url: "q=jx" in url)  # the list has followed
        await search.fill("")
        await page.wait_for_url(lambda url: "q=jx" not in url)
        await page.locator("li.memory").nth(2).wait_for()
        await search.evaluate("field => field.blur()")
        for key in "jjkjx":
            await page.keyboard.press(key)
        assert await page.get_by_label("Green", exact=True).is_checked()
        await page.get_by_role("button", name="Archive").click()
        await page.get_by_text("Archived 1 memory.").wait_for()
        await page.keyboard.press("u")
        await page.get_by_text("Undone for 1 memory.").wait_for()
        await page.keyboard.press("?")
        await page.get_by_role("dialog").get_by_text("Undo the last action").wait_for()
        await page.get_by_role("button", name="Close", exact=True).click()
        await page.get_by_role("dialog").wait_for(state="hidden")


async def test_seventy_memories_are_paged_and_changed_page_by_page_or_all_at_once(
    open_page: OpenPage, remember: Callable[..., Any], new_user: str
) -> None:
    for number in range(70):
        await remember(new_user, f"Note {number}")
    async with open_page("memories") as page:
        await page.get_by_label("All on this page").check()
        await page.get_by_text("50 selected").wait_for()
        await page.get_by_role("link", name="Next").click()
        await page.get_by_text("Page 2 of 2").wait_for()
        assert await page.locator("li.memory").count() == 20
        assert await page.locator("li.memory input:checked").count() == 0  # what is not in sight is not selected
        assert not await page.get_by_label("All on this page").is_checked()
        await page.get_by_label("All on this page").check()
        await page.get_by_text("20 selected").wait_for()
        await page.get_by_role("button", name="Archive").click()
        await page.get_by_text("Archived 20 memories.").wait_for()
        assert await page.locator("li.memory").count() == 50  # the second page was emptied
        await page.get_by_role("button", name="Undo").click()
        await page.get_by_text("Undone for 20 memories.").wait_for()
        await page.get_by_label("All 70 that match").check()
        await page.get_by_role("button", name="Delete").click()
        await page.get_by_text("Deleted 70 memories.").wait_for()
        await page.get_by_role("button", name="Undo").click()
        await page.get_by_text("Undone for 70 memories.").wait_for()
        await page.get_by_role("link", name="Last page").click()
        await page.get_by_text("Page 2 of 2").wait_for()
        await page.get_by_role("link", name="Previous").click()
        await page.get_by_text("Page 1 of 2").wait_for()
        assert await page.locator("li.memory").count() == 50
