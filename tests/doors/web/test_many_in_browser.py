"""The list of a hundred thousand memories in Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doors.web.conftest import Accessible, NewBrowser
from tests.faults.outages import staged

pytestmark = [pytest.mark.browser, pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(900)]

MANY = 100_000
LONG = 240_000
"""Milliseconds that a change of all of them may take."""

_FILL = b"""
    INSERT INTO memories (user_id, app_id, content, namespace, hash, created_at)
    SELECT m.user_id, m.app_id, 'thing number ' || n, CASE WHEN mod(n, 1000) = 0 THEN 'rare' ELSE 'default' END,
        md5(n::text), now() - n * interval '1 minute'
    FROM memories AS m, generate_series(2, %s) AS n WHERE m.content = 'thing number 1'
"""


async def test_a_hundred_thousand_memories_are_paged_filtered_searched_and_changed_at_once(
    new_browser: NewBrowser, accessible: Accessible, short_folder: Path
) -> None:
    # The patience of an ordinary service, because nothing fails here: a busy machine may take seconds to connect.
    async with staged(short_folder / "many", OPENMEMORY_DATABASE_CONNECT_TIMEOUT="20") as stage:
        answer = await stage.http.post("/api/v1/memories", json={"text": "thing number 1"})
        answer.raise_for_status()
        await stage.admin.execute(_FILL, [MANY])
        await stage.admin.execute(b"ANALYZE memories")
        async with new_browser(str(stage.http.base_url)) as browser:
            page = await browser.new_page()
            await page.goto("/ui/memories")
            await page.get_by_text("100,000 memories", exact=True).wait_for()
            assert await page.locator("li.memory").count() == 50
            await accessible(page)
            await page.goto("/ui/memories?page=2000&sort=newest")
            await page.get_by_text("thing number 100000", exact=True).wait_for()
            await page.get_by_role("search").get_by_label("Namespace").fill("rare")
            await page.get_by_text("100 memories", exact=True).wait_for()
            await page.get_by_role("searchbox").fill("thing number 77000")
            await page.locator("li.memory").get_by_text("thing number 77000", exact=True).wait_for()
            await page.goto("/ui/memories?namespace=default")
            await page.get_by_label("All 99,900 that match").check()
            await page.get_by_role("button", name="Archive").click()
            done = page.get_by_text("Archived 99,900 memories.").or_(page.get_by_role("alert"))
            assert "Archived" in (await done.text_content(timeout=LONG) or "")
            await page.get_by_role("button", name="Undo").click()
            done = page.get_by_text("Undone for 99,900 memories.").or_(page.get_by_role("alert"))
            assert "Undone" in (await done.text_content(timeout=LONG) or "")
            await page.get_by_text("99,900 memories", exact=True).wait_for()
