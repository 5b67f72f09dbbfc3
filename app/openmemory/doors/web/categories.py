"""The categories that the service assigns: their descriptions, and assigning them again."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from openmemory.categories.schemas import MAX_DESCRIPTION_LENGTH
from openmemory.doors.web.page import TheForm, ThePage, Undo, text_of
from openmemory.errors import Invalid

router = APIRouter(include_in_schema=False)

_IN_A_NOTICE = 1_000
"""The longest description that a notice can bring back: a browser keeps little in a cookie."""


@router.get("/ui/settings/categories")
async def show(page: ThePage) -> Response:
    """Show the categories with their descriptions."""
    if not page.everything:
        return page.render("categories.html", categories=None, waiting=None)
    result = await page.services.descriptions.list(page.caller)
    waiting = await page.services.categorization.waiting(page.caller)
    return page.render(
        "categories.html",
        categories=result.categories,
        waiting=waiting,
        longest=MAX_DESCRIPTION_LENGTH,
        assigns=page.services.settings.categories.assign != "off",
    )


@router.post("/ui/settings/categories")
async def describe(page: ThePage, form: TheForm) -> Response:
    """Set the user's description of a category."""
    name, text = text_of(form, "name").strip(), text_of(form, "description").strip()
    if not 1 <= len(text) <= MAX_DESCRIPTION_LENGTH:
        raise Invalid("description", f"must have from 1 to {MAX_DESCRIPTION_LENGTH:,} characters, not {len(text):,}")
    described = await page.services.descriptions.describe(page.caller, name, text)
    return page.redirect_with_notice(f"Saved {described.name}. Memories are looked at again.", "settings/categories")


@router.post("/ui/settings/categories/forget")
async def forget(page: ThePage, form: TheForm) -> Response:
    """Remove the user's description of a category."""
    name = text_of(form, "name")
    descriptions = (await page.services.descriptions.list(page.caller)).categories
    before = next((each.description for each in descriptions if each.name == name and each.described_by == "user"), "")
    await page.services.descriptions.forget(page.caller, name)
    short = 0 < len(before) <= _IN_A_NOTICE
    undo = Undo("settings/categories", {"name": name, "description": before}) if short else None
    return page.redirect_with_notice(f"Removed your description of {name}.", "settings/categories", undo)


@router.post("/ui/settings/categories/assign")
async def assign(page: ThePage, form: TheForm) -> Response:
    """Assign categories to the memories that no client has categorized."""
    again = bool(text_of(form, "again"))
    waiting = await page.services.categorization.request(page.caller, again=again)
    return page.redirect_with_notice(f"{waiting.waiting:,} memories wait for categories.", "settings/categories")
