"""The page on which administrators create and revoke API keys. A new key is shown once."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from openmemory.access.schemas import KeyCreate, KeyCreated
from openmemory.doors.web.page import PageRequest, TheForm, ThePage, id_of, names_of, text_of, texts_of, validate
from openmemory.errors import Invalid
from openmemory.identity.principal import Scope
from openmemory.operations.keys import with_checked_names

router = APIRouter(include_in_schema=False)


@router.get("/ui/settings/keys")
async def show(page: ThePage) -> Response:
    """Show the keys that are in force."""
    return await _render(page)


@router.post("/ui/settings/keys")
async def create(page: ThePage, form: TheForm) -> Response:
    """Make a key, and show it this once."""
    everyone = bool(text_of(form, "everyone"))
    new = validate(
        KeyCreate,
        {
            "name": text_of(form, "name").strip(),
            "user_id": None if everyone else text_of(form, "user_id"),
            "everyone": everyone,
            "app": text_of(form, "app"),
            "namespaces": names_of(form, "namespaces"),
            "scopes": texts_of(form, "scopes"),
            "expires_at": text_of(form, "expires_at"),
        },
    )
    if not texts_of(form, "scopes"):
        raise Invalid("scopes", f"must name at least one of {', '.join(Scope)}")
    key = await page.services.keys.create(page.principal, with_checked_names(page.services, new))
    return await _render(page, key)


@router.post("/ui/settings/keys/rotate")
async def rotate(page: ThePage, form: TheForm) -> Response:
    """Make another key with the same rights, show it this once, and end the old one."""
    return await _render(page, await page.services.keys.rotate(page.principal, id_of(text_of(form, "id"), "id")))


@router.post("/ui/settings/keys/revoke")
async def revoke(page: ThePage, form: TheForm) -> Response:
    """End a key."""
    await page.services.keys.revoke(page.principal, id_of(text_of(form, "id"), "id"))
    return page.redirect_with_notice(
        "Revoked the key. No process takes it any more within five seconds.", "settings/keys"
    )


async def _render(page: PageRequest, key: KeyCreated | None = None) -> Response:
    keys = await page.services.keys.list(page.principal) if page.manages_keys else []
    return page.render("keys.html", keys=keys, new_key=key, scopes=list(Scope))
