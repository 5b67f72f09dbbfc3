"""The use case of the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from openmemory.audit.schemas import AuditAction, AuditPage, AuditQuery
from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import FromDate, first_moment, user_or_none

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.identity.principal import Principal
    from openmemory.services import Services


@operation("GET", "/api/v1/audit", command="audit", tag="access", speaker=Speaker.CREDENTIAL, errors=(403, 404))
async def read_audit(
    services: Services,
    principal: Principal,
    *,
    user_id: Annotated[
        str | None,
        Field(description="Only what was done with this user's memories; left out: everything (`admin`)."),
    ] = None,
    event: Annotated[list[AuditAction] | None, Field(description="Only these events, such as memory.search.")] = None,
    denied: Annotated[bool, Field(description="Only what was refused.")] = False,
    since: FromDate | None = None,
    before: Annotated[int | None, Field(ge=1, le=2**63 - 1, description="Only events with a smaller id.")] = None,
    limit: Annotated[int, Field(ge=1, le=1000, description="The maximum number of events.")] = 100,
) -> AuditPage:
    """Show who did what, when and from which address, newest first.

    A user sees what was done with their own memories.
    """
    user = user_or_none(services, user_id)
    who: Caller | Principal = principal if user is None else await services.directory.owner(principal, user)
    zone = who.timezone or services.settings.access.timezone
    query = AuditQuery(tuple(event or ()), denied, first_moment(since, zone), before, limit)
    return await services.audit.read(who, query)
