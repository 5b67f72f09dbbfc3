"""The pages of assistants in Chromium."""

from __future__ import annotations

import pytest

from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services
from tests.doors.web.conftest import Accessible, OpenPage

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [320, 1440])
async def test_apps_can_be_used_by_anybody(
    open_page: OpenPage, accessible: Accessible, services: Services, new_user: str, width: int
) -> None:
    app = await services.directory.caller(new_user, "claude")
    await services.memories.add(app, MemoryCreate("Alice drinks tea"))
    async with open_page("apps", viewport={"width": width, "height": 900}) as page:
        await accessible(page)
        await page.get_by_role("link", name="claude").click()
        await page.get_by_role("heading", name="What would this app see?").wait_for()
        await page.get_by_text("Add a rule").click()
        await accessible(page)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_refused_rule_stays_in_its_form(open_page: OpenPage, services: Services, new_user: str) -> None:
    app = await services.directory.caller(new_user, "claude")
    async with open_page(f"apps/{app.app_id}") as page:
        await page.get_by_text("Add a rule").click()
        await page.locator("select[name=object_type]").select_option("memory")
        await page.locator("input[name=object]").fill("coffee")
        await page.get_by_role("button", name="Add the rule").click()
        await page.get_by_text("object: must be the id (a UUID) of a memory").wait_for()
        assert await page.locator("input[name=object]").input_value() == "coffee"
