"""How a refusal tells a client where to get a token, and which (RFC 6750, RFC 9728)."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit

from app.config import Settings

WELL_KNOWN = "/.well-known/oauth-protected-resource"


def www_authenticate(
    settings: Settings, *, error: str | None, scope: str | None, path: str, description: str | None = None
) -> str:
    """The `WWW-Authenticate` of a refused request to `path`.

    `error` is a code of RFC 6750 and None where no credential was sent; `scope` is what would have been enough, such as
    "read" or "read write".
    """
    parts = {"realm": "openmemory"}
    if settings.oauth.issuer:
        resource = urlsplit(settings.oauth.resource)
        parts["resource_metadata"] = (
            f"{resource.scheme}://{resource.netloc}{WELL_KNOWN}{resource.path}{quoted_path(path)}"
        )
    if error:
        parts["error"] = error
    if description:
        parts["error_description"] = description
    if scope and settings.oauth.issuer:
        parts["scope"] = " ".join(settings.oauth.scope_prefix + one for one in scope.split())
    return "Bearer " + ", ".join(f'{name}="{_plain(value)}"' for name, value in parts.items())


def quoted_path(path: str) -> str:
    """A path as a URL has it."""
    return quote(path.rstrip("/"), safe="/:@!$&'()*+,;=~-._")


def _plain(value: str) -> str:
    """A value without what a quoted string of RFC 6750 must not hold."""
    return re.sub(r"[^\x20\x21\x23-\x5b\x5d-\x7e]", "'", value)
