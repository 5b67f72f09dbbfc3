"""One list of everything that was said and read: conversations, sessions, files and documents."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import and_, case, func, literal_column, or_, select

from openmemory.access.models import App
from openmemory.access.rate_limits import RateLimiter
from openmemory.access.readable import readable_by
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database
from openmemory.identity.caller import Caller
from openmemory.memories.models import ACTIVE
from openmemory.sources import listing
from openmemory.sources.models import Passage, Source, SourceKind
from openmemory.sources.schemas import SourceType, StoredSource, StoredSourcePage

_IS = {kind: Source.kind == literal_column(f"'{kind.value}'") for kind in SourceKind}
_OF_TYPE = {
    SourceType.CONVERSATION: and_(_IS[SourceKind.CONVERSATION], Source.hash.is_(None)),
    SourceType.SESSION: and_(_IS[SourceKind.CONVERSATION], Source.hash.is_not(None)),
    SourceType.FILE: _IS[SourceKind.FILE],
    SourceType.DOCUMENT: _IS[SourceKind.DOCUMENT],
}
_TYPE = case(*((which, literal_column(f"'{type_.value}'")) for type_, which in _OF_TYPE.items()))
_PASSAGES = (
    select(func.count())
    .where(Passage.source_id == Source.id, Passage.state == ACTIVE)
    .correlate(Source)
    .scalar_subquery()
)
_COLUMNS = (
    Source.id, _TYPE, Source.locator, Source.title, Source.namespace, App.name, Source.language, Source.bytes,
    _PASSAGES, Source.created_at, Source.updated_at,
)  # fmt: skip


class Sources:
    """Lists sources of every type."""

    def __init__(self, database: Database, limits: LimitSettings, rates: RateLimiter) -> None:
        self._database = database
        self._limits = limits
        self._rates = rates

    async def list(
        self,
        caller: Caller,
        *,
        types: Sequence[SourceType] = (),
        namespaces: tuple[str, ...] = (),
        page: int = 1,
        size: int = 50,
    ) -> StoredSourcePage:
        """A page of the sources that the caller may read, the last changed first. No types means all.

        Raises:
            Invalid: a namespace, the page or its size is invalid.
        """
        caller.may_read()
        listing.check_page(page, size)
        which = [readable_by(caller, Source), *listing.within(namespaces, self._limits)]
        if types:
            which.append(or_(*(_OF_TYPE[type_] for type_ in types)))
        await self._rates.search(caller)
        order = Source.updated_at.desc(), Source.id.desc()
        async with self._database.transaction() as tx:
            rows, total = await listing.page_of(tx, caller, _COLUMNS, which, order, page=page, size=size)
            await audit_log.record(tx, caller, AuditAction.SOURCE_LIST, detail={"sources": len(rows)})
        sources = [StoredSource(id_, SourceType(type_), *rest) for id_, type_, *rest in rows]
        return StoredSourcePage(sources, total, page, size)

    async def passages(self, caller: Caller, namespace: str) -> int:
        """The number of passages of the sources of a namespace that the caller may read.

        Raises:
            Invalid: the namespace is invalid.
        """
        caller.may_read()
        which = readable_by(caller, Source), *listing.within((namespace,), self._limits)
        await self._rates.search(caller)
        async with self._database.transaction() as tx:
            total = await tx.scalar(select(func.sum(Source.length)).where(*which), caller.parameters) or 0
            await audit_log.record(tx, caller, AuditAction.SOURCE_LIST, detail={"passages": total})
        return total
