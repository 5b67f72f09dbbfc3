"""The page of one memory in Chromium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.doors.web.conftest import Accessible, OpenPage

pytestmark = pytest.mark.browser


async def test_it_is_accessible(
    open_page: OpenPage, accessible: Accessible, remember: Callable[..., Any], new_user: str
) -> None:
    added = await remember(new_user, "Alice drinks her coffee black.", app="claude", categories=["drinks"])
    async with open_page(f"memory/{added['id']}?who=1") as page:
        await page.get_by_text("Categories and expiry").click()
        await accessible(page)


async def test_an_edit_is_shown_as_a_difference_and_undone(
    open_page: OpenPage, remember: Callable[..., Any], new_user: str
) -> None:
    await remember(new_user, "Alice drinks her coffee black.")
    async with open_page("memories") as page:
        await page.keyboard.press("j")
        await page.keyboard.press("e")
        await page.get_by_label("Text").last.fill("Alice drinks her coffee with milk.")
        await page.get_by_role("button", name="Save").click()
        await page.locator("ins", has_text="with milk").wait_for()
        await page.keyboard.press("u")
        await page.get_by_text("It is as before.").wait_for()


async def test_a_refused_text_stays_in_its_form(
    open_page: OpenPage, remember: Callable[..., Any], new_user: str
) -> None:
    await remember(new_user, "Known")
    added = await remember(new_user, "Other")
    async with open_page(f"memory/{added['id']}") as page:
        await page.keyboard.press("e")
        await page.locator("#edit [name=text]").fill("Known")
        await page.get_by_role("button", name="Save").click()
        await page.locator("#edit .refusal").wait_for()
        assert await page.locator("#edit [name=text]").input_value() == "Known"


async def test_metadata_that_is_no_object_stays_in_its_form(
    open_page: OpenPage, accessible: Accessible, remember: Callable[..., Any], new_user: str
) -> None:
    added = await remember(new_user, "Alice sails.", metadata={"source": "talk", "page": 7})
    async with open_page(f"memory/{added['id']}") as page:
        await page.keyboard.press("e")
        await page.get_by_label("Metadata").fill("{source}")
        await page.get_by_role("button", name="Save").click()
        await page.locator("#edit .refusal", has_text="metadata: must be a JSON object").wait_for()
        await accessible(page)
        await page.set_viewport_size({"width": 390, "height": 900})
        await page.get_by_label("Metadata").fill('{"source": "letter"}')
        await page.get_by_role("button", name="Save").click()
        await page.get_by_text("Metadata changed").wait_for()
        await page.goto("/ui/memories?user=" + new_user)
        await page.get_by_text("Add a memory").click()
        await page.get_by_text("Metadata", exact=True).click()
        await accessible(page)


async def test_the_longest_text_fits_on_a_narrow_screen(
    open_page: OpenPage, remember: Callable[..., Any], new_user: str
) -> None:
    added = await remember(new_user, "x" * 8_000 + " " + "long words " * 700)
    async with open_page(f"memory/{added['id']}", viewport={"width": 320, "height": 640}) as page:
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= 320
        height = await page.evaluate("document.documentElement.scrollHeight")
        assert height < 4_000
