"""Files imported at the page with Chromium: the chosen file stays chosen between the check and the import."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.doors.cli.installation import household
from tests.doors.web.conftest import Accessible, OpenPage

pytestmark = pytest.mark.browser


@pytest.fixture
def database(tmp_path: Path, new_user: str) -> Path:
    """The database of an installation of two users, whose names begin with that of the test's user."""
    old, _ = household(tmp_path / "openmemory.db")
    with closing(sqlite3.connect(old.path)) as connection, connection:
        connection.execute("UPDATE users SET user_id = ? || '-' || user_id, email = NULL", [new_user])
    return old.path


@pytest.mark.parametrize("width", [1440, 390])
async def test_a_database_is_checked_a_user_is_chosen_and_imported(
    open_page: OpenPage, accessible: Accessible, database: Path, new_user: str, width: int
) -> None:
    viewport = {"width": width, "height": 900}
    async with open_page("settings/archives", viewport=viewport) as page:
        async with page.expect_file_chooser() as choosing:
            await page.get_by_label("File").click()
        await (await choosing.value).set_files(database)
        await page.get_by_role("button", name="Check the file").click()
        await page.get_by_text("Nothing was imported.").wait_for()
        assert await page.get_by_text("By cursor 3, claude 2.").count() == 2
        assert await page.get_by_text("Choose the file again").count() == 0
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await accessible(page)
        await page.get_by_label("Whose memories").select_option(f"{new_user}-bob")
        await page.get_by_role("button", name="Check again").click()
        await page.get_by_role("heading", name=f"{new_user}-bob into the memory of {new_user}").wait_for()
        assert await page.get_by_label("Into the memory of").input_value() == new_user
        await page.get_by_role("button", name="Import", exact=True).click()
        await page.get_by_role("heading", name="Imported", exact=True).wait_for()
        await accessible(page)
        await page.get_by_role("link", name=f"Show the memories of {new_user}").click()
        await page.get_by_text("bob 1 ☕").wait_for()


async def test_a_refused_file_is_told_beside_the_form(open_page: OpenPage, tmp_path: Path) -> None:
    file = tmp_path / "diary.db"
    file.write_text("Dear diary")
    async with open_page("settings/archives") as page:
        await page.get_by_label("File").set_input_files(file)
        await page.get_by_role("button", name="Check the file").click()
        await page.locator("form .refusal").get_by_text("file: must be a database of OpenMemory").wait_for()
        assert await page.get_by_role("button", name="Import", exact=True).count() == 0
