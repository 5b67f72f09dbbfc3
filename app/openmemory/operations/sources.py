"""The use case that lists conversations, sessions, files and documents together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import OnlyProjects, PageNumber, PageSize
from openmemory.sources.schemas import SourceType, StoredSourcePage

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services


@operation("GET", "/api/v1/sources", command="sources", tag="sources", speaker=Speaker.READER, errors=(403, 404))
async def list_sources(
    services: Services,
    caller: Caller,
    *,
    namespace: OnlyProjects = (),
    kind: Annotated[list[SourceType] | None, Field(description="Only these kinds.")] = None,
    page: PageNumber = 1,
    size: PageSize = 50,
) -> StoredSourcePage:
    """List the conversations, sessions, files and documents that are kept, the last changed first."""
    return await services.sources.list(caller, types=kind or (), namespaces=namespace, page=page, size=size)
