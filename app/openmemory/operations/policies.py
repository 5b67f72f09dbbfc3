"""Use cases of archive policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from pydantic import Field

from openmemory.memories.lifecycle.schemas import (
    Criterion,
    CriterionId,
    CriterionName,
    DaysToArchive,
    DaysToExpire,
    Policy,
    PolicyCreate,
    PolicyList,
    UpcomingPage,
    UpcomingQuery,
)
from openmemory.memories.validation import MAX_DAYS
from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import Message, PageNumber, PageSize, name_or_none

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "memories"
PATH = "/api/v1/archive-policies"


@operation(
    "POST", PATH, command="policies add", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404, 409), status=201,
    body="PolicyOfUser",
    examples={
        "everything that nobody touched for a year": {
            "user_id": "alice", "criteria_type": "user", "days_to_archive": 365,
        },
        "what one app wrote": {
            "user_id": "alice", "criteria_type": "namespace", "criteria_name": "webshop", "days_to_archive": 90,
        },
        "notes that are of use for two weeks": {
            "user_id": "alice", "criteria_type": "category", "criteria_name": "errands", "days_to_expire": 14,
        },
    },
)  # fmt: skip
async def create_archive_policy(
    services: Services,
    caller: Caller,
    *,
    criteria_type: Criterion,
    criteria_id: CriterionId = None,
    criteria_name: CriterionName = None,
    days_to_archive: DaysToArchive = None,
    days_to_expire: DaysToExpire = None,
) -> Policy:
    """Make a policy.

    It archives memories that have not changed for some days (`days_to_archive`), or lets them expire some days after
    they were created (`days_to_expire`). A policy with the same criterion and action gets the new number of days.

    A job applies the policies every hour. A memory that is restored counts as changed, so its days begin again. Reading
    is no change. Nobody finds an expired memory, not even its user in the archive; `actions/restore` restores it. The
    `expires_at` of a memory takes precedence over a policy.
    """
    new = PolicyCreate(
        criteria_type=criteria_type,
        criteria_id=criteria_id,
        criteria_name=name_or_none(services, criteria_name, "criteria_name"),
        days_to_archive=days_to_archive,
        days_to_expire=days_to_expire,
    )
    return await services.policies.create(caller, new)


@operation("GET", PATH, command="policies list", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404))
async def list_archive_policies(services: Services, caller: Caller) -> PolicyList:
    """List the policies in force, oldest first."""
    return PolicyList(policies=await services.policies.list(caller))


@operation("GET", f"{PATH}/upcoming", command="policies upcoming", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404))
async def list_upcoming(
    services: Services,
    caller: Caller,
    *,
    within_days: Annotated[int, Field(ge=0, le=MAX_DAYS, description="The number of days to look ahead.")] = 7,
    page: PageNumber = 1,
    size: PageSize = 50,
) -> UpcomingPage:
    """List the memories that will expire or be archived, soonest first.

    Each is listed once, with what comes first: a policy, or its own `expires_at`. Memories that are due and wait for
    the job are among them.
    """
    return await services.upcoming.list(caller, UpcomingQuery(within_days, page, size))


@operation(
    "DELETE", f"{PATH}/{{policy_id}}", command="policies remove", tag=TAG, speaker=Speaker.OWNER, owned="policy",
    errors=(403, 404),
)  # fmt: skip
async def delete_archive_policy(services: Services, caller: Caller, *, policy_id: UUID) -> Message:
    """Remove a policy.

    What it has archived stays archived, and what has expired by it stays expired.
    """
    await services.policies.remove(caller, policy_id)
    return Message(message="Successfully deleted the archive policy")
