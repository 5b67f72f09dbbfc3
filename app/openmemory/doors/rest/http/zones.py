"""The time zone that a request names, in the header `X-Timezone` or the query parameter `timezone`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from fastapi import Depends, Header, Query
from starlette.types import Scope

from openmemory.operations.parameters import TIMEZONE_EXAMPLES
from openmemory.serialization.zones import FIELD, HEADER, zone_named

SENT = HEADER.lower().encode()
_IN_QUERY = re.compile(rb"(?:^|&)timezone=([^&]*)")


def requested_zone(scope: Scope, headers: Mapping[bytes, bytes]) -> ZoneInfo | None:
    """Returns the time zone that a request names; None if it names none. The parameter wins over the header.

    Raises:
        Invalid: there is no such zone.
    """
    values = _IN_QUERY.findall(scope["query_string"]) if b"timezone=" in scope["query_string"] else []
    for field, value in ((FIELD, values[-1] if values else b""), (HEADER, headers.get(SENT, b""))):
        if value:
            return zone_named(unquote(value.decode("latin-1")), field)
    return None


_MEANING = (
    "IANA name of the user's time zone, such as Europe/Berlin, in which dates and words such as `today` are meant."
    " Left out: the one that the user saved, or access.default_timezone."
)


async def _describe(
    timezone: Annotated[str | None, Query(description=_MEANING, examples=TIMEZONE_EXAMPLES)] = None,
    x_timezone: Annotated[
        str | None, Header(description="As the parameter timezone.", examples=TIMEZONE_EXAMPLES)
    ] = None,
) -> None:
    """Declares what `requested_zone` has read already, whatever the operation."""


InTimezone = Depends(_describe)
"""The dependency of operations for which the time zone of a request makes a difference."""
