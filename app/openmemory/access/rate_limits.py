"""Rate limits, counted in PostgreSQL so that they hold across processes."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

from sqlalchemy import Integer

from openmemory.config.addresses import network_of
from openmemory.config.settings import RateSettings
from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Database
from openmemory.database.sql_files import load_sql
from openmemory.errors import TooMany
from openmemory.identity.caller import Caller

_COUNT = CompiledStatement(
    bound(
        load_sql(__name__, "count"),
        {"window": Integer(), "cost": Integer(), "limit": Integer()},
    ),
    plain=True,
)

_READ = bound(
    """
SELECT CASE WHEN period = this THEN used ELSE 0 END,
       CASE period WHEN this THEN before WHEN this - 1 THEN used ELSE 0 END,
       at - this
FROM rate_limits, (SELECT extract(epoch FROM now()) / :window AS at, floor(extract(epoch FROM now()) / :window) AS this)
WHERE bucket = :bucket
""",
    {"window": Integer()},
)

_PRUNE = bound(
    "DELETE FROM rate_limits WHERE period < floor(extract(epoch FROM now()) / :window) - 1", {"window": Integer()}
)

_MAX_BUCKETS = 10_000
"""The maximum number of buckets with units reserved by this process."""


class Quota(NamedTuple):
    """A limit: its subject, its setting, and the maximum within a window. 0 means no limit."""

    what: str
    setting: str
    limit: int


class RateLimiter:
    """Sliding-window limits: the count of the current period, plus the share of the previous one that still lies within
    the window. After Cloudflare 2017, "How we built rate limiting capable of scaling to millions of domains"."""

    def __init__(self, database: Database, settings: RateSettings) -> None:
        self._database = database
        self._window = settings.window
        self._saves = Quota("saves", "rates.saves", settings.saves)
        self._searches = Quota("searches", "rates.searches", settings.searches)
        self._requests = Quota("requests", "rates.requests", settings.requests)
        self._failures = Quota("wrong credentials", "rates.failures", settings.failures)
        self._reserves: dict[str, tuple[int, float]] = {}

    async def save(self, caller: Caller, count: int) -> None:
        """Count memories that an assistant's app stores or changes. People and their own programs have no limit.

        Raises:
            TooMany: more than `rates.saves` within `rates.window`.
        """
        if caller.principal.assistant:
            await self.count(f"save:{caller.app_id}", self._saves, cost=count)

    async def search(self, caller: Caller) -> None:
        """Count a search or a list if an assistant's app makes it.

        Raises:
            TooMany: more than `rates.searches` within `rates.window`.
        """
        if caller.principal.assistant:
            # Naming another unknown app must not give the caller a fresh limit.
            await self.count(f"search:{caller.known_app or caller.principal.id}", self._searches)

    async def request(self, principal: str, count: int = 1) -> None:
        """Count requests with a key or a token. Each process reserves a twentieth of the limit in advance.

        Raises:
            TooMany: more than `rates.requests` within `rates.window`.
        """
        await self.count(f"request:{principal}", self._requests, cost=count, chunk=max(1, self._requests.limit // 20))

    async def failure(self, address: str | None) -> None:
        """Count a wrong credential from an address or its network.

        Raises:
            TooMany: more than `rates.failures` within `rates.window`; never if that is 0.
        """
        await self.count(f"failure:{network_of(address)}", self._failures)

    async def denial(self, principal: str) -> bool:
        """Returns True if a denied request is one of the few per period that the audit log records individually."""
        try:
            await self.count(f"denial:{principal}", self._failures)
        except TooMany:
            return False
        return True

    async def count(self, bucket: str, quota: Quota, *, cost: int = 1, chunk: int = 1) -> None:
        """Count `cost` against the bucket. `chunk`: the number of units to reserve at once for this process.

        Raises:
            TooMany: the bucket is full; the error states when there is room.
            Unavailable: PostgreSQL does not answer.
        """
        if not quota.limit:
            return
        now = time.monotonic()
        reserve, until = self._reserves.get(bucket, (0, 0.0))
        if reserve >= cost and now < until:
            self._reserves[bucket] = (reserve - cost, until)
            return
        units = max(cost, min(chunk, quota.limit))
        values = {"bucket": bucket, "window": self._window, "cost": units, "limit": quota.limit}
        async with self._database.statement() as tx:
            if not await _COUNT.rows(tx, values):
                row = (await tx.execute(_READ, {"bucket": bucket, "window": self._window})).one_or_none()
                raise self._too_many(row, units, quota)
        if units > cost:
            if len(self._reserves) >= _MAX_BUCKETS:
                self._reserves.clear()
            self._reserves[bucket] = (units - cost, now + self._window / 2)

    async def prune(self) -> None:
        """Remove counts that no limit uses any more. A job calls this."""
        async with self._database.statement() as tx:
            await tx.execute(_PRUNE, {"window": self._window})

    def _too_many(self, row: Any, cost: int, quota: Quota) -> TooMany:
        words = f"Too many {quota.what}: at most {quota.limit:,} in {self._window} s ({quota.setting})."
        if cost > quota.limit:
            return TooMany(
                words,
                retry_after=self._window,
                hint=f"The request counts as {cost:,}, more than the limit; send fewer items.",
            )
        used, before, share = (float(part) for part in row) if row is not None else (0.0, 0.0, 0.0)
        wait = periods_until_room(used, before, share, quota.limit - cost) * self._window
        return TooMany(words, retry_after=wait, hint=f"Try again in {max(1, math.ceil(wait))} s.")


def periods_until_room(used: float, before: float, share: float, most: float) -> float:
    """Returns the periods until at most `most` count. `share` of the current one has passed, in which `used` were."""
    if used <= most and before > 0:
        return max(0.0, 1 - (most - used) / before - share)
    return (1 - share) + (max(0.0, 1 - most / used) if used else 0.0)
