"""The use case of changes of many memories at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

from pydantic import Field

from openmemory.errors import Invalid
from openmemory.memories.lifecycle.schemas import BulkChange, BulkChanged, Selection
from openmemory.memories.schemas import Expiry, MemoryQuery
from openmemory.memories.state import State
from openmemory.memories.validation import MAX_DAYS
from openmemory.operations.description import InCommand, MemoryReference, Speaker, operation
from openmemory.operations.parameters import FromDate, ToDate, first_moment, last_moment, name_or_none
from openmemory.serialization.timestamps import DateOrTime

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

_NOBODY = UUID(int=0)
Only = Literal["expiring", "flagged", "disputed", "unread"]


@operation(
    "POST", "/api/v1/memories/actions/change", command="change", tag="memories", speaker=Speaker.OWNER,
    errors=(403, 404, 409, 413), body="ManyChange",
    examples={
        "archive two": {
            "user_id": "alice", "to": "archived",
            "memory_ids": ["8f14e45f-ceea-467f-a8c4-2b1c0d7d3a11", "45c48cce-2e2d-4fbd-aa1a-3c1e5b7c9d22"],
        },
        "file a project under a category": {
            "user_id": "alice", "everything": True, "namespaces": ["webshop"], "add_category": "work",
        },
    },
)  # fmt: skip
async def change_memories(
    services: Services,
    caller: Caller,
    *,
    memory_ids: Annotated[
        list[UUID] | None,
        MemoryReference(State.ACTIVE),
        InCommand.ARGUMENT,
        Field(description="The memories: their ids, or their first characters; none with `everything`."),
    ] = None,
    everything: Annotated[
        bool, Field(description="All memories that match the filters below; without filters, all active ones.")
    ] = False,
    to: Annotated[
        Literal["active", "paused", "archived", "deleted", "erased"] | None,
        Field(description="Their new state; `erased` removes them for good, which cannot be undone."),
    ] = None,
    add_category: Annotated[str | None, Field(description="File them under this category as well.")] = None,
    expires_at: Annotated[
        DateOrTime | None, Field(description="When they expire, a date, or a time with an offset.")
    ] = None,
    ttl_days: Annotated[
        int | None, Field(ge=1, le=MAX_DAYS, description="Instead of `expires_at`: the days from now.")
    ] = None,
    never_expire: Annotated[bool, Field(description="Take the expiry off.")] = False,
    states: Annotated[list[State] | None, Field(description="Only in these states; left out: active.")] = None,
    contains: Annotated[str | None, Field(description="Only with this part of a text; case is ignored.")] = None,
    app: Annotated[str | None, Field(description="Only what this app wrote.")] = None,
    namespaces: Annotated[list[str] | None, Field(description="Only in these namespaces.")] = None,
    threads: Annotated[list[str] | None, Field(description="Only in these conversations.")] = None,
    kinds: Annotated[list[str] | None, Field(description="Only of these kinds.")] = None,
    categories: Annotated[list[str] | None, Field(description="Only in one of these categories.")] = None,
    from_date: FromDate | None = None,
    to_date: ToDate | None = None,
    only: Annotated[
        Only | None,
        Field(
            description="Only those that will expire, that read like instructions, whose facts disagree, or that no app"
            " has read."
        ),
    ] = None,
) -> BulkChanged:
    """Change many memories at once: their state, a category, or when they expire.

    Memories that the change does not concern stay as they are. It can be undone for some minutes, unless they are
    erased.
    """
    narrowed = (states, contains, app, namespaces, threads, kinds, categories, from_date, to_date, only)
    if memory_ids is not None and (everything or any(one is not None for one in narrowed)):
        raise Invalid("memory_ids", "must be left out where everything or a filter is given")
    lists = {"states": states, "namespaces": namespaces, "threads": threads, "kinds": kinds, "categories": categories}
    for field, names in (lists | {"contains": contains}).items():
        if names is not None and not names:
            raise Invalid(field, "must not be empty; leave it out to mean any")
    if memory_ids is None and not everything:
        raise Invalid("memory_ids", "must name at least one memory, or everything must be true")
    selection = Selection(tuple(memory_ids or ()))
    if everything:
        named = name_or_none(services, app, "app")
        apps = [] if named is None else await services.directory.app_ids(caller, [named])
        query = MemoryQuery(
            states=(State.ACTIVE,) if states is None else tuple(states),
            text=contains,
            app_ids=() if app is None else tuple(apps) or (_NOBODY,),
            namespaces=tuple(namespaces or ()),
            threads=tuple(threads or ()),
            kinds=tuple(kinds or ()),
            categories=tuple(categories or ()),
            created_from=first_moment(from_date, caller.timezone),
            created_to=last_moment(to_date, caller.timezone),
            expiring=only == "expiring",
            flagged=only == "flagged",
            disputed=only == "disputed",
            unread=only == "unread",
        )
        selection = Selection(query=query)
    expires = expires_at is not None or ttl_days is not None
    if sum((to is not None, add_category is not None, expires, never_expire)) != 1:
        raise Invalid("to", "or add_category, expires_at, ttl_days or never_expire must be given, and only one of them")
    if to == "erased":
        return BulkChanged(changed=await services.bulk.erase(caller, selection), action=None)
    expiry = Expiry(expires_at, ttl_days) if expires or never_expire else None
    change = BulkChange(None if to is None else State(to), add_category, expiry)
    done = await services.bulk.apply(caller, selection, change)
    return BulkChanged(changed=done.changed, action=done.action if done.changed else None)
