"""Denied requests in the audit log: what somebody tried that was not theirs to do or to see."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from openmemory.access.rate_limits import Rates
from openmemory.audit import audit_log
from openmemory.audit.audit_log import Event
from openmemory.database.engine import Database
from openmemory.errors import Forbidden, NotFound, OpenMemoryError
from openmemory.identity.principal import Principal


class Denials:
    """Logs what was denied, but no more than `rates.failures` (0: all) per principal and window, lest it drown the
    rest."""

    def __init__(self, database: Database, rates: Rates) -> None:
        self._database = database
        self._rates = rates

    async def note(self, principal: Principal, error: OpenMemoryError, what: str, objects: Sequence[UUID] = ()) -> None:
        """Log the refusal if it is one. `what` names the operation, never what was sent with it.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        if not isinstance(error, Forbidden | NotFound) or not await self._rates.denial(principal.id):
            return
        async with self._database.statement() as tx:
            await audit_log.record(
                tx, principal, Event.ACCESS_DENIED, objects, result=error.code, detail={"operation": what}
            )
