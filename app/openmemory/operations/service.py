"""Use cases of the service as a whole: the sync of the index, the installation that owns the index, the diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from openmemory.health.service import Diagnosis
from openmemory.index.installation import InstallationAnswer
from openmemory.index.sync.service import SyncAnswer, SyncRuns
from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import user_or_none

if TYPE_CHECKING:
    from openmemory.identity.principal import Principal
    from openmemory.services import Services

TAG = "operation"
PATH = "/api/v1"


@operation(
    "POST", f"{PATH}/sync", command="sync", tool="sync_vector_store", tag=TAG, speaker=Speaker.CREDENTIAL,
    query=("dry_run", "full", "user_id"), errors=(403, 404, 409),
)  # fmt: skip
async def sync(
    services: Services,
    principal: Principal,
    *,
    dry_run: Annotated[bool, Field(description="Only count the differences.")] = False,
    full: Annotated[bool, Field(description="Write every item again.")] = False,
    user_id: Annotated[str | None, Field(description="Only the memories of this user; left out: of all users.")] = None,
) -> SyncAnswer:
    """Make the vector index equal to PostgreSQL. `partial`: some items could not be delivered; they are retried."""
    user = user_or_none(services, user_id)
    who = principal if user is None else await services.directory.owner(principal, user)
    return await services.index_sync.run(who, trigger="rest", dry_run=dry_run, full=full)


@operation("GET", f"{PATH}/sync/runs", tag=TAG, speaker=Speaker.CREDENTIAL, errors=(403,))
async def runs(
    services: Services,
    principal: Principal,
    *,
    limit: Annotated[int, Field(ge=1, le=1000, description="The maximum number of runs.")] = 20,
) -> SyncRuns:
    """List the last runs of the sync with their results, and the progress of a running one."""
    return await services.index_sync.runs(principal, limit)


@operation("GET", f"{PATH}/installation", command="installation", tag=TAG, speaker=Speaker.CREDENTIAL, errors=(403,))
async def show_installation(services: Services, principal: Principal) -> InstallationAnswer:
    """Show the id of this installation, and whether the index is its own."""
    return await services.installations.show(principal)


@operation(
    "POST", f"{PATH}/installation", command="installation", tag=TAG, speaker=Speaker.CREDENTIAL, errors=(403, 409),
    body="DatabaseBody", examples={"copied": {"decision": "copied"}, "moved": {"decision": "moved"}},
)  # fmt: skip
async def decide_installation(
    services: Services,
    principal: Principal,
    *,
    decision: Annotated[
        Literal["copied", "moved"],
        Field(
            description=(
                "copied: the other database is still used, and this one becomes an installation of its own. moved: this"
                " one takes its place."
            )
        ),
    ],
) -> InstallationAnswer:
    """Say whether this database was copied or moved, if another copy of it uses its collections.

    Needs the scope `admin`.
    """
    return await services.installations.decide(principal, decision)


@operation("GET", f"{PATH}/doctor", command="doctor", tag=TAG, speaker=Speaker.CREDENTIAL, errors=(403,))
async def doctor(services: Services, principal: Principal) -> Diagnosis:
    """Check every dependency, and count the differences between PostgreSQL and the index."""
    principal.must_operate()
    return await services.health.diagnose()
