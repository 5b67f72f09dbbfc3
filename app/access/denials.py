"""Denied requests in the audit log: what somebody tried that was not theirs to do or to see."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from app.access import journal
from app.access.journal import Event
from app.access.principal import Principal
from app.access.rates import Rates
from app.database import Database
from app.errors import Forbidden, NotFound, OpenMemoryError


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
            await journal.record(
                tx, principal, Event.ACCESS_DENIED, objects, result=error.code, detail={"operation": what}
            )
