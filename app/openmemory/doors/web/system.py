"""The state of the service: its stores and models, the sync of the index, and what is wrong."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from fastapi import APIRouter
from starlette.background import BackgroundTask
from starlette.responses import Response

from openmemory.doors.web.page import TheForm, ThePage, text_of
from openmemory.errors import OpenMemoryError
from openmemory.index.sync.service import SyncAnswer

log = logging.getLogger(__name__)

router = APIRouter(include_in_schema=False)

PATIENCE = 10.0
"""The seconds that a page waits for the end of a sync. The sync goes on after them."""

NAMES = {
    "postgres": "PostgreSQL", "index": "Vector index", "embedder": "Embedder", "documents": "Originals of documents",
    "language_model": "Language model", "schema": "Tables of PostgreSQL",
}  # fmt: skip
_RUNS = 10


@router.get("/ui/system")
async def show(page: ThePage) -> Response:
    """Show what `openmemory doctor` finds, and the last runs of the sync."""
    if not page.operates:
        return page.render("system.html", report=None)
    report = await page.services.health.diagnose()
    runs = (await page.services.index_sync.runs(page.principal, _RUNS)).runs
    space = page.services.spaces.serving
    return page.render(
        "system.html",
        report=report,
        names=NAMES,
        details={name: _describe(check.detail) for name, check in report.checks.items()},
        breakers={"index": space.index_breaker.state.value, "embedder": space.embedder_breaker.state.value},
        runs=runs,
    )


@router.post("/ui/system/sync")
async def sync(page: ThePage, form: TheForm) -> Response:
    """Make the vector index equal to PostgreSQL."""
    full = bool(text_of(form, "full"))
    run = asyncio.create_task(page.services.index_sync.run(page.principal, trigger="rest", full=full), name="sync")
    try:
        ended, _ = await asyncio.wait([run], timeout=PATIENCE)
    except asyncio.CancelledError:
        run.cancel()
        raise
    if ended:
        return page.redirect_with_notice(_summary(run.result()), "system")
    answer = page.redirect_with_notice("The sync goes on. Load this page again to see how far it is.", "system")
    answer.background = BackgroundTask(_await, run)
    return answer


async def _await(run: asyncio.Task[SyncAnswer]) -> None:
    """Waits for a sync whose page has been shown."""
    try:
        await run
    except OpenMemoryError as error:
        log.warning("sync: %s", error)


def _summary(answer: SyncAnswer) -> str:
    statistics = answer.statistics
    text = (
        f"Compared {statistics.total_memories:,} memories in {statistics.seconds:.1f} s: "
        f"{statistics.memories_synced:,} written, {statistics.deleted:,} removed"
    )
    return f"{text}, {statistics.errors:,} failed and will be retried." if statistics.errors else f"{text}."


def _describe(detail: dict[str, Any]) -> dict[str, str]:
    """Returns the details of a check in words."""
    return {
        name.replace("_", " "): f"{value:,}" if isinstance(value, int) else str(value) for name, value in detail.items()
    }
