"""Parameters and results that operations share."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

from pydantic import BaseModel, Field

from openmemory.errors import NotFound
from openmemory.identity.names import checked_name
from openmemory.serialization.timestamps import TimeBound

if TYPE_CHECKING:
    from openmemory.services import Services

Project = Annotated[str, Field(description="The project.")]
"""The namespace. The commands take that of the folder, if none is given."""

Projects = Annotated[
    tuple[str, ...],
    Field(max_length=10, description="The project; may be repeated, and the first that has it counts."),
]
"""The namespaces that are read. The commands take that of the folder and the default one."""

OnlyProjects = Annotated[
    tuple[str, ...],
    Field(max_length=100, description="Only this project; may be repeated. Left out: every one."),
]
"""The namespaces that a list is narrowed to; its default is empty. The commands take that of the folder and the default
one, unless all are asked for."""

PageNumber = Annotated[int, Field(ge=1, le=1_000_000)]
PageSize = Annotated[int, Field(ge=1, le=100)]

_BOUND = (
    "Seconds since 1970 (not milliseconds), or a date or time in ISO 8601. Without an offset it is of the time zone of"
    " the request."
)
FromDate = Annotated[TimeBound, Field(description=f"{_BOUND} A date means its first moment.")]
ToDate = Annotated[TimeBound, Field(description=f"{_BOUND} A date includes its whole day.")]


def first_moment(bound: TimeBound | None, zone: ZoneInfo) -> datetime | None:
    """Returns the moment at which a range begins, in UTC."""
    return None if bound is None else bound.first(zone)


def last_moment(bound: TimeBound | None, zone: ZoneInfo) -> datetime | None:
    """Returns the last moment of a range, in UTC."""
    return None if bound is None else bound.last(zone)


TIMEZONE_EXAMPLES = ["Europe/Berlin"]
Timezone = Annotated[
    str | None, Field(description="As the parameter timezone, which it overrides.", examples=TIMEZONE_EXAMPLES)
]
"""The field `timezone` of a body; its default is None."""


MEMORY_ID = "The memory's id, or its first characters; 409: several memories have them."
"""The words about the id of one memory, where requests may give its first characters."""


class Message(BaseModel):
    """The result, in words."""

    message: str


def name_or_none(services: Services, value: str | None, field: str) -> str | None:
    """Returns the name in a field, without surrounding blanks. None if the field is left out.

    Raises:
        Invalid: it cannot be a name.
    """
    return None if value is None else checked_name(value, field, services.settings.limits.name)


def user_or_none(services: Services, value: str | None) -> str | None:
    """Returns the user that a request names, without surrounding blanks. None if it names none.

    Raises:
        NotFound: it is blank.
        Invalid: it cannot be a name.
    """
    if value is not None and not value.strip():
        hint = "user_id must not be blank; leave it out to mean the default user."
        raise NotFound("User not found", code="user_not_found", hint=hint)
    return name_or_none(services, value, "user_id")
