"""Use cases about the activity of apps: what they wrote and read, by number, by day and one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

from pydantic import Field

from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import PageSize
from openmemory.projects.schemas import ToolReport
from openmemory.stats.schemas import MAX_DAYS, DailyStats, FeedPage, Profile

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "memories"


@operation("GET", "/api/v1/stats", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404))
async def get_stats(services: Services, caller: Caller) -> Profile:
    """Count a user's memories, and show all of their apps. Times are UTC without an offset."""
    return await services.stats.profile(caller)


@operation(
    "GET", "/api/v1/stats/daily", command="activity days", tag=TAG, speaker=Speaker.OWNER, in_timezone=True,
    errors=(403, 404),
)  # fmt: skip
async def daily_stats(
    services: Services,
    caller: Caller,
    *,
    days: Annotated[int, Field(ge=1, le=MAX_DAYS, description="The last days, today included.")] = 30,
    app_id: Annotated[UUID | None, Field(description="Only this app.")] = None,
) -> DailyStats:
    """Count what each app wrote and read, by day. Days without either are left out."""
    return DailyStats(days=list(await services.stats.daily(caller, days=days, app_id=app_id)))


@operation("GET", "/api/v1/feed", command="activity list", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404))
async def show_feed(
    services: Services,
    caller: Caller,
    *,
    what: Annotated[Literal["written", "read"], Field(description="What came in, or what apps read.")] = "written",
    before: Annotated[int | None, Field(ge=1, le=2**63 - 1, description="`next` of the page before.")] = None,
    size: PageSize = 50,
) -> FeedPage:
    """Show what came into the memory or was read from it, the newest first."""
    return await services.feed.page(caller, services.feed.events(what), before=before, limit=size)


@operation(
    "GET", "/api/v1/stats/tools", command="activity tools", tool="tool_usage", tag=TAG, speaker=Speaker.READER,
    errors=(403, 404),
)  # fmt: skip
async def tool_usage(
    services: Services,
    caller: Caller,
    *,
    namespace: Annotated[str | None, Field(description="Only this project.")] = None,
    days: Annotated[int, Field(ge=1, le=MAX_DAYS, description="The last days, today included.")] = 30,
) -> ToolReport:
    """Count the calls of MCP tools, their results and tokens, by day and app. No question is kept.

    Calls that failed are not counted, nor those of an app that has never written anything.
    """
    return await services.reads.tools(caller, namespace=namespace, days=days)
