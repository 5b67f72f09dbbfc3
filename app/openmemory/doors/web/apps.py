"""The assistants of a user: what they wrote and read, what they may read, and pausing them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import Annotated, Any, NamedTuple, get_args
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.datastructures import FormData
from starlette.responses import Response

from openmemory.access.schemas import RECENT_DAYS, AppSummary, Effect, Grant, GrantCreate, ObjectType
from openmemory.config.settings import MAX_NAME_LENGTH
from openmemory.doors.rest.http.disconnect import while_connected
from openmemory.doors.web.charts import Sparkline, sparkline
from openmemory.doors.web.page import PageRequest, TheForm, ThePage, Undo, id_of, text_of
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.search.schemas import SearchAnswer, SearchQuery
from openmemory.stats.schemas import AppDay

router = APIRouter(include_in_schema=False)

PAGE_SIZE = 60
"""Apps on a page."""

ROWS = 10
"""Memories in each of the two lists of an app's page."""

FOUND = 10
"""Results of a search as an app."""

PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]


class Activity(NamedTuple):
    """The writes and reads of an app: lately, and on each of the last days."""

    written: int
    accessed: int
    writes: Sparkline
    accesses: Sparkline

    @classmethod
    def of(cls, days: Iterable[AppDay], today: date) -> Activity:
        """Returns the activity of these days up to `today`."""
        written: Counter[date] = Counter()
        accessed: Counter[date] = Counter()
        for each in days:
            written[each.day] += each.written
            accessed[each.day] += each.accessed
        since = today - timedelta(days=RECENT_DAYS - 1)
        return cls(
            sum(count for day, count in written.items() if day >= since),
            sum(count for day, count in accessed.items() if day >= since),
            sparkline(written, "written", today),
            sparkline(accessed, "read", today),
        )


