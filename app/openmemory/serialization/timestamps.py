"""Times in the formats of the OpenMemory contract: epoch seconds in some places, naive ISO in others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import PlainSerializer

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def naive_iso(moment: datetime) -> str:
    """Returns a time as OpenMemory wrote it: UTC, ISO 8601, no offset. Its web page appends the Z itself."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat()


def epoch_seconds(moment: datetime) -> int:
    """Returns whole seconds since 1970, rounded down. Exact: a float of the year 9999 would round up into the next."""
    return (moment - _EPOCH) // timedelta(seconds=1)


NaiveTime = Annotated[datetime, PlainSerializer(naive_iso, return_type=str)]
EpochSeconds = Annotated[datetime, PlainSerializer(epoch_seconds, return_type=int)]
