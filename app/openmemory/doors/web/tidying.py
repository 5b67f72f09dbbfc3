"""The facts that disagree and the memories that say nearly the same, for the user to decide."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.responses import Response

from openmemory.doors.web.page import PageRequest, TheForm, ThePage, Undo, id_of, text_of, texts_of
from openmemory.doors.web.templating import format_count
from openmemory.errors import Invalid
from openmemory.tidying.conflicts import FactChosen
from openmemory.tidying.schemas import FactChoice, SeenVersion

router = APIRouter(include_in_schema=False)

PAGE_SIZE = 20


@router.get("/ui/activity/conflicts")
async def list_conflicts(
    page: ThePage, number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1
) -> Response:
    """List the facts that disagree."""
    result = await page.services.conflicts.list(page.caller, page=number, size=PAGE_SIZE)
    may_change = page.may_write and page.caller.owner
    return _render_page(page, "conflicts", result.total, number, conflicts=result.items, may_change=may_change)


def _render_page(page: PageRequest, name: str, total: int, number: int, **values: Any) -> Response:
    """A page of a list, or its first page if this one was emptied."""
    if not total and number > 1:
        return page.redirect(f"activity/{name}")
    return page.render(f"{name}.html", total=total, number=number, pages=-(-total // PAGE_SIZE), **values)


@router.post("/ui/activity/conflicts")
async def decide(page: ThePage, form: TheForm) -> Response:
    """Keep one fact, and supersede or correct those that contradict it."""
    others = [_version(each, "other") for each in texts_of(form, "other")]
    decision = FactChoice(text_of(form, "key"), _version(text_of(form, "keep"), "keep"), others)
    decided = await page.services.conflicts.decide(page.caller, decision)
    undo = Undo("memories/undo", {"change": str(decided.action)})
    return page.redirect_with_notice(_describe(decision.key, decided), page.back(form, "activity/conflicts"), undo)


def _describe(key: str, decided: FactChosen) -> str:
    """Describes the result of a decision."""
    parts = []
    if decided.superseded:
        parts.append(f"superseded {format_count(decided.superseded, 'memory', 'memories')}")
    if decided.corrected:
        parts.append(f"corrected {format_count(decided.corrected, 'memory', 'memories')} with more facts")
    return f"Kept {key} = {decided.value}: {' and '.join(parts)}."


@router.get("/ui/activity/duplicates")
async def list_duplicates(page: ThePage, after: str = "") -> Response:
    """List the memories that say nearly the same, in pairs. `after`: the end of the page before."""
    result = await page.services.duplicates.page(page.caller, after)
    return page.render("duplicates.html", result=result, first=not after, next=result.next.text if result.next else "")


@router.post("/ui/activity/duplicates")
async def resolve(page: ThePage, form: TheForm) -> Response:
    """Keep one memory of a pair, or both."""
    duplicates = page.services.duplicates
    newer, older = (_version(text_of(form, name), name) for name in ("newer", "older"))
    to = page.back(form, "activity/duplicates")
    keep = text_of(form, "keep")
    if keep == "both":
        await duplicates.keep(page.caller, newer, older)
        again = Undo("activity/duplicates/again", {"one": str(newer.id), "other": str(older.id)})
        return page.redirect_with_notice("Kept both. They are not listed as near duplicates again.", to, again)
    if keep not in ("newer", "older"):
        raise Invalid("keep", "must be newer, older or both")
    winner, other = (newer, older) if keep == "newer" else (older, newer)
    action = await duplicates.merge(page.caller, winner, other)
    undo = Undo("memories/undo", {"change": str(action)})
    return page.redirect_with_notice(
        f"Kept the {keep} one. The other one is in the archive, superseded by it.", to, undo
    )


@router.post("/ui/activity/duplicates/again")
async def list_again(page: ThePage, form: TheForm) -> Response:
    """List a pair again that was kept."""
    one, other = (id_of(text_of(form, name), name) for name in ("one", "other"))
    await page.services.duplicates.list_again(page.caller, one, other)
    return page.redirect_with_notice("Undone: the two are listed again.", page.back(form, "activity/duplicates"))


@router.get("/ui/activity/replacements")
async def list_replacements(
    page: ThePage, number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1
) -> Response:
    """List the memories that a newer one may replace."""
    result = await page.services.replacements.list(page.caller, page=number, size=PAGE_SIZE)
    return _render_page(page, "replacements", result.total, number, pairs=result.items)


@router.post("/ui/activity/replacements")
async def decide_replacement(page: ThePage, form: TheForm) -> Response:
    """Replace the older memory of a pair, or keep both."""
    duplicates = page.services.duplicates
    newer, older = (_version(text_of(form, name), name) for name in ("newer", "older"))
    to = page.back(form, "activity/replacements")
    decision = text_of(form, "decision")
    if decision == "replace":
        undo = Undo("memories/undo", {"change": str(await duplicates.merge(page.caller, newer, older))})
        return page.redirect_with_notice(
            "Replaced. The older one is in the archive, superseded by the newer.", to, undo
        )
    if decision not in ("both", "different"):
        raise Invalid("decision", "must be replace, both or different")
    await duplicates.keep(page.caller, newer, older, decision="both" if decision == "both" else "different")
    again = Undo("activity/duplicates/again", {"one": str(newer.id), "other": str(older.id)})
    return page.redirect_with_notice("Kept both. They are not listed again.", to, again)


def _version(value: str, field: str) -> SeenVersion:
    """Returns the memory and revision that a form names as `id revision`."""
    id_, _, revision = value.partition(" ")
    try:
        return SeenVersion(UUID(id_), int(revision))
    except ValueError:
        raise Invalid(field, "must be the id of a memory and the revision of its text") from None
