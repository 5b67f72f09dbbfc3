"""Metadata that names the issuer of the tokens that this service accepts (RFC 9728)."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from openmemory.config.sections import OAuthSettings
from openmemory.doors.rest.http.caller import TheServices
from openmemory.doors.rest.http.challenge import WELL_KNOWN, resource_path
from openmemory.doors.rest.http.errors import documented
from openmemory.doors.rest.http.routing import Router
from openmemory.errors import NotFound

router = Router(WELL_KNOWN, "operation")


class ProtectedResource(BaseModel):
    """The information that a client needs to get a token for an address of this service."""

    resource: str = Field(description="The address, as a token for it is asked for.")
    authorization_servers: list[str] = Field(description="Who issues tokens for it.")
    scopes_supported: list[str] = Field(description="What a token may be for.")
    bearer_methods_supported: list[str] = Field(["header"], description="How a token is sent.")
    resource_name: str = Field("OpenMemory", description="The name for people.")


@router.get("", responses=documented(404))
async def protected_resource(services: TheServices) -> ProtectedResource:
    """Say which authorization server issues tokens for this service. Needs no key; 404 without one."""
    return _describe(services.settings.oauth, "")


@router.get("/{path:path}", include_in_schema=False)
async def protected_path(services: TheServices, path: str) -> ProtectedResource:
    """Returns the same for one MCP address, such as `/mcp/sse`."""
    return _describe(services.settings.oauth, "/" + path)


def _describe(oauth: OAuthSettings, path: str) -> ProtectedResource:
    if not oauth.issuer:
        raise NotFound("OAuth is off", code="oauth_off", hint="Set oauth.issuer and oauth.resource.")
    base = urlsplit(oauth.resource)
    return ProtectedResource(
        resource=f"{base.scheme}://{base.netloc}{resource_path(oauth, path)}",
        authorization_servers=[oauth.issuer],
        scopes_supported=oauth.scopes,
    )
