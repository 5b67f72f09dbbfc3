"""Use cases of earlier times: the memories as they were, and what changed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import FromDate, PageSize, ToDate, first_moment
from openmemory.search.timeline.schemas import Changes, MemoriesThen
from openmemory.serialization.timestamps import TimeBound
from openmemory.serialization.zones import day_end

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "memories"
PATH = "/api/v1/timeline"

After = Annotated[str | None, Field(description="`next` of the page before.")]


@operation("GET", f"{PATH}/memories", command="timeline memories", tag=TAG, speaker=Speaker.READER, errors=(403, 404))
async def list_memories_then(
    services: Services,
    caller: Caller,
    *,
    at: ToDate | None = None,
    after: After = None,
    size: PageSize = 50,
) -> MemoriesThen:
    """List the memories as they were at a time, newest first.

    Without a time, they are those of now. A list never shows more than a search as of that time.
    """
    await services.rates.search(caller)
    return await services.timeline.then(caller, _end(at, caller.timezone), after=after, size=size)


@operation("GET", f"{PATH}/changes", command="timeline changes", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404))
async def list_changes(
    services: Services,
    caller: Caller,
    *,
    since: FromDate | None = None,
    until: ToDate | None = None,
    after: After = None,
    size: PageSize = 50,
) -> Changes:
    """List the changes of memories between two times, newest first.

    Without times, they are those of the last week.
    """
    end = _end(until, caller.timezone)
    begin = first_moment(since, caller.timezone)
    return await services.timeline.changes(caller, begin, end, after=after, size=size)


def _end(bound: TimeBound | None, zone: ZoneInfo) -> datetime:
    """Returns the last moment of a time. What is left of today means now."""
    now = datetime.now(UTC)
    end = now if bound is None else bound.last(zone)
    return now if now < end <= day_end(now.astimezone(zone).date(), zone) else end
