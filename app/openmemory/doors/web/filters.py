"""The filters of the list of memories, as the address of the page holds them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Annotated
from uuid import UUID

from fastapi import Depends
from starlette.datastructures import FormData

from openmemory.doors.web.page import PageRequest, text_of
from openmemory.errors import Invalid
from openmemory.memories.schemas import MemoryQuery
from openmemory.memories.state import State
from openmemory.serialization.zones import day_end, day_start

PAGE_SIZE = 50
"""Memories on a page, and the largest number that a search shows."""

SORTED = {
    "newest": ("created_at", True),
    "oldest": ("created_at", False),
    "text": ("memory", False),
    "app": ("app_name", False),
}
"""The orders of the list, by the word in the address: a column, and True if it descends."""

ONLY = {
    "expiring": "will expire",
    "flagged": "reads like orders",
    "disputed": "facts that disagree",
    "never": "never recalled",
}
"""The kinds of memories that a list may be limited to, by the word in the address."""

_NOWHERE = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of the list, as the address of the page holds them."""

    q: str = ""
    state: str = "active"
    app: str = ""
    category: str = ""
    kind: str = ""
    namespace: str = ""
    thread: str = ""
    since: str = ""
    until: str = ""
    only: str = ""
    sort: str = "newest"

    @property
    def parameters(self) -> dict[str, str]:
        """The filters that differ from the defaults."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value and value != getattr(_DEFAULTS, name)}

    @property
    def states(self) -> tuple[State, ...]:
        """The states to list."""
        if self.state == "any":
            return tuple(State)
        try:
            return (State(self.state),)
        except ValueError:
            raise Invalid("state", f"must be any or one of {', '.join(State)}") from None

    @property
    def narrowing(self) -> bool:
        """True if more is set than the text to search for."""
        return bool(self.parameters.keys() - {"q"})

    @property
    def searched(self) -> bool:
        """True if the memories are found by meaning; False if they are listed."""
        return bool(self.q) and self.state == State.ACTIVE and not self.only

    async def query(self, page: PageRequest, number: int = 1) -> MemoryQuery:
        """Returns the query of the list, for one page of it."""
        if self.only not in ("", *ONLY):
            raise Invalid("only", f"must be one of {', '.join(ONLY)}")
        sort, descending = self.order
        return MemoryQuery(
            states=self.states,
            text=self.q or None,
            app_ids=await self.app_ids(page),
            namespaces=as_values(self.namespace),
            threads=as_values(self.thread),
            kinds=as_values(self.kind),
            categories=as_values(self.category),
            created_from=self.created_from(page),
            created_to=self.created_to(page),
            expiring=self.only == "expiring",
            flagged=self.only == "flagged",
            disputed=self.only == "disputed",
            unread=self.only == "never",
            sort=sort,
            descending=descending,
            page=number,
            size=PAGE_SIZE,
        )

    async def app_ids(self, page: PageRequest) -> tuple[UUID, ...]:
        """Returns the id of the app that the filter names; of none if there is no such app."""
        if not self.app:
            return ()
        return tuple(await page.services.directory.app_ids(page.caller, [self.app])) or (_NOWHERE,)

    @property
    def order(self) -> tuple[str, bool]:
        """The column to sort by, and True if it descends."""
        if self.sort not in SORTED:
            raise Invalid("sort", f"must be one of {', '.join(SORTED)}")
        return SORTED[self.sort]

    def created_from(self, page: PageRequest) -> datetime | None:
        """The first moment of the day in `since`."""
        day = day_of(self.since, "since")
        return None if day is None else day_start(day, page.timezone)

    def created_to(self, page: PageRequest) -> datetime | None:
        """The last moment of the day in `until`."""
        day = day_of(self.until, "until")
        return None if day is None else day_end(day, page.timezone)

    @classmethod
    def of_form(cls, form: FormData) -> Filters:
        """Returns the filters that a form holds."""
        return cls(**{each.name: text_of(form, each.name) or str(each.default) for each in fields(cls)})


_DEFAULTS = Filters()

TheFilters = Annotated[Filters, Depends(Filters)]


def as_values(value: str) -> tuple[str, ...]:
    """Returns a filter's value for a service; none if it is empty."""
    return (value,) if value else ()


def day_of(value: str, field: str) -> date | None:
    """Returns the day that an address or a form holds; None if it holds none.

    Raises:
        Invalid: it is no date.
    """
    if not value:
        return None
    try:
        return datetime.strptime(value, "%Y-%m-%d").date()
    except ValueError:
        raise Invalid(field, "must be a date such as 2026-05-31") from None
