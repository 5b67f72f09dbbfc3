"""Use cases of API keys; for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

from pydantic import Field

from openmemory.access.schemas import (
    KeyApp,
    KeyCreate,
    KeyCreated,
    KeyEnd,
    KeyList,
    KeyName,
    KeyNamespaces,
    KeyOfEveryone,
    KeyScopes,
    KeyUser,
)
from openmemory.identity.names import checked_name
from openmemory.identity.principal import Scope
from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import Message, name_or_none

if TYPE_CHECKING:
    from openmemory.identity.principal import Principal
    from openmemory.services import Services

TAG = "access"
PATH = "/api/v1/keys"
_READ_AND_WRITE = [Scope.READ, Scope.WRITE]


@operation(
    "POST", PATH, command="keys create", tag=TAG, speaker=Speaker.CREDENTIAL, errors=(403,), status=201,
    body="KeyCreate",
    examples={
        "an assistant of one user": {"name": "claude", "user_id": "alice", "app": "claude"},
        "a program that reads one project": {
            "name": "report", "user_id": "alice", "namespaces": ["webshop"], "scopes": ["read"],
            "expires_at": "2027-01-31T12:00:00Z",
        },
        "a second administrator": {"name": "bob", "everyone": True, "scopes": ["read", "write", "admin"]},
    },
)  # fmt: skip
async def create_key(
    services: Services,
    principal: Principal,
    *,
    name: KeyName,
    user_id: KeyUser = None,
    everyone: KeyOfEveryone = False,
    app: KeyApp = None,
    namespaces: KeyNamespaces = None,
    scopes: KeyScopes = _READ_AND_WRITE,
    expires_at: KeyEnd = None,
) -> KeyCreated:
    """Make a key. The answer shows it this once.

    Needs the scope `admin`. A credential that is bound to a user, an app or namespaces makes keys with the same bounds
    or narrower ones, and with no scope that it lacks.
    """
    new = KeyCreate.model_construct(
        name=name, user_id=user_id, everyone=everyone, app=app, namespaces=namespaces, scopes=scopes,
        expires_at=expires_at,
    )  # fmt: skip
    return await services.keys.create(principal, with_checked_names(services, new))


def with_checked_names(services: Services, new: KeyCreate) -> KeyCreate:
    """Returns the key to make with its names checked, without surrounding blanks."""
    names: dict[str, Any] = {
        field: name_or_none(services, getattr(new, field), field) for field in ("name", "user_id", "app")
    }
    if new.namespaces is not None:
        limit = services.settings.limits.name
        names["namespaces"] = [checked_name(each, "namespaces", limit) for each in new.namespaces]
    return new.model_copy(update=names)


@operation("GET", PATH, command="keys list", tag=TAG, speaker=Speaker.CREDENTIAL, errors=(403,))
async def list_keys(
    services: Services,
    principal: Principal,
    *,
    user_id: Annotated[str | None, Field(description="Only the keys of this user; left out: of all.")] = None,
    ended: Annotated[bool, Field(description="Include revoked and expired keys.")] = False,
) -> KeyList:
    """List the keys, newest first.

    The list has the keys within the bounds of the credential, without their secrets. Needs the scope `admin`.
    """
    user = name_or_none(services, user_id, "user_id")
    return KeyList(keys=await services.keys.list(principal, user=user, ended=ended))


@operation(
    "POST", f"{PATH}/{{key_id}}/rotate", command="keys rotate", tag=TAG, speaker=Speaker.CREDENTIAL,
    errors=(403, 404), status=201, query=("keep",),
)  # fmt: skip
async def rotate_key(
    services: Services,
    principal: Principal,
    *,
    key_id: UUID,
    keep: Annotated[int, Field(ge=0, le=2_592_000, description="Seconds that the old one stays good.")] = 0,
) -> KeyCreated:
    """Make another key with the same rights, and end the old one.

    Needs the scope `admin`. Keys beyond the bounds of the credential are not found.
    """
    return await services.keys.rotate(principal, key_id, keep=keep)


@operation(
    "DELETE", f"{PATH}/{{key_id}}", command="keys revoke", tag=TAG, speaker=Speaker.CREDENTIAL, errors=(403, 404)
)
async def revoke_key(services: Services, principal: Principal, *, key_id: UUID) -> Message:
    """Revoke a key. All processes reject it within five seconds.

    Needs the scope `admin`. Keys beyond the bounds of the credential are not found.
    """
    await services.keys.revoke(principal, key_id)
    return Message(message="Successfully revoked the key")
