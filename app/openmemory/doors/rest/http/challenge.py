"""Builds the header that points a refused client to the token that it needs (RFC 6750, RFC 9728)."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit

from openmemory.access.keys import resembles_credential
from openmemory.config.sections import OAuthSettings
from openmemory.config.settings import Settings

WELL_KNOWN = "/.well-known/oauth-protected-resource"
_DOOR = re.compile(r"/mcp(?:/sse|/messages|/(?![Kk][Ee][Yy]/)[^/]+/(?:http|sse)/[^/]+(?:/messages)?)?")


def www_authenticate(
    settings: Settings, *, error: str | None, scope: str | None, path: str, description: str | None = None
) -> str:
    """Returns the `WWW-Authenticate` header for a refused request to `path`.

    `error` is a code of RFC 6750, or None if no credential was sent. `scope` is the scope that would have sufficed,
    such as "read" or "read write".
    """
    parts = {"realm": "openmemory"}
    if settings.oauth.issuer:
        base = urlsplit(settings.oauth.resource)
        parts["resource_metadata"] = f"{base.scheme}://{base.netloc}{WELL_KNOWN}{resource_path(settings.oauth, path)}"
    if error:
        parts["error"] = error
    if description:
        parts["error_description"] = description
    if scope and settings.oauth.issuer:
        parts["scope"] = " ".join(settings.oauth.scope_prefix + one for one in scope.split())
    return "Bearer " + ", ".join(f'{name}="{_plain(value)}"' for name, value in parts.items())


def resource_path(oauth: OAuthSettings, path: str) -> str:
    """Returns the path of the resource that a token for this address is requested for: the address itself if it is an
    MCP address, otherwise the service. Nothing else that a client wrote is repeated, because it may be a key that is
    misspelled or in the wrong place."""
    base = urlsplit(oauth.resource).path
    # A proxy may have stripped the path of the service.
    path = path.rstrip("/").removeprefix(base)
    if _DOOR.fullmatch(path) is None or resembles_credential(path):
        return base
    return base + quote(path, safe="/:@!$&'()*+,;=~-._")


def _plain(value: str) -> str:
    """Replaces the characters that a quoted string of RFC 6750 must not contain."""
    return re.sub(r"[^\x20\x21\x23-\x5b\x5d-\x7e]", "'", value)
