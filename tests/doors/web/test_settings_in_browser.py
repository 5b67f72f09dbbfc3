"""The settings with Chromium."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.doors.web.conftest import Accessible, OpenPage

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("part", ["", "/models", "/categories", "/policies", "/archives", "/keys"])
async def test_the_settings_are_accessible(open_page: OpenPage, accessible: Accessible, part: str) -> None:
    async with open_page(f"settings{part}") as page:
        await accessible(page)


async def test_a_model_is_tried_and_its_form_stays(open_page: OpenPage) -> None:
    async with open_page("settings/models") as page:
        form = page.locator("#model-embedder form")
        await form.get_by_label("Key").fill("kept")
        await form.get_by_role("button", name="Test").click()
        await page.get_by_text("local/all-MiniLM-L6-v2-int8 answers").wait_for()
        assert await form.get_by_label("Key").input_value() == "kept"


async def test_an_archive_is_tried_and_then_imported(
    open_page: OpenPage, remember: Callable[..., Any], new_user: str, tmp_path: Path
) -> None:
    await remember(new_user, "Alice drinks her coffee black.")
    async with open_page("settings/archives") as page:
        async with page.expect_download() as downloading:
            await page.get_by_role("button", name="Download the archive").click()
        archive = tmp_path / "memories.zip"
        await (await downloading.value).save_as(archive)
        await page.get_by_label("File").set_input_files(archive)
        await page.get_by_role("button", name="Check the file").click()
        await page.get_by_text("Nothing was imported.").wait_for()
        await page.get_by_role("button", name="Import", exact=True).click()
        await page.get_by_role("heading", name="Imported", exact=True).wait_for()
        assert await page.get_by_text("Nothing was imported.").count() == 0


async def test_a_new_key_is_copied(open_page: OpenPage, accessible: Accessible, new_user: str) -> None:
    async with open_page("settings/keys", permissions=["clipboard-read", "clipboard-write"]) as page:
        await page.get_by_label("Name", exact=True).fill(f"of {new_user}")
        await page.get_by_role("button", name="Make the key").click()
        await page.get_by_role("button", name="Copy").click()
        await page.get_by_role("button", name="Copied").wait_for()
        assert str(await page.evaluate("navigator.clipboard.readText()")).startswith("om_")
        await accessible(page)
