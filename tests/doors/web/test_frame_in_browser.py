"""What stays around the pages in Chromium: the bar at the top, the icon, notices, headings and tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from openmemory.access.schemas import KeyCreate
from openmemory.identity.principal import LOCAL
from openmemory.index.sync.reconcile import SyncRunning
from openmemory.services import Services
from tests.doors.web.conftest import Accessible, OpenPage

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.browser

NARROW = {"width": 390, "height": 800}
TABS = ["Memories", "Apps", "Activity", "Time", "Connect", "Settings", "System"]


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("opened", ["memories", "memories?q=tea"])
async def test_the_form_to_add_a_memory_opens_below_the_heading(
    open_page: OpenPage, opened: str, scripts: bool
) -> None:
    for width in (320, 390, 1440):
        size = {"width": width, "height": 800}
        async with open_page(opened, viewport=size, java_script_enabled=scripts) as page:
            heading, button = page.locator("main h1"), page.get_by_text("Add a memory", exact=True)
            before = await heading.bounding_box(), await button.bounding_box()
            await button.click()
            form = await page.locator("#add form").bounding_box()
            assert (await heading.bounding_box(), await button.bounding_box()) == before
            assert form
            assert all(each and each["y"] + each["height"] <= form["y"] for each in before)


async def test_every_tab_is_in_sight_on_a_narrow_screen(open_page: OpenPage) -> None:
    async with open_page("memories", viewport=NARROW) as page:
        tabs = page.get_by_role("navigation", name="Main")
        for label in TABS:
            await tabs.get_by_role("link", name=label).click()
            await tabs.locator("[aria-current]", has_text=label).wait_for()
            for each in await tabs.get_by_role("link").all():
                box = await each.bounding_box()
                assert box
                assert 0 <= box["x"] <= box["x"] + box["width"] <= NARROW["width"], label


async def test_tables_are_not_cut_on_a_narrow_screen(
    open_page: OpenPage, accessible: Accessible, services: Services, remember: Callable[..., Any], new_user: str
) -> None:
    memory = await remember(new_user, "Alice drinks tea.", app="an-assistant-with-a-long-name")
    app = await services.directory.caller(new_user, "an-assistant-with-a-long-name")
    await services.memories.get(app, memory["id"])
    made = await services.keys.create(LOCAL, KeyCreate(name="a key", user_id=new_user, app="claude"))
    with suppress(SyncRunning):  # the service has begun one, which the page shows as well
        await services.reconciler.sync(trigger="test")
    async with open_page("connect", viewport=NARROW) as page:
        for path in ("connect", f"memory/{memory['id']}?who=1", "settings/keys", "settings", "activity", "system"):
            await page.goto(f"/ui/{path}{'&' if '?' in path else '?'}user={new_user}")
            await page.evaluate("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")
            assert await page.locator("main table").count(), path
            widths = "each => each.map(one => [one.scrollWidth, one.parentElement.clientWidth])"
            for needed, given in await page.locator("main table").evaluate_all(widths):
                assert needed <= given, path
            await accessible(page)
    await services.keys.revoke(LOCAL, made.id)


async def test_files_of_the_page_are_found_after_moves_to_every_depth(
    open_page: OpenPage, remember: Callable[..., Any], new_user: str
) -> None:
    memory = await remember(new_user, "Alice drinks tea.", app="claude")
    async with open_page("memories") as page:
        missed: list[str] = []
        page.on("response", lambda answer: missed.append(answer.url) if answer.status == 404 else None)
        at_first = await icon(page)
        await page.get_by_role("link", name="Alice drinks tea.").click()
        await page.get_by_role("heading", name="Details").wait_for()
        for moved in ("Apps", "claude", "Settings", "Keys", "Memories"):
            left = page.url
            await page.get_by_role("link", name=moved, exact=True).first.click()
            await page.wait_for_function("(left) => location.href !== left", arg=left)
            assert await icon(page) == at_first, page.url
        await page.goto(f"/ui/memory/{memory['id']}?user={new_user}")
        assert await icon(page) == at_first
        assert not missed


async def icon(page: Page) -> str:
    """The address of the page's icon, which answers."""
    address = str(await page.evaluate("document.querySelector('link[rel=icon]').href"))
    assert (await page.request.get(address)).ok, address
    return address


async def test_a_notice_without_undo_goes_with_the_next_page(open_page: OpenPage) -> None:
    async with open_page("memories") as page:
        await page.get_by_text("Add a memory", exact=True).click()
        await page.get_by_label("What to remember").fill("Bob is allergic to peanuts.")
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.get_by_text("Added.").wait_for()
        for label in ("Activity", "Time", "Memories"):
            await page.get_by_role("link", name=label, exact=True).click()
            await page.get_by_role("heading", name=label, level=1).wait_for()
            assert await page.locator(".notice").count() == 0
        await page.go_back()
        await page.get_by_role("heading", name="Time", level=1).wait_for()
        assert await page.locator(".notice").count() == 0


async def test_the_details_are_reached_with_the_keyboard(
    open_page: OpenPage, accessible: Accessible, remember: Callable[..., Any], new_user: str
) -> None:
    memory = await remember(new_user, "Alice drinks tea.", app="claude", kind="note", thread_id="the thread")
    await remember(new_user, "Something else")
    async with open_page(f"memory/{memory['id']}") as page:
        await accessible(page)
        reached = set()
        for _ in range(60):
            await page.keyboard.press("Tab")
            words = str(await page.evaluate("document.activeElement.textContent"))
            reached.add(words)
            if words == "the thread":
                break
        assert {"claude", "note", "default"} <= reached
        await page.keyboard.press("Enter")
        await page.get_by_text("thread: the thread").wait_for()
        assert await page.locator("li.memory").count() == 1


async def test_a_page_of_an_error_leads_on(open_page: OpenPage, accessible: Accessible) -> None:
    async with open_page("nothing/at/all", viewport=NARROW) as page:
        await accessible(page)
        await page.get_by_role("navigation", name="Main").get_by_role("link", name="Activity").click()
        await page.get_by_role("heading", name="Activity", level=1).wait_for()
