"""The use cases of the installation: show whose the collection is, and say if the database was copied or moved."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from pydantic import BaseModel, Field
from sqlalchemy import select

from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.database.engine import Database
from openmemory.errors import ConflictError
from openmemory.identity.principal import Principal
from openmemory.index.generations.watcher import GenerationWatcher
from openmemory.index.models import Installation


class InstallationAnswer(BaseModel):
    """The installation, and the index that it uses."""

    id: UUID = Field(description="The id that its collections name as their owner.")
    collection: str = Field(description="The collection that searches use; empty until the first one.")
    refusal: str | None = Field(description="Why that collection is left alone; null: it is this installation's.")
    asked: bool = Field(description="True if somebody has to say whether the database was copied or moved.")


class Installations:
    """Tells whose the index is, and takes the answer of a person where two copies of a database claim it."""

    def __init__(self, database: Database, watcher: GenerationWatcher) -> None:
        self._database = database
        self._watcher = watcher

    async def show(self, principal: Principal) -> InstallationAnswer:
        """Show the installation.

        Raises:
            Forbidden: the principal may not see the service as a whole.
        """
        principal.must_operate()
        async with self._database.statement() as tx:
            id_ = (await tx.scalars(select(Installation.id))).one()
        foreign = self._watcher.monitor.lease.foreign
        return InstallationAnswer(
            id=id_,
            collection=self._watcher.spaces.serving.collection,
            refusal=None if foreign is None else str(foreign),
            asked=foreign is not None and foreign.asked,
        )

    async def decide(self, principal: Principal, decision: Literal["copied", "moved"]) -> InstallationAnswer:
        """Make a copied database an installation of its own, or let a moved one take its collections over.

        Raises:
            Forbidden: the principal is no administrator of the whole service.
            ConflictError: nobody asked, or nothing says where the database was before.
        """
        principal.must_administer()
        foreign = self._watcher.monitor.lease.foreign
        if foreign is None or not foreign.asked:
            raise ConflictError(
                "The index is not in doubt, so there is nothing to decide.",
                code="installation_not_in_doubt",
                hint="To give this installation another collection, set qdrant.collection.",
            )
        async with self._database.statement() as tx:
            await audit_log.record(tx, principal, AuditAction.INSTALLATION_DECIDE, detail={"decision": decision})
        if decision == "copied":
            await self._watcher.ownership.copied()
        elif not await self._watcher.ownership.moved():
            raise ConflictError(
                "The other copy of this database uses the collection from the same place.",
                code="installation_in_use",
                hint="Stop the service of the other copy; this one then takes the collection by itself.",
            )
        await self._watcher.monitor.check(self._watcher.spaces.serving)
        return await self.show(principal)
