"""The state of the service with Chromium."""

from __future__ import annotations

import re

import pytest

from tests.doors.web.conftest import Accessible, OpenPage

pytestmark = pytest.mark.browser


async def test_sync(open_page: OpenPage, accessible: Accessible) -> None:
    async with open_page("system") as page:
        await page.get_by_role("button", name="Sync now").click()
        # The service may have started one of its own, and what this worker has stored may take long.
        await page.get_by_text(re.compile("Compared|goes on|Another synchronisation is running")).wait_for()
        await accessible(page)
