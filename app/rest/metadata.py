"""Where the tokens come from that this service takes (RFC 9728), and how a refusal says so (RFC 6750)."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, Field

from app.config import OAuth, Settings
from app.errors import NotFound
from app.rest.caller import TheServices
from app.rest.errors import documented
from app.rest.routing import Router

WELL_KNOWN = "/.well-known/oauth-protected-resource"

router = Router(WELL_KNOWN, "operation")


class ProtectedResource(BaseModel):
    """What a client needs to know to get a token for an address of this service."""

    resource: str = Field(description="The address, as a token for it is asked for.")
    authorization_servers: list[str] = Field(description="Who issues tokens for it.")
    scopes_supported: list[str] = Field(description="What a token may be for.")
    bearer_methods_supported: list[str] = Field(["header"], description="How a token is sent.")
    resource_name: str = Field("OpenMemory", description="The name for people.")


@router.get("", responses=documented(404))
async def protected_resource(services: TheServices) -> ProtectedResource:
    """Say which authorization server issues tokens for this service. Needs no key; 404 without one."""
    return _described(services.settings.oauth, "")


@router.get("/{path:path}", include_in_schema=False)
async def protected_path(services: TheServices, path: str) -> ProtectedResource:
    """The same for one address, such as `/mcp`."""
    return _described(services.settings.oauth, "/" + path)


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
        parts["resource_metadata"] = f"{resource.scheme}://{resource.netloc}{WELL_KNOWN}{resource.path}{_quoted(path)}"
    if error:
        parts["error"] = error
    if description:
        parts["error_description"] = description
    if scope and settings.oauth.issuer:
        parts["scope"] = " ".join(settings.oauth.scope_prefix + one for one in scope.split())
    return "Bearer " + ", ".join(f'{name}="{_plain(value)}"' for name, value in parts.items())


def _described(oauth: OAuth, path: str) -> ProtectedResource:
    if not oauth.issuer:
        raise NotFound("OAuth is off", code="oauth_off", hint="Set oauth.issuer and oauth.resource.")
    base = urlsplit(oauth.resource)
    # With a base that has a path the well-known part stands before it; a proxy may have cut it off.
    path = _quoted(path)
    own = path if not base.path or path == base.path or path.startswith(base.path + "/") else base.path + path
    scopes = ["read", "write", *(["admin"] if oauth.admins else [])]
    return ProtectedResource(
        resource=f"{base.scheme}://{base.netloc}{own}",
        authorization_servers=[oauth.issuer],
        scopes_supported=[oauth.scope_prefix + scope for scope in scopes],
    )


def _quoted(path: str) -> str:
    return quote(path.rstrip("/"), safe="/:@!$&'()*+,;=~-._")


def _plain(value: str) -> str:
    """A value without what a quoted string of RFC 6750 must not hold."""
    return re.sub(r"[^\x20\x21\x23-\x5b\x5d-\x7e]", "'", value)
