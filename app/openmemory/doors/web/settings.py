"""The settings as they are, and where each comes from."""

from __future__ import annotations

from typing import Any, NamedTuple

from fastapi import APIRouter
from starlette.responses import Response

from openmemory.config.settings import keys
from openmemory.doors.web.archives import backup_commands
from openmemory.doors.web.page import PageRequest, TheForm, ThePage, text_of

router = APIRouter(include_in_schema=False)

FOR_EVERYBODY = frozenset({"limits", "rates"})
"""The sections that everybody may see. The others describe the service as a whole."""


class Setting(NamedTuple):
    """One setting. `source`: a file, a variable or a flag; None for the default."""

    name: str
    value: str
    source: str | None
    meaning: str


@router.get("/ui/settings")
async def show(page: ThePage) -> Response:
    """Show the settings by section, the time zone of the user, and how to back up everything."""
    return page.render(
        "settings.html",
        zone=await page.services.directory.timezone(page.caller) if page.may_read else None,
        sections=_sections(page),
        folder=page.services.stores.folder,
        backup=backup_commands(page),
    )


@router.post("/ui/settings/timezone")
async def save_timezone(page: ThePage, form: TheForm) -> Response:
    """Save the time zone of the user, or forget it."""
    name = text_of(form, "timezone").strip()
    await page.services.directory.save_timezone(page.caller, name or None)
    return page.redirect_with_notice("Saved the time zone." if name else "No time zone is saved any more.", "settings")


def _sections(page: PageRequest) -> dict[str, list[Setting]]:
    settings = page.services.settings
    sections: dict[str, list[Setting]] = {}
    for path, field in keys().items():
        section = path[0] if len(path) > 1 else "service"
        if page.operates or section in FOR_EVERYBODY:
            name, source = ".".join(path), settings.source(path)
            value = page.services.stores.folder if name == "data_dir" else settings.masked(path)
            text = str(value) if name == "port" else _format(value)
            sections.setdefault(section, []).append(Setting(name, text, source, field.description or ""))
    return dict(sorted(sections.items(), key=lambda each: each[0] not in FOR_EVERYBODY))


def _format(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
