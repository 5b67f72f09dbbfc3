"""Dependencies that provide the application's services and the caller that a request names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Path, Query, Request
from pydantic import Field, PlainValidator, WithJsonSchema

from openmemory.access.directory import Belonging
from openmemory.errors import Forbidden, NotFound
from openmemory.identity.caller import UNKNOWN, Caller
from openmemory.identity.principal import Principal
from openmemory.identity.request import principal_of
from openmemory.memories import short_ids
from openmemory.operations.parameters import MEMORY_ID, name_or_none, user_or_none
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

    async def as_owner(self, user: str | None, *, make: bool = False) -> Caller:
        """Returns the user themself. None means the credential's user, or the configured default. `make`: creates the
        user on first use if the credential may write.

        Raises:
            Forbidden: the credential does not speak for that user.
            NotFound: no such user.
        """
        return await self.services.directory.owner(self.principal, user_or_none(self.services, user), make=make)

    async def as_owner_or_new(self, user: str | None) -> Caller:
        """Returns the user themself, as `as_owner`. A user who does not exist is not created, and has no id.

        Raises:
            Forbidden: the credential does not speak for that user.
        """
        return await self.services.directory.owner_or_new(self.principal, user_or_none(self.services, user))

    async def as_owner_or_app_of(self, what: Belonging, id_: UUID | str, user: str | None, app: str | None) -> Caller:
        """Returns the caller of a request about one object, as `as_owner_or_app` does.

        If the request names no user and the credential speaks for every user, the user is the owner of the object:
        OpenMemory's UI omits the user in some calls. A short id means something only among the ids of one user, so no
        owner can be looked up by it.
        """
        if not user and isinstance(id_, UUID) and self.principal.user is None and self.principal.app is None:
            user = await self.services.directory.owner_of(what, id_)
        return await self.as_owner_or_app(user or None, app)

    async def as_owner_by_either(self, user: str | None) -> Caller:
        """Returns the user themself, by name or by the internal id, which OpenMemory's archive action accepted."""
        try:
            return await self.as_owner(user)
        except (NotFound, Forbidden):
            try:
                name = await self.services.directory.name_of(UUID(user or ""))
            except ValueError:
                name = None
            if name is None or self.principal.user not in (None, name):
                raise
            return await self.services.directory.owner(self.principal, name)

    async def as_app(self, user: str | None, app: str | None) -> Caller:
        """Returns an app of a user. Creates both on first use if the credential may write. None means what the
        credential is for, or the configured default."""
        names = user_or_none(self.services, user), name_or_none(self.services, app, "app")
        return await self.services.directory.app_caller(self.principal, *names)

    async def as_owner_or_app(self, user: str | None, app: str | None) -> Caller:
        """Returns an app of a user who exists, or the user themself if no app is named."""
        owner = await self.as_owner(user)
        return owner if app is None else await self.as_app(user, app)

    async def as_reader(self, user: str | None, app: str | None = None) -> Caller:
        """Returns who lists or searches: an app of a user, or the user themself if no app is named. A user who does not
        exist yet has nothing, and is not created."""
        reader = await self.as_owner_or_new(user)
        return reader if app is None or reader.user_id == UNKNOWN else await self.as_app(user, app)


async def _asking(services: TheServices, principal: ThePrincipal) -> AuthenticatedRequest:
    return AuthenticatedRequest(services, principal)


TheAsking = Annotated[AuthenticatedRequest, Depends(_asking)]

LEFT_OUT = "left out: the credential's user, or the default user."
BodyUser = Annotated[str | None, Field(description=f"The user's name; {LEFT_OUT}")]
"""The field `user_id` of a body; its default is None."""
UserId = Annotated[str | None, Query(description=f"The user's name; {LEFT_OUT}")]
"""The parameter `user_id` of a query; its default is None."""
Namespaces = Annotated[
    tuple[str, ...], Query(description="Only this project; may be repeated. Left out: every one.", max_length=100)
]
"""The parameter `namespace` of a query that reads; its default is empty."""
AS_APP = "Ask as this app of the user, with its rules; left out: as the user."
AskingApp = Annotated[str | None, Query(description=AS_APP)]
"""The parameter `app` of a query; its default is None."""


async def _reader(
    asking: TheAsking, user_id: Annotated[str | None, Query(description=f"The user's name; {LEFT_OUT}")] = None
) -> Caller:
    return await asking.as_reader(user_id)


def _id_or_short_id(value: Any) -> UUID | str:
    id_ = value if isinstance(value, UUID) else short_ids.parsed(value) if isinstance(value, str) else None
    if id_ is None:
        raise ValueError(f"Input should be a valid UUID, or its first characters ({short_ids.MIN_LENGTH} or more)")
    return id_


GivenId = Annotated[
    UUID | str,
    PlainValidator(_id_or_short_id),
    WithJsonSchema({
        "type": "string",
        "pattern": short_ids.PATTERN,
        "description": "A memory's id, or its first characters, as many as tell it from the user's other memories.",
    }),
]  # fmt: skip
"""The id of a memory as a request gives it: a UUID, or the digits of a short id. `ShortIds.resolved` finds the
memory."""

MemoryInPath = Annotated[GivenId, Path(description=MEMORY_ID)]
WHOSE = "The user's name; left out: whose it is, or with a user's own credential that user."
OwnersId = Annotated[str | None, Query(description=WHOSE)]
"""The parameter `user_id` of a query about one object; its default is None."""
WHOSE_MEMORY = f"{WHOSE} With a short id: the credential's user, or the default user."


Reader = Annotated[Caller, Depends(_reader)]
"""The user that `?user_id=` names, or the credential's user, or the default user, for a list or a search: a user who
does not exist yet has nothing."""
