"""The page of one memory: its text, its history, and its readers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, NamedTuple
from uuid import UUID

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from openmemory.access.schemas import GrantExplanation
from openmemory.audit.schemas import AccessLogPage
from openmemory.capture.schemas import CaptureView
from openmemory.doors.web.differences import Piece, difference
from openmemory.doors.web.page import PageRequest, TheForm, ThePage, Undo, names_of, number_of, object_of, text_of
from openmemory.errors import ConflictError
from openmemory.memories.schemas import Event, History, MemoryQuery, MemoryUpdate, Revision, StateChange
from openmemory.memories.state import State
from openmemory.serialization import exact_json

router = APIRouter(include_in_schema=False)

READS = 10
"""Entries of the access log on a page."""

CHANGES = 20
"""Changes that the timeline shows at first."""

Number = Annotated[int, Query(ge=1, le=1_000_000)]


class TimelineEntry(NamedTuple):
    """One entry of the timeline."""

    at: datetime
    words: str
    by: str
    revision: int | None = None
    pieces: Sequence[Piece] = ()


class SightOfApp(NamedTuple):
    """An app, and whether it may read the memory."""

    app: str
    explanation: GrantExplanation


@router.get("/ui/memory/{memory_id}")
async def show_memory(
    page: ThePage,
    id_text: Annotated[str, Path(alias="memory_id")],
    *,
    reads: Number = 1,
    related: Number = 1,
    who: bool = False,
    whole: Annotated[bool, Query(alias="all")] = False,
) -> Response:
    """Show one memory, named by its id or the first characters of it."""
    page.caller.may_read()
    [memory_id] = await page.services.short_ids.resolved(page.caller, [id_text], "memory_id")
    if id_text != str(memory_id):
        return page.redirect(_address(memory_id))
    memories = page.services.memories
    memory = await memories.get(page.caller, memory_id)
    history, near, log, sight, superseded, captures = await asyncio.gather(
        memories.history(page.caller, memory_id),
        memories.related(page.caller, memory_id, page=related),
        _reads(page, memory_id, reads),
        _sight(page, memory_id) if who else _nothing(),
        memories.list(page.caller, MemoryQuery(states=tuple(State), successor=memory_id)),
        _captures(page, memory_id),
    )
    changes = _timeline(history)
    entries = changes if whole else changes[:CHANGES]
    return page.render(
        "memory.html",
        memory=memory,
        changes=await asyncio.to_thread(lambda: [_compare(each, history) for each in entries]),
        older=len(changes) - len(entries),
        related=near,
        reads=log,
        reads_pages=-(-log.total // READS) if log else 0,
        sight=sight if who else None,
        may_ask_who=page.everything,
        superseded=superseded.items,
        captures=captures,
        writer=await _app_id(page, memory.text_app_name),
        metadata=exact_json.dumps(memory.metadata_, indented=True).decode() if memory.metadata_ else "",
        may_change=page.may_write and page.caller.owner,
    )


@router.post("/ui/memory/{memory_id}/edit")
async def edit(page: ThePage, form: TheForm, memory_id: UUID) -> Response:
    """Change the text and the metadata. The timeline then shows the difference of the texts."""
    metadata = object_of(form, "metadata") if "metadata" in form else None
    revision = number_of(form, "revision") if "revision" in form else None
    change = MemoryUpdate(text_of(form, "text"), metadata, expected_revision=revision)
    updated = await page.services.memories.update(page.caller, memory_id, change)
    if updated.event is Event.NONE:
        return page.redirect_with_notice("Nothing changed: it says this already.", _address(memory_id))
    undo = Undo(f"{_address(memory_id)}/revert", {"revision": str(updated.memory.revision)})
    return page.redirect_with_notice("Saved. The history below shows the difference.", _address(memory_id), undo)


@router.post("/ui/memory/{memory_id}/revert")
async def revert(page: ThePage, form: TheForm, memory_id: UUID) -> Response:
    """Write the text and the metadata that the last edit replaced."""
    revisions = (await page.services.memories.history(page.caller, memory_id)).revisions
    revision = number_of(form, "revision")
    edit = next((each for each in revisions if each.revision == revision), None)
    if edit is None or edit.old_text is None:
        raise ConflictError("The history no longer holds the old text, so the edit cannot be undone.")
    metadata = next((each.metadata_ for each in revisions if each.revision == revision - 1), None)
    change = MemoryUpdate(edit.old_text, metadata, expected_revision=revision)
    await page.services.memories.update(page.caller, memory_id, change)
    return page.redirect_with_notice("It is as before.", _address(memory_id))


@router.post("/ui/memory/{memory_id}/file")
async def file(page: ThePage, form: TheForm, memory_id: UUID) -> Response:
    """Set the categories."""
    change = MemoryUpdate(categories=tuple(names_of(form, "categories")))
    updated = await page.services.memories.update(page.caller, memory_id, change)
    if updated.event is Event.NONE:
        return page.redirect_with_notice("Nothing changed: it has these categories already.", _address(memory_id))
    undo = Undo(f"{_address(memory_id)}/file", {"categories": ", ".join(updated.replaced.categories or ())})
    names = ", ".join(updated.memory.categories)
    return page.redirect_with_notice(
        f"Filed under {names}." if names else "Filed under no category.", _address(memory_id), undo
    )


def _address(memory_id: UUID) -> str:
    return f"memory/{memory_id}"


async def _nothing() -> None:
    return None


async def _reads(page: PageRequest, memory_id: UUID, number: int) -> AccessLogPage | None:
    """Returns who read the memory; only the user may know."""
    if not page.caller.owner:
        return None
    return await page.services.memories.access_log(page.caller, memory_id, page=number, page_size=READS)


async def _sight(page: PageRequest, memory_id: UUID) -> list[SightOfApp]:
    """Returns for each app of the user whether it may read the memory, and why."""
    return [
        SightOfApp(name, await page.services.grants.explain(page.caller, name, memory_id))
        for name in await page.services.apps.names(page.caller)
    ]


async def _captures(page: PageRequest, memory_id: UUID) -> Sequence[CaptureView]:
    """Returns the captures that made or changed the memory."""
    return (await page.services.captures.list(page.caller, memory_id=memory_id)).items


async def _app_id(page: PageRequest, name: str) -> UUID | None:
    """Returns the id of an app whose page the credential may open."""
    if not page.may_open("apps"):
        return None
    return next(iter(await page.services.directory.app_ids(page.caller, [name])), None)


def _timeline(history: History) -> list[TimelineEntry]:
    """Returns the changes of a memory, newest first. Adding is one entry: its first revision, or else its state."""
    metadata = {each.revision: each.metadata_ for each in history.revisions}
    changes = [_revision_entry(each, metadata.get(each.revision - 1)) for each in history.revisions]
    has_first_revision = bool(history.revisions) and history.revisions[0].revision == 1
    changes += [_state_entry(each) for each in history.states if each.old_state is not None or not has_first_revision]
    return sorted(changes, key=lambda change: change.at, reverse=True)


def _revision_entry(revision: Revision, before: dict[str, object] | None) -> TimelineEntry:
    if revision.revision == 1:
        words = "Added"
    elif revision.old_text != revision.new_text:
        words = "Text changed"
    elif before is not None and before != revision.metadata_:
        words = "Metadata changed"
    else:
        words = "Categories or expiry changed"
    return TimelineEntry(_utc(revision.changed_at), words, _by(revision), revision.revision)


_MOVES = {State.PAUSED: "Paused", State.ARCHIVED: "Archived", State.DELETED: "Deleted"}


def _state_entry(change: StateChange) -> TimelineEntry:
    back = "Resumed" if change.old_state is State.PAUSED else "Restored"
    words = "Added" if change.old_state is None else _MOVES.get(change.new_state, back)
    return TimelineEntry(_utc(change.changed_at), "Expired" if change.reason == "expired" else words, _by(change))


def _by(change: Revision | StateChange) -> str:
    return change.app_name or change.changed_by


def _utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def _compare(change: TimelineEntry, history: History) -> TimelineEntry:
    """Returns a change with the difference of its texts, if it replaced one."""
    for revision in history.revisions:
        if revision.revision == change.revision and revision.old_text not in (None, revision.new_text):
            return change._replace(pieces=difference(revision.old_text or "", revision.new_text))
    return change
