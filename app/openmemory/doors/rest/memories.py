"""REST endpoints that list, add, read, change and delete memories."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import Body, Header, HTTPException, Query, Response

from openmemory.capture.schemas import Added
from openmemory.capture.status import Status
from openmemory.doors.rest.http.caller import (
    MemoryInPath,
    Namespaces,
    Reader,
    TheAsking,
    TheServices,
)
from openmemory.doors.rest.http.errors import documented
from openmemory.doors.rest.http.routing import Router
from openmemory.doors.rest.http.zones import InTimezone
from openmemory.doors.rest.schemas import (
    MemoriesOfUser,
    MemoryChange,
    MemoryFilter,
    NewMemoryOfUser,
    parts,
    without_none,
)
from openmemory.errors import Invalid, NotFound
from openmemory.identity.caller import UNKNOWN, Caller
from openmemory.memories.idempotency import IdempotentRequest
from openmemory.memories.listing.statements import SORTABLE
from openmemory.memories.schemas import MemoryQuery, MemoryRow, MemoryUpdate
from openmemory.memories.state import State
from openmemory.operations.memories import MemoryPage
from openmemory.operations.parameters import FromDate, Message, ToDate, first_moment, last_moment
from openmemory.services import Services

router = Router("/api/v1/memories", "memories")
of_one = Router("/api/v1/memories", "memories")
"""The routes of a single memory, whose paths would be taken for those of operations such as `/categories`."""

_ID = "6f1c2d9e-4b7a-4c53-9e0d-2a8f1b3c4d5e"


@router.get("", responses=documented(403, 404), dependencies=[InTimezone])
async def list_memories(
    *,
    services: TheServices,
    caller: Reader,
    app_id: UUID | None = None,
    from_date: FromDate | None = None,
    to_date: ToDate | None = None,
    categories: Annotated[str | None, Query(description="Names, separated by commas; one must match.")] = None,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    size: Annotated[int, Query(ge=1, le=100)] = 50,
    search_query: Annotated[str | None, Query(description="A part of the text; case is ignored.")] = None,
    sort_column: Annotated[str | None, Query(description="A column; an unknown one is ignored.")] = None,
    sort_direction: Annotated[str | None, Query(description="asc or desc.")] = None,
    namespace: Namespaces = (),
    thread_id: str | None = None,
    kind: str | None = None,
    state: Annotated[str, Query(description="States, separated by commas: active, paused, archived, deleted.")] = (
        "active"
    ),
    export: Annotated[
        bool, Query(description="Record the read as an export in the access log; the user must exist.")
    ] = False,
) -> MemoryPage:
    """List a user's memories."""
    if export and caller.user_id == UNKNOWN:
        raise NotFound("User not found", code="user_not_found")
    sort, descending = _sorting(sort_column, sort_direction)
    query = MemoryQuery(
        states=_states(state),
        text=search_query or None,
        app_ids=(app_id,) if app_id else (),
        namespaces=namespace,
        threads=without_none(thread_id),
        kinds=without_none(kind),
        categories=tuple(parts(categories)),
        created_from=first_moment(from_date, caller.timezone),
        created_to=last_moment(to_date, caller.timezone),
        sort=sort,
        descending=descending,
        page=page,
        size=size,
    )
    return await _page(services, caller, query, export=export)


_LATER = {"model": Added, "description": "The text is kept, and facts are extracted from it in the background."}


@router.post("", responses=documented(403, 404, 409, 413) | {202: _LATER})
async def add_memory(
    services: TheServices,
    asking: TheAsking,
    response: Response,
    new: Annotated[
        NewMemoryOfUser,
        Body(
            openapi_examples={
                "shortest": {"value": {"text": "Alice drinks her coffee black."}},
                "for two weeks": {
                    "value": {"user_id": "alice", "text": "The lift is out of order.", "infer": False, "ttl_days": 14}
                },
                "by an app, with categories": {
                    "value": {
                        "user_id": "alice",
                        "text": "We deploy on Tuesdays.",
                        "infer": False,
                        "app": "claude",
                        "namespace": "webshop",
                        "kind": "decision",
                        "categories": ["work"],
                        "metadata": {"source": "standup"},
                    }
                },
                "pairs": {
                    "summary": "Merged with what the app knows of these keys",
                    "value": {"user_id": "alice", "text": "budget=40K | lead=Ada", "namespace": "webshop"},
                },
                "in place of another": {
                    "value": {"user_id": "alice", "text": "I moved to Leipzig.", "supersedes": [_ID]},
                },
                "a conversation": {
                    "value": {
                        "user_id": "alice",
                        "messages": [
                            {"role": "user", "content": "I moved from Lisbon to Porto last week."},
                            {"role": "assistant", "content": "Congratulations!"},
                        ],
                        "async": True,
                    }
                },
            }
        ),
    ],
    idempotency_key: Annotated[
        str | None,
        Header(
            description="Makes a retry safe: for a week, the same key with the same body returns the first answer and"
            " does nothing else. The same key with another body is refused."
        ),
    ] = None,
) -> Added:
    """Add one text. The first of these that applies decides what happens:

    1. A text with `supersedes` is stored as it is, in the place of these memories, which are archived (`SUPERSEDE`).
    2. With `infer` and a language model, facts are extracted from the text, and existing memories are updated,
       superseded or deleted accordingly. `results` lists what was done, `refused` what was not. If that takes long or
       fails, the status is 202 and the text is kept: `GET /api/v1/captures/{capture_id}` shows the progress, and
       `POST /api/v1/captures/{capture_id}/undo` undoes it.
    3. A text of `key=value | key=value` updates the app's memory that has these keys (`UPDATE`; see
       `dedup.key_values`).
    4. Any other text is stored verbatim, and the answer is its row. If the same app and namespace has an identical
       active memory, the answer is that memory (`NONE`). `dedup.near_duplicates` decides about similar ones.

    `near` names existing memories that a text stored as it is may change. It comes within some milliseconds or not at
    all.
    """
    caller = await asking.as_app(new.user_id, new.app)
    once = None
    if idempotency_key is not None:
        once = IdempotentRequest.of(idempotency_key, new.model_dump_json(), services.settings.limits)
    supersedes = await services.short_ids.resolved(caller, new.supersedes, "supersedes")
    result = await services.adding.add(caller, new.input(once, supersedes), infer=bool(new.infer))
    if result.status in (Status.PENDING, Status.WORKING):
        response.status_code = 202
    notes = [note for note in (new.unknown, result.note) if note]
    return result.model_copy(update={"note": " ".join(notes) or None})


