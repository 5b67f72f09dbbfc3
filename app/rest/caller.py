"""Who asks over REST: the services of the application, and the caller that a request names."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query, Request

from app.access import users
from app.access.caller import Caller
from app.errors import NotFound
from app.memories import checks
from app.services import Services


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


TheServices = Annotated[Services, Depends(_services)]


async def owner_of(services: Services, user: str | None, field: str = "user_id") -> Caller:
    """A user themself, who must exist; None means the configured default user.

    Raises:
        NotFound: no such user.
    """
    if user is not None:
        checks.name(user, field, services.settings.limits)
    return await services.directory.existing(user)


async def new_owner_of(services: Services, user: str) -> Caller:
    """A user themself, made on first use."""
    checks.name(user, "user_id", services.settings.limits)
    return await services.directory.caller(user, None, owner=True)


async def owner_by_either(services: Services, user: str) -> Caller:
    """A user themself, by name or by the internal id, which OpenMemory's archive action took."""
    try:
        return await owner_of(services, user)
    except NotFound:
        try:
            name = await users.name_of(services.database, UUID(user))
        except ValueError:
            name = None
        if name is None:
            raise
        return await services.directory.existing(name)


async def app_of(services: Services, user: str, app: str | None) -> Caller:
    """An app of a user; both are made on first use. None means the configured default app."""
    limits = services.settings.limits
    checks.name(user, "user_id", limits)
    if app is not None:
        checks.name(app, "app", limits)
    return await services.directory.caller(user, app)


_USER = Query(description="The user's name.", examples=["default_user"])
UserName = Annotated[str, _USER]


async def _owner(services: TheServices, user_id: UserName) -> Caller:
    return await owner_of(services, user_id)


async def _owner_or_default(
    services: TheServices,
    user_id: Annotated[str | None, Query(description="The user's name; left out: the default user.")] = None,
) -> Caller:
    return await owner_of(services, user_id)


Owner = Annotated[Caller, Depends(_owner)]
"""The user that `?user_id=` names."""

OwnerOrDefault = Annotated[Caller, Depends(_owner_or_default)]
"""The user that `?user_id=` names, or the default user."""
