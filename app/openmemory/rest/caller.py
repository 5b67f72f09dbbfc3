"""Dependencies that provide the application's services and the caller that a request names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Path, Query, Request

from openmemory.access.directory import Belonging
from openmemory.errors import Forbidden, NotFound
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Principal
from openmemory.identity.request import principal_of
from openmemory.memories import validation
from openmemory.services import Services


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


TheServices = Annotated[Services, Depends(_services)]


async def _principal(request: Request) -> Principal:
    return principal_of(request.scope)


ThePrincipal = Annotated[Principal, Depends(_principal)]
"""The principal that the request's credential proves."""


@dataclass(frozen=True, slots=True)
class AuthenticatedRequest:
    """The services and the principal of a request, before the user is resolved."""

    services: Services
    principal: Principal

    async def as_owner(self, user: str | None, field: str = "user_id") -> Caller:
        """Returns the user themself, who must exist. None means the credential's user, or the configured default.

        Raises:
            Forbidden: the credential does not speak for that user.
            NotFound: no such user.
        """
        if user == "":
            raise NotFound("User not found", code="user_not_found")
        if user is not None:
            validation.name(user, field, self.services.settings.limits)
        return await self.services.directory.owner(self.principal, user)

    async def as_owner_of(self, what: Belonging, id_: UUID, user: str | None) -> Caller:
        """Returns the user themself for a request about a memory, a capture or an app. Without a user name, the owner
        of that object is used if the credential speaks for every user; otherwise as in `as_owner`. OpenMemory's UI
        omits the user in some calls."""
        if not user and self.principal.user is None and self.principal.app is None:
            user = await self.services.directory.owner_of(what, id_)
        return await self.as_owner(user or None)

    async def as_new_owner(self, user: str) -> Caller:
        """Returns the user themself. Creates the user on first use if the credential may write."""
        validation.name(user, "user_id", self.services.settings.limits)
        return await self.services.directory.owner(self.principal, user, make=True)

    async def as_owner_by_either(self, user: str) -> Caller:
        """Returns the user themself, by name or by the internal id, which OpenMemory's archive action accepted."""
        try:
            return await self.as_owner(user)
        except (NotFound, Forbidden):
            try:
                name = await self.services.directory.name_of(UUID(user))
            except ValueError:
                name = None
            if name is None or self.principal.user not in (None, name):
                raise
            return await self.services.directory.owner(self.principal, name)

    async def as_app(self, user: str, app: str | None) -> Caller:
        """Returns an app of a user. Creates both on first use if the credential may write. None means the credential's
        app, or the configured default app."""
        limits = self.services.settings.limits
        validation.name(user, "user_id", limits)
        if app is not None:
            validation.name(app, "app", limits)
        return await self.services.directory.speaking(self.principal, user, app)


async def _asking(services: TheServices, principal: ThePrincipal) -> AuthenticatedRequest:
    return AuthenticatedRequest(services, principal)


TheAsking = Annotated[AuthenticatedRequest, Depends(_asking)]

_USER = Query(description="The user's name.", examples=["default_user"])
UserName = Annotated[str, _USER]


async def _owner(asking: TheAsking, user_id: UserName) -> Caller:
    return await asking.as_owner(user_id)


async def _owner_or_default(
    asking: TheAsking,
    user_id: Annotated[str | None, Query(description="The user's name; left out: the default user.")] = None,
) -> Caller:
    return await asking.as_owner(user_id or None)


MemoryId = Annotated[UUID, Path(description="The memory's id.")]
AppId = Annotated[UUID, Path(description="The app's id.")]
_WHOSE = Query(description="The user's name; left out: whose it is, or with a user's own credential that user.")


async def _owner_of_memory(
    asking: TheAsking, memory_id: MemoryId, user_id: Annotated[str | None, _WHOSE] = None
) -> Caller:
    return await asking.as_owner_of("memory", memory_id, user_id)


async def _owner_of_app(asking: TheAsking, app_id: AppId, user_id: Annotated[str | None, _WHOSE] = None) -> Caller:
    return await asking.as_owner_of("app", app_id, user_id)


CaptureId = Annotated[UUID, Path(description="The capture's id.")]


async def _owner_of_capture(
    asking: TheAsking, capture_id: CaptureId, user_id: Annotated[str | None, _WHOSE] = None
) -> Caller:
    return await asking.as_owner_of("capture", capture_id, user_id)


Owner = Annotated[Caller, Depends(_owner)]
"""The user that `?user_id=` names."""

OwnerOrDefault = Annotated[Caller, Depends(_owner_or_default)]
"""The user that `?user_id=` names, or the default user."""

OwnerOfMemory = Annotated[Caller, Depends(_owner_of_memory)]
"""The user that `?user_id=` names, or the owner of the memory in the path."""

OwnerOfApp = Annotated[Caller, Depends(_owner_of_app)]
"""The user that `?user_id=` names, or the owner of the app in the path."""

OwnerOfCapture = Annotated[Caller, Depends(_owner_of_capture)]
"""The user that `?user_id=` names, or the owner of the capture in the path."""
