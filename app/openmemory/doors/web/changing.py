"""Changes of selected memories, their undo, and erasing for good after a question."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.datastructures import FormData
from starlette.responses import Response

from openmemory.doors.web.filters import Filters, TheFilters, day_of
from openmemory.doors.web.links import is_page
from openmemory.doors.web.page import PageRequest, TheForm, ThePage, Undo, id_of, text_of, texts_of
from openmemory.doors.web.templating import format_count
from openmemory.errors import Invalid
from openmemory.memories.lifecycle.schemas import BulkChange, Selection
from openmemory.memories.schemas import Expiry
from openmemory.memories.state import State
from openmemory.serialization.zones import day_start

router = APIRouter(include_in_schema=False)

STATES = {
    "pause": (State.PAUSED, "Paused"),
    "resume": (State.ACTIVE, "Resumed"),
    "archive": (State.ARCHIVED, "Archived"),
    "restore": (State.ACTIVE, "Restored"),
    "delete": (State.DELETED, "Deleted"),
}
"""The actions that change the state, with the state and the word for what was done."""

_ACTIONS = (*STATES, "file", "expire", "keep", "erase")

_SHOWN = 20
"""Memories that the question before erasing shows."""


@router.post("/ui/memories/change")
async def change(page: ThePage, form: TheForm) -> Response:
    """Change the selected memories, or all that match the filters."""
    action = text_of(form, "action")
    if action not in _ACTIONS:
        raise Invalid("action", f"must be one of {', '.join(_ACTIONS)}")
    filters = Filters.of_form(form)
    everything = bool(text_of(form, "all"))
    ids = [] if everything else _ids(form)
    if action == "erase":
        query = {**filters.parameters, "all": "1" if everything else "", "id": ids, "next": page.back(form, "memories")}
        return page.redirect(f"memories/erase?{urlencode(query, doseq=True)}")
    selection = await _selection(page, filters, everything=everything, ids=ids)
    bulk_change, sentence = _bulk_change(page, action, form)
    result = await page.services.bulk.apply(page.caller, selection, bulk_change)
    to = page.back(form, "memories")
    if not result.changed:
        return page.redirect_with_notice("Nothing changed: they are as you want them already.", to)
    remaining = len(ids) - result.changed
    words = sentence.format(format_count(result.changed, "memory", "memories"))
    if remaining > 0:
        words += f" {format_count(remaining, 'other')} stayed as {'it is' if remaining == 1 else 'they are'}."
    return page.redirect_with_notice(words, to, Undo("memories/undo", {"change": str(result.action)}))


def _bulk_change(page: PageRequest, action: str, form: FormData) -> tuple[BulkChange, str]:
    """Returns the change, and a sentence about what was done to how many."""
    if action in STATES:
        state, word = STATES[action]
        return BulkChange(state=state), f"{word} {{}}."
    if action == "file":
        category = text_of(form, "file_under").strip()
        if not category:
            raise Invalid("file_under", "must name a category")
        # Braces in the name are no places to fill in.
        text = category.replace("{", "{{").replace("}", "}}")
        return BulkChange(category=category), f"Filed {{}} under {text}."
    if action == "keep":
        return BulkChange(expiry=Expiry()), "Took the expiry off {}."
    day = day_of(text_of(form, "expires"), "expires")
    if day is None:
        raise Invalid("expires", "must be a date such as 2027-05-31")
    return BulkChange(
        expiry=Expiry(day_start(day + timedelta(days=1), page.timezone))
    ), f"Set {{}} to expire after {day:%Y-%m-%d}."


@router.post("/ui/memories/undo")
async def undo(page: ThePage, form: TheForm) -> Response:
    """Undo a change."""
    undone = await page.services.bulk.undo(page.caller, id_of(text_of(form, "change"), "change"))
    words = f"Undone for {format_count(undone.restored, 'memory', 'memories')}."
    if undone.kept:
        words += f" {format_count(undone.kept, 'memory', 'memories')} changed since and stayed."
    return page.redirect_with_notice(words, page.back(form, "memories"))


@router.get("/ui/memories/erase")
async def ask_to_erase(
    page: ThePage,
    filters: TheFilters,
    *,
    everything: Annotated[bool, Query(alias="all")] = False,
    ids: Annotated[list[UUID] | None, Query(alias="id")] = None,
    to: Annotated[str, Query(alias="next")] = "memories",
) -> Response:
    """Ask before erasing."""
    ids = ids or []
    if everything:
        result = await page.services.memories.list(page.caller, await filters.query(page))
        total, memories = result.total, list(result.items[:_SHOWN])
    else:
        if not ids:
            raise _nothing_selected()
        total, memories = len(ids), [await page.services.memories.get(page.caller, each) for each in ids[:_SHOWN]]
    return page.render(
        "erase.html",
        filters=filters,
        everything=everything,
        ids=ids,
        total=total,
        memories=memories,
        to=to if is_page(to) else "memories",
    )


@router.post("/ui/memories/erase")
async def erase(page: ThePage, form: TheForm) -> Response:
    """Erase the memories for good."""
    everything = bool(text_of(form, "all"))
    ids = [] if everything else _ids(form)
    selection = await _selection(page, Filters.of_form(form), everything=everything, ids=ids)
    erased = await page.services.bulk.erase(page.caller, selection)
    return page.redirect_with_notice(
        f"Erased {format_count(erased, 'memory', 'memories')} for good.", page.back(form, "memories")
    )


async def _selection(page: PageRequest, filters: Filters, *, everything: bool, ids: list[UUID]) -> Selection:
    """Returns all that match the filters, or the memories with these ids."""
    if not everything:
        return Selection(tuple(ids))
    if filters.searched:
        raise Invalid("all", "is not possible for a search, whose results have no end: select some")
    return Selection(query=await filters.query(page))


def _ids(form: FormData) -> list[UUID]:
    ids = [id_of(each, "id") for each in texts_of(form, "id")]
    if not ids:
        raise _nothing_selected()
    return ids


def _nothing_selected() -> Invalid:
    return Invalid("id", "must name a memory: select at least one first")
