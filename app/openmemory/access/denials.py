"""Logs denied requests in the audit log: attempts to do or see what the caller is not allowed to."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from openmemory.access.rate_limits import RateLimiter
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.database.engine import Database
from openmemory.errors import Forbidden, NotFound, OpenMemoryError
from openmemory.identity.principal import Principal


class Denials:
    """Logs denied requests, at most `rates.failures` (0: all) per principal and window, so that they do not drown out
    other events."""

    def __init__(self, database: Database, rates: RateLimiter) -> None:
        self._database = database
        self._rates = rates

    async def record(
        self, principal: Principal, error: OpenMemoryError, what: str, objects: Sequence[UUID] = ()
    ) -> None:
        """Log the error if it is a denial. `what` names the operation, never the data that was sent with it.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        if not isinstance(error, Forbidden | NotFound) or not await self._rates.denial(principal.id):
            return
        async with self._database.statement() as tx:
            await audit_log.record(
                tx, principal, AuditAction.ACCESS_DENIED, objects, result=error.code, detail={"operation": what}
            )
