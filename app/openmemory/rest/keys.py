"""REST endpoints for API keys; for administrators."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import Body, Query
from pydantic import BaseModel

from openmemory.access.keys import Key, KeyCreate, KeyCreated
from openmemory.config.settings import LimitSettings
from openmemory.memories import validation
from openmemory.rest.caller import ThePrincipal, TheServices
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router
from openmemory.rest.schemas import Message

router = Router("/api/v1/keys", "access")


class KeyList(BaseModel):
    """Keys, newest first."""

    keys: list[Key]


@router.post("", responses=documented(403), status_code=201)
async def create_key(
    services: TheServices,
    principal: ThePrincipal,
    new: Annotated[
        KeyCreate,
        Body(
            openapi_examples={
                "an assistant of one user": {"value": {"name": "claude", "user_id": "alice", "app": "claude"}},
                "a program that reads one project": {
                    "value": {
                        "name": "report",
                        "user_id": "alice",
                        "namespaces": ["webshop"],
                        "scopes": ["read"],
                        "expires_at": "2027-01-31T12:00:00Z",
                    }
                },
                "a second administrator": {
                    "value": {"name": "bob", "everyone": True, "scopes": ["read", "write", "admin"]}
                },
            }
        ),
    ],
) -> KeyCreated:
    """Make a key. The answer shows it this once. Needs the scope `admin`; a credential that is bound to a user, an app
    or namespaces makes keys with the same bounds or narrower ones, and with no scope that it lacks."""
    return await services.keys.create(principal, with_checked_names(new, services.settings.limits))


def with_checked_names(new: KeyCreate, limits: LimitSettings) -> KeyCreate:
    """Returns the key to make with its names checked, without surrounding blanks."""
    given: dict[str, Any] = dict(validation.names(new, ("name", "user_id", "app"), limits))
    if new.namespaces is not None:
        given["namespaces"] = [validation.name(each, "namespaces", limits) for each in new.namespaces]
    return new.model_copy(update=given)


@router.get("", responses=documented(403))
async def list_keys(
    services: TheServices,
    principal: ThePrincipal,
    user_id: Annotated[str | None, Query(description="Only the keys of this user.")] = None,
    ended: Annotated[bool, Query(description="The revoked and expired ones too.")] = False,
) -> KeyList:
    """List the keys within the bounds of the credential, without the keys themselves. Needs the scope `admin`."""
    if user_id is not None:
        user_id = validation.name(user_id, "user_id", services.settings.limits)
    return KeyList(keys=await services.keys.list(principal, user=user_id, ended=ended))


@router.post("/{key_id}/rotate", responses=documented(403, 404), status_code=201)
async def rotate_key(
    services: TheServices,
    principal: ThePrincipal,
    key_id: UUID,
    keep: Annotated[int, Query(ge=0, le=2_592_000, description="Seconds that the old one stays good.")] = 0,
) -> KeyCreated:
    """Make another key with the same rights, and end the old one. Needs the scope `admin`; keys beyond the bounds
    of the credential are not found."""
    return await services.keys.rotate(principal, key_id, keep=keep)


@router.delete("/{key_id}", responses=documented(403, 404))
async def revoke_key(services: TheServices, principal: ThePrincipal, key_id: UUID) -> Message:
    """End a key: within five seconds no process takes it any more. Needs the scope `admin`; keys beyond the bounds
    of the credential are not found."""
    await services.keys.revoke(principal, key_id)
    return Message(message="Successfully revoked the key")
