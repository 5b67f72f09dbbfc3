"""Archive policies over REST."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Body, Query
from pydantic import BaseModel

from openmemory.memories import validation
from openmemory.memories.lifecycle.policies import Policy, PolicyCreate
from openmemory.memories.lifecycle.upcoming import MAX_PAGE_SIZE, UpcomingPage, UpcomingQuery
from openmemory.memories.validation import MAX_DAYS
from openmemory.rest.caller import BodyUser, Owner, OwnerOfPolicy, TheAsking, TheServices
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router
from openmemory.rest.schemas import Message

router = Router("/api/v1/archive-policies", "memories")


class PolicyOfUser(PolicyCreate):
    """A policy that a user makes."""

    user_id: BodyUser = None


class PolicyList(BaseModel):
    """The policies of a user, oldest first."""

    policies: list[Policy]


@router.post("", responses=documented(403, 404, 409), status_code=201)
async def create_archive_policy(
    services: TheServices,
    asking: TheAsking,
    new: Annotated[
        PolicyOfUser,
        Body(
            openapi_examples={
                "everything that nobody touched for a year": {
                    "value": {"user_id": "alice", "criteria_type": "user", "days_to_archive": 365}
                },
                "what one app wrote": {
                    "value": {
                        "user_id": "alice",
                        "criteria_type": "namespace",
                        "criteria_name": "webshop",
                        "days_to_archive": 90,
                    }
                },
                "notes that are of use for two weeks": {
                    "value": {
                        "user_id": "alice",
                        "criteria_type": "category",
                        "criteria_name": "errands",
                        "days_to_expire": 14,
                    }
                },
            }
        ),
    ],
) -> Policy:
    """Make a policy: it archives memories that have not changed for some days (`days_to_archive`), or lets them expire
    some days after they were created (`days_to_expire`). A policy with the same criterion and action gets the new
    number of days.

    A job applies the policies every hour. A memory that is restored counts as changed, so its days begin again. Reading
    is no change. Nobody finds an expired memory, not even its user in the archive; `actions/restore` restores it. The
    `expires_at` of a memory takes precedence over a policy.
    """
    names = validation.names(new, ("criteria_name",), services.settings.limits)
    caller = await asking.as_owner(new.user_id)
    given = new.model_dump(exclude={"user_id"}) | names
    return await services.policies.create(caller, PolicyCreate.model_validate(given))


@router.get("", responses=documented(403, 404))
async def list_archive_policies(services: TheServices, caller: Owner) -> PolicyList:
    """List the archive policies of a user."""
    return PolicyList(policies=await services.policies.list(caller))


@router.get("/upcoming", responses=documented(403, 404))
async def list_upcoming(
    services: TheServices,
    caller: Owner,
    within_days: Annotated[int, Query(ge=0, le=MAX_DAYS, description="Of how many days to tell.")] = 7,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    size: Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE)] = 50,
) -> UpcomingPage:
    """List the memories that will expire or be archived by themselves, soonest first, each once, with what comes first:
    a policy, or its own `expires_at`. What is due already and waits for the job is among them.
    """
    return await services.upcoming.list(caller, UpcomingQuery(within_days, page, size))


@router.delete("/{policy_id}", responses=documented(403, 404))
async def delete_archive_policy(services: TheServices, caller: OwnerOfPolicy, policy_id: UUID) -> Message:
    """End a policy. What it has archived stays archived, and what has expired by it stays expired."""
    await services.policies.remove(caller, policy_id)
    return Message(message="Successfully deleted the archive policy")
