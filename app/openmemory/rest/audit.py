"""The audit log over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from openmemory.audit.audit_log import AuditAction
from openmemory.audit.schemas import AuditPage, AuditQuery
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Principal
from openmemory.rest.caller import TheAsking, TheServices
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router
from openmemory.rest.schemas import FromDate, first_moment

router = Router("/api/v1/audit", "access")


@router.get("", responses=documented(403, 404))
async def read_audit(
    *,
    services: TheServices,
    asking: TheAsking,
    user_id: Annotated[
        str | None, Query(description="Only what was done with this user's memories; left out: everything (`admin`).")
    ] = None,
    event: Annotated[list[AuditAction] | None, Query(description="Only these events; may be repeated.")] = None,
    denied: Annotated[bool, Query(description="Only what was refused.")] = False,
    since: FromDate | None = None,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="Only events with a smaller id.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> AuditPage:
    """Shows who did what, from where and when, newest first. A user sees what was done with their own memories."""
    who: Caller | Principal = asking.principal if user_id is None else await asking.as_owner(user_id)
    zone = who.timezone or services.settings.access.timezone
    wanted = AuditQuery(tuple(event or ()), denied, first_moment(since, zone), before, limit)
    return await services.audit.read(who, wanted)