@router.delete("", responses=documented(403, 404, 409, 413))
async def delete_memories(
    services: TheServices,
    asking: TheAsking,
    which: Annotated[
        MemoriesOfUser, Body(openapi_examples={"one": {"value": {"memory_ids": [_ID], "user_id": "alice"}}})
    ],
) -> Message:
    """Delete memories softly; `actions/restore` brings them back. All or none."""
    caller = await asking.as_owner(which.user_id)
    ids = await services.short_ids.resolved(caller, which.memory_ids, "memory_ids", State.DELETED)
    count = await services.memories.delete(caller, ids)
    return Message(message=f"Successfully deleted {count} memories")


@router.post("/filter", responses=documented(400, 403, 404), dependencies=[InTimezone])
async def filter_memories(
    services: TheServices,
    asking: TheAsking,
    body: Annotated[
        MemoryFilter,
        Body(
            openapi_examples={
                "newest first": {"value": {"user_id": "alice", "page": 1, "size": 20}},
                "sorted": {"value": {"user_id": "alice", "sort_column": "memory", "sort_direction": "asc"}},
            }
        ),
    ],
) -> MemoryPage:
    """List a user's active and paused memories, and the archived ones on demand."""
    sort, descending = _filter_sorting(body)
    caller = await asking.as_reader(body.user_id)
    archived = (State.ARCHIVED,) if body.show_archived else ()
    query = MemoryQuery(
        states=(State.ACTIVE, State.PAUSED, *archived),
        text=body.search_query or None,
        app_ids=tuple(body.app_ids or ()),
        category_ids=tuple(body.category_ids or ()),
        created_from=first_moment(body.from_date, caller.timezone),
        created_to=last_moment(body.to_date, caller.timezone),
        sort=sort,
        descending=descending,
        page=body.page,
        size=body.size,
    )
    return await _page(services, caller, query)


@of_one.put("/{memory_id}", responses=documented(403, 404, 409, 413))
async def update_memory(
    services: TheServices,
    asking: TheAsking,
    memory_id: MemoryInPath,
    change: Annotated[
        MemoryChange,
        Body(
            openapi_examples={
                "text": {"value": {"user_id": "alice", "memory_content": "Alice drinks tea."}},
                "categories": {"value": {"user_id": "alice", "categories": ["food"]}},
                "for a month": {"value": {"user_id": "alice", "ttl_days": 30}},
                "for ever again": {"value": {"user_id": "alice", "expires_at": None}},
            }
        ),
    ],
) -> MemoryRow:
    """Change the text, metadata, categories or expiry of one memory. Its history keeps the old text."""
    update = change.update()
    if update == MemoryUpdate(expected_revision=update.expected_revision):
        raise Invalid("memory_content", "is required, or one of metadata, categories, expires_at and ttl_days")
    caller = await asking.as_owner(change.user_id)
    [id_] = await services.short_ids.resolved(caller, [memory_id], "memory_id")
    updated = await services.memories.update(caller, id_, update, field="memory_content")
    return MemoryRow.of(updated.memory)


async def _page(services: Services, caller: Caller, query: MemoryQuery, *, export: bool = False) -> MemoryPage:
    """Returns a page of a list. An empty one says if that is because the app is paused."""
    page = await services.memories.list(caller, query, export=export)
    note = None if page.total else await services.memories.paused_note(caller)
    return MemoryPage.of(page, note)


def _states(text: str) -> tuple[State, ...]:
    try:
        states = tuple(State(part) for part in parts(text))
    except ValueError:
        states = ()
    if not states:
        raise Invalid("state", f"must be one or more of {', '.join(State)}, separated by commas")
    return states


def _sorting(column: str | None, direction: str | None) -> tuple[str, bool]:
    descending = _descending(direction)
    if descending is None:
        raise Invalid("sort_direction", "must be asc or desc")
    if column not in SORTABLE:
        return "created_at", True
    # Ascending by default, as in OpenMemory.
    return column, bool(direction) and descending


def _filter_sorting(body: MemoryFilter) -> tuple[str, bool]:
    if not body.sort_column or not body.sort_direction:
        return "created_at", True
    descending = _descending(body.sort_direction)
    if body.sort_column not in ("memory", "app_name", "created_at"):
        raise HTTPException(400, "Invalid sort column")
    if descending is None:
        raise HTTPException(400, "Invalid sort direction")
    return body.sort_column, descending


def _descending(direction: str | None) -> bool | None:
    directions: dict[str | None, Literal[True, False]] = {"asc": False, "desc": True, None: True}
    return directions.get(direction.lower() if direction else None)
