"""Copying commands and addresses with Chromium."""

from __future__ import annotations

import pytest

from tests.doors.web.conftest import Accessible, OpenPage

pytestmark = pytest.mark.browser


async def test_copy(open_page: OpenPage, accessible: Accessible) -> None:
    async with open_page("connect", permissions=["clipboard-read", "clipboard-write"]) as page:
        await accessible(page)
        await page.locator(".copy", has=page.locator("#copy-sse")).get_by_role("button", name="Copy").click()
        await page.get_by_role("button", name="Copied").wait_for()
        assert str(await page.evaluate("navigator.clipboard.readText()")).endswith("/mcp/sse")


async def test_without_scripts_there_is_no_button(open_page: OpenPage) -> None:
    async with open_page("connect", java_script_enabled=False) as page:
        assert await page.get_by_text("/mcp/sse").is_visible()
        assert not await page.get_by_text("Copy", exact=True).first.is_visible()