@router.get("/ui/apps")
async def list_apps(page: ThePage, number: Annotated[PageNumber, Query(alias="page")] = 1) -> Response:
    """List the assistants with what they did."""
    services = page.services
    result = await services.apps.list(page.caller, activity=True, page=number, page_size=PAGE_SIZE)
    days: defaultdict[UUID, list[AppDay]] = defaultdict(list)
    for each in await services.stats.daily(page.caller):
        days[each.app_id].append(each)
    return page.render(
        "apps.html",
        apps=[(app, _last_seen(app), Activity.of(days[app.id], page.today)) for app in result.apps],
        total=result.total,
        number=number,
        pages=-(-result.total // PAGE_SIZE),
        recent=RECENT_DAYS,
    )


@router.get("/ui/apps/{app_id}")
async def show_app(
    page: ThePage, app_id: UUID, *, q: str = "", memories: PageNumber = 1, accesses: PageNumber = 1
) -> Response:
    """Show one assistant: its activity, its rules, and a search as that assistant."""
    services = page.services
    as_app = await services.directory.preview(page.caller, app_id)
    rules = await services.grants.list(page.caller)
    return page.render(
        "app.html",
        app_id=app_id,
        name=as_app.app,
        app=await services.apps.get(page.caller, app_id),
        activity=Activity.of(await services.stats.daily(page.caller, app_id=app_id), page.today),
        recent=RECENT_DAYS,
        rules=[(rule, *in_words(rule)) for rule in rules if rule.app in (None, as_app.app)],
        effects=get_args(Effect),
        types=TYPES,
        choices=await _choices(page),
        q=q,
        answer=await _search_as(page, as_app, q) if q else None,
        readable=await services.memories.count(as_app),
        memory_count=await services.memories.count(page.caller),
        written=await services.stats.app_memories(page.caller, app_id, page=memories, page_size=ROWS),
        read=await services.stats.app_accessed(page.caller, app_id, page=accesses, page_size=ROWS),
        rows=ROWS,
    )


@router.post("/ui/apps/{app_id}/pause")
async def pause_app(page: ThePage, app_id: UUID, form: TheForm) -> Response:
    """Pause an assistant."""
    return await _set_active(page, app_id, form, False)


@router.post("/ui/apps/{app_id}/resume")
async def resume_app(page: ThePage, app_id: UUID, form: TheForm) -> Response:
    """Let a paused assistant read and write again."""
    return await _set_active(page, app_id, form, True)


@router.post("/ui/apps/{app_id}/rules")
async def add_rule(page: ThePage, app_id: UUID, form: TheForm) -> Response:
    """Make a rule for an assistant, or for every one."""
    app = (await page.services.directory.preview(page.caller, app_id)).app
    new_rule = _rule(form, app)
    before = {rule.id for rule in await page.services.grants.list(page.caller)}
    rule = await page.services.grants.create(page.caller, new_rule)
    to = page.back(form, f"apps/{app_id}")
    if rule.id in before:
        return page.redirect_with_notice("There is such a rule already.", to)
    return page.redirect_with_notice(
        _describe("Now", rule), to, Undo(f"apps/{app_id}/rules/remove", {"rule": str(rule.id)})
    )


@router.post("/ui/apps/{app_id}/rules/remove")
async def remove_rule(page: ThePage, app_id: UUID, form: TheForm) -> Response:
    """Remove a rule."""
    id_ = id_of(text_of(form, "rule"), "rule")
    rules = {str(rule.id): rule for rule in await page.services.grants.list(page.caller)}
    await page.services.grants.revoke(page.caller, id_)
    rule = rules[str(id_)]
    again = {"effect": rule.effect, "object_type": rule.object_type, "object": rule.object_name or rule.object or ""}
    again |= {} if rule.app else {"every": "1"}
    return page.redirect_with_notice(
        _describe("No longer a rule:", rule), page.back(form, f"apps/{app_id}"), Undo(f"apps/{app_id}/rules", again)
    )


TYPES: dict[ObjectType, str] = {
    "category": "memories of the category",
    "namespace": "memories in the namespace",
    "app": "what this app wrote:",
    "memory": "the memory with the id",
    "all": "everything",
}
"""The objects of rules, as the form names them."""


def in_words(rule: Grant) -> tuple[str, str]:
    """Returns a rule as a sentence in two parts: the words, and the name that it ends with."""
    words = {"category": "memories of", "namespace": "memories in", "app": "what is written by", "memory": "the memory"}
    name = rule.object_name or rule.object or ""
    may = "may read" if rule.effect == "allow" else "may not read"
    return f"{rule.app or 'Every app'} {may} {words.get(rule.object_type, 'anything')}", name


def _describe(how: str, rule: Grant) -> str:
    words, name = in_words(rule)
    return f"{how} {words} {name}".rstrip() + "."


def _rule(form: FormData, app: str) -> GrantCreate:
    """Returns the rule that a form asks for.

    Raises:
        Invalid: a field cannot be used.
    """
    effect, object_type, name = (text_of(form, each).strip() for each in ("effect", "object_type", "object"))
    if effect not in get_args(Effect):
        raise Invalid("effect", f"must be one of {', '.join(get_args(Effect))}")
    if object_type not in get_args(ObjectType):
        raise Invalid("object_type", f"must be one of {', '.join(get_args(ObjectType))}")
    if len(name) > MAX_NAME_LENGTH:
        raise Invalid("object", f"must have at most {MAX_NAME_LENGTH} characters")
    values: dict[str, Any] = {"effect": effect, "object_type": object_type, "object": name or None}
    return GrantCreate(app=None if text_of(form, "every") else app, **values)


async def _set_active(page: PageRequest, app_id: UUID, form: FormData, active: bool) -> Response:
    await page.services.apps.set_active(page.caller, app_id, active)
    name = (await page.services.directory.preview(page.caller, app_id)).app
    words = f"{name} reads and writes again." if active else f"{name} is paused: it reads and writes nothing."
    other = Undo(f"apps/{app_id}/{'pause' if active else 'resume'}", {})
    return page.redirect_with_notice(words, page.back(form, f"apps/{app_id}"), other)


async def _search_as(page: PageRequest, as_app: Caller, query: str) -> SearchAnswer:
    return await while_connected(page.request, page.services.search.search(as_app, SearchQuery(query, FOUND)))


async def _choices(page: PageRequest) -> Sequence[str]:
    """Returns the names that the form for a rule suggests."""
    categories = await page.services.stats.categories(page.caller)
    return sorted({each.name for each in categories.categories}.union(await page.services.apps.names(page.caller)))


def _last_seen(app: AppSummary) -> datetime | None:
    return max(filter(None, (app.last_created, app.last_accessed)), default=None)
