"""The pages for keeping a memory tidy in Chromium."""

from __future__ import annotations

import pytest

from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services
from tests.doors.web.conftest import Accessible, OpenPage

pytestmark = pytest.mark.browser


async def facts(services: Services, user: str) -> None:
    owner = await services.directory.caller(user, None, owner=True)
    for app, text in (
        ("claude", "budget=40K | lead=Ada"),
        ("cursor", "budget=50K"),
        ("zed", "budget=" + "a long value " * 20 + " | deadline=May"),
        ("claude", "Alice is allergic to peanuts."),
        ("cursor", "Alice has a peanut allergy."),
    ):
        await services.memories.add(owner, MemoryCreate(text, app=app))
    await services.outbox_delivery.drain()


async def test_a_conflict_is_decided_and_undone(
    open_page: OpenPage, accessible: Accessible, services: Services, new_user: str
) -> None:
    await facts(services, new_user)
    async with open_page("activity") as page:
        await page.get_by_role("link", name="Conflicts").click()
        await page.get_by_role("heading", name="budget").wait_for()
        await accessible(page)
        await page.get_by_role("button", name="Keep this one: 40K").click()
        done = "Kept budget = 40K: superseded 1 memory and corrected 1 memory with more facts."
        await page.get_by_text(done).wait_for()
        await page.get_by_text("No facts disagree.").wait_for()
        await page.get_by_role("button", name="Undo").click()
        await page.get_by_role("heading", name="budget").wait_for()
        await page.get_by_role("link", name="Edit: 50K").click()
        await page.get_by_role("textbox", name="Text").wait_for()


async def test_a_refusal_is_shown_in_the_card(open_page: OpenPage, services: Services, new_user: str) -> None:
    await facts(services, new_user)
    owner = await services.directory.caller(new_user, None, owner=True)
    async with open_page("activity/conflicts") as page:
        await services.memories.delete_all(owner)
        await page.get_by_role("button", name="Keep this one: 40K").click()
        await page.locator("article .refusals").get_by_text("Memory not found").wait_for()


async def test_near_duplicates_are_merged_and_kept(
    open_page: OpenPage, accessible: Accessible, services: Services, new_user: str
) -> None:
    await facts(services, new_user)
    async with open_page("activity") as page:
        await page.get_by_role("link", name="Near duplicates").click()
        await page.get_by_role("button", name="Keep the newer").wait_for()
        await accessible(page)
        await page.get_by_role("button", name="Keep the newer").click()
        await page.get_by_text("Kept the newer one.").wait_for()
        await page.get_by_text("No near duplicates found.").wait_for()
        await page.get_by_role("button", name="Undo").click()
        await page.get_by_text("Undone for 1 memory.").wait_for()
        await services.outbox_delivery.drain()
        await page.reload()
        await page.get_by_role("button", name="Keep both").click()
        await page.get_by_text("Kept both.").wait_for()
        await page.get_by_role("button", name="Undo").click()
        await page.get_by_role("button", name="Keep both").wait_for()


@pytest.mark.parametrize("path", ["activity/conflicts", "activity/duplicates"])
async def test_tidying_fits_a_narrow_screen(
    open_page: OpenPage, accessible: Accessible, services: Services, new_user: str, path: str
) -> None:
    await facts(services, new_user)
    async with open_page(path, viewport={"width": 320, "height": 900}) as page:
        await page.locator("article").first.wait_for()
        await accessible(page)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
