"""The pages about earlier times in Chromium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.doors.web.conftest import Accessible, OpenPage

pytestmark = pytest.mark.browser


async def test_the_slider_chooses_a_day(
    open_page: OpenPage, accessible: Accessible, remember: Callable[..., Any], new_user: str
) -> None:
    await remember(new_user, "An old note", created_at="2026-01-05T12:00:00Z")
    await remember(new_user, "A later note", created_at="2026-02-05T12:00:00Z")
    async with open_page("time") as page:
        await page.get_by_text("A later note").wait_for()
        await accessible(page)
        await page.get_by_role("slider").fill("1")
        await page.get_by_role("heading", name="At the end of 6 January 2026").wait_for()
        assert await page.get_by_text("An old note").is_visible()
        assert await page.get_by_text("A later note").count() == 0
        assert "at=2026-01-06" in page.url
        await page.locator("input[name=at]").fill("2026-02-05")
        await page.get_by_text("A later note").wait_for()
        assert await page.get_by_role("slider").input_value() == "31"


@pytest.mark.parametrize("width", [320, 1440])
async def test_changes_can_be_read_by_anybody(
    open_page: OpenPage, accessible: Accessible, remember: Callable[..., Any], new_user: str, width: int
) -> None:
    await remember(new_user, "Something " * 20)
    async with open_page("time/changes", viewport={"width": width, "height": 900}) as page:
        await page.get_by_text("added").wait_for()
        await accessible(page)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
