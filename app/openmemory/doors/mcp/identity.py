"""Resolves the user and the app that the address names, as far as the credential allows them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.types import Scope

from openmemory.access.keys import resembles_credential
from openmemory.config.settings import LimitSettings, McpSettings
from openmemory.doors.mcp.formats import AnswerFormat, answer_format, default_format
from openmemory.doors.mcp.places import NO_PROJECT, ClientProject
from openmemory.doors.mcp.toolsets import OTHER_SERVERS, USUAL_TOOLS, ToolChoice, choose_tools
from openmemory.errors import Invalid
from openmemory.identity.principal import Principal
from openmemory.identity.request import RequestContext
from openmemory.memories import validation
from openmemory.projects.anchors import commit
from openmemory.sessions.storage import SessionNames

_KEY = "openmemory.identity"


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools as a client wants them: the form of the answers, and the tools that are listed.

    `legacy` is true where old clients call: at OpenMemory's own addresses, without asking for a form of answers.
    """

    format: AnswerFormat = AnswerFormat.COMPACT
    tools: ToolChoice = USUAL_TOOLS
    legacy: bool = False
    project: ClientProject = NO_PROJECT
    """The project that the tools mean if a call names none."""
    head: str | None = None
    """The commit that the client's folder has checked out."""
    branch: str | None = None
    """The branch that the client's folder has checked out."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller of tools: a principal, and the names that it claims and may claim."""

    principal: Principal
    user: str | None
    app: str | None
    offer: Offer

    @property
    def missing(self) -> str | None:
        """The name that the address left empty, as OpenMemory calls it."""
        return "user_id" if self.user == "" else "client_name" if self.app == "" else None

    def at(self, sender: RequestContext) -> Identity:
        """Returns the same identity for a message of that sender. If the message has its own credential, the rights of
        that one apply: another token of the same client may grant less, or last longer."""
        principal = sender.principal or replace(self.principal, address=sender.address, request=sender.request)
        zone = sender.timezone or self.principal.timezone
        return replace(self, principal=replace(principal, timezone=zone))


def names_of(request: Request, limits: LimitSettings) -> SessionNames:
    """Returns the names in `/mcp/{client}/…/{user}`, or none. A name that was left out altogether is empty.

    Raises:
        Invalid: one is blank, too long, or cannot be stored.
    """
    if not request.path_params:
        return SessionNames(None, None)
    return SessionNames(_name(request, "user", limits), _name(request, "client", limits))


def offer_of(request: Request, settings: McpSettings, limits: LimitSettings) -> Offer:
    """Returns what `format`, `toolsets`, `as`, `project`, `folder`, `branch` and `head` ask for, in the query, in
    headers such as `X-MCP-Format`, or in the settings. An address such as `/mcp/mempack` names the tools too. The
    headers of the project, its folder and its branch are percent-encoded.

    Raises:
        Invalid: a value is unknown.
    """

    def parameter(name: str) -> str | None:
        return request.query_params.get(name) or request.headers.get(f"x-mcp-{name}") or None

    format_, only = parameter("format"), parameter("as")
    if (server := _server_in(request.scope["route"].path)) is not None:
        only = ",".join(filter(None, (server, only)))
    tools = choose_tools(settings, parameter("toolsets"), only)
    usual = AnswerFormat.JSON if request.path_params else AnswerFormat.COMPACT
    form = answer_format(format_) if format_ else default_format(settings, tools, usual)
    legacy = bool(request.path_params) and format_ is None
    project_name, folder, branch = (
        request.query_params.get(name) or unquote(request.headers.get(f"x-mcp-{name}", "")) or None
        for name in ("project", "folder", "branch")
    )
    project = ClientProject(project_name and validation.name(project_name, "project", limits), folder)
    head = parameter("head")
    branch = branch and validation.name(branch, "branch", limits)
    return Offer(form, tools, legacy, project, head and commit(head, "head"), branch)


def _server_in(path: str) -> str | None:
    """Returns the server whose tools a route such as `/mcp/mempack` lists; None for another route."""
    return next((name for name in OTHER_SERVERS if name in path.split("/")), None)


def identify(principal: Principal, names: SessionNames, offer: Offer) -> Identity:
    """Returns the caller's identity, if the credential allows the names.

    Raises:
        Forbidden: the credential does not allow them.
    """
    # An empty name claims nothing; the tools report that it is missing.
    user = names.user if names.user == "" else principal.claimed_user(names.user)
    app = names.app if names.app == "" else principal.claimed_app(names.app)
    return Identity(principal, user, app, offer)


def _name(request: Request, part: str, limits: LimitSettings) -> str:
    field = f"{part} (in the address)"
    name = request.path_params.get(part, "")
    if "\ufffd" in name and b"%EF%BF%BD" not in request.scope.get("raw_path", b"").upper():
        raise Invalid(field, "must be UTF-8, percent-encoded")  # the server replaced what it could not decode
    if resembles_credential(name):
        raise Invalid(field, "looks like a key; send a key as `Authorization: Bearer KEY`, or append ?key=KEY")
    return name and validation.name(name, field, limits)


def bind(scope: Scope, identity: Identity) -> None:
    """Stores the identity on the request, for the tools to read."""
    scope[_KEY] = identity


def identity_of(request: Any) -> Identity:
    """Returns the identity that `bind` stored."""
    identity = request.scope[_KEY]
    assert isinstance(identity, Identity)
    return identity
