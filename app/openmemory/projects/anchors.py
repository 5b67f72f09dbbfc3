"""The use cases of anchors: the commits that memories and messages belong to, and whether they are in the history of a
checkout.

The service runs no Git. A client asks for the commits, compares them with its checkout, and reports the result.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Text, exc, func, literal_column, select, text

from openmemory.access.apps import refuse_paused
from openmemory.access.rate_limits import RateLimiter
from openmemory.access.readable import readable_by
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database, Tx, violated
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.memories import validation
from openmemory.memories.models import ACTIVE, IS_ACTIVE, Memory
from openmemory.projects import registrations
from openmemory.projects.models import Anchor
from openmemory.projects.schemas import MAX_COMMITS, AnchorList, AnchorReport, CommitAnchor
from openmemory.sources.models import Passage

COMMIT = "commit"
"""The field of the metadata of a memory or message that names its commit."""

_HEADS = 8
"""The checkouts of a project that are remembered, the last ones."""

_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")

# Constants, so that the partial indexes match with every plan.
_COMMITS: dict[Any, Any] = {
    rows: literal_column(f"({rows.__tablename__}.metadata ->> 'commit')", Text) for rows in (Memory, Passage)
}
_IS_HASH = literal_column(f"'^{_HASH.pattern}$'", Text)

_KEEP = text(
    """
    INSERT INTO anchors (user_id, namespace, head, commit, reachable)
    SELECT :user, :namespace, :head, commit, reachable
    FROM unnest(CAST(:commits AS text[]), CAST(:reachable AS boolean[])) AS t(commit, reachable)
    ON CONFLICT (user_id, namespace, head, commit)
    DO UPDATE SET reachable = excluded.reachable, checked_at = now()
    """
)
_FORGET = text(
    """
    DELETE FROM anchors WHERE user_id = :user AND namespace = :namespace AND head NOT IN (
        SELECT head FROM anchors WHERE user_id = :user AND namespace = :namespace
        GROUP BY head ORDER BY max(checked_at) DESC, head LIMIT :heads)
    """
)


class Anchors:
    """Lists the commits of a project's memories, and keeps what a client found out about them."""

    def __init__(self, database: Database, *, limits: LimitSettings, rates: RateLimiter) -> None:
        self._database = database
        self._limits = limits
        self._rates = rates

    async def list(self, caller: Caller, namespace: str, head: str) -> AnchorList:
        """The commits of what the caller may read, and whether they are in the history of `head`.

        Raises:
            Invalid: the namespace or the head is invalid.
        """
        caller.may_read()
        namespace = validation.name(namespace, "namespace", self._limits)
        head = commit(head, "head")
        await self._rates.search(caller)
        async with self._database.transaction() as tx:
            commits = await commits_of(tx, caller, namespace)
            reachability = await compared(tx, caller, namespace, head, list(commits))
            await audit_log.record(tx, caller, AuditAction.PROJECT_ANCHORS, detail={"commits": len(commits)})
        anchors = [CommitAnchor(one, number, reachability.get(one)) for one, number in commits.items()]
        return AnchorList(namespace, head, anchors)

    async def orphans(self, caller: Caller, namespace: str, head: str | None = None) -> frozenset[UUID]:
        """The memories of a project whose commit is not in the history of `head`.

        The default is the head of the registered project.

        Raises:
            Invalid: the namespace or the head is invalid.
        """
        caller.may_read()
        namespace = validation.name(namespace, "namespace", self._limits)
        head = None if head is None else commit(head, "head")
        mine = (Memory.user_id == Anchor.user_id) & (Memory.namespace == Anchor.namespace) & IS_ACTIVE
        some = select(Memory.id).join(Anchor, mine & (_COMMITS[Memory] == Anchor.commit))
        some = some.where(_of_checkout(caller, namespace, head), ~Anchor.reachable, _COMMITS[Memory].is_not(None))
        async with self._database.statement() as tx:
            return frozenset(await tx.scalars(some, caller.parameters))

    async def report(
        self, caller: Caller, namespace: str, head: str, *, reachable: Sequence[str], orphaned: Sequence[str]
    ) -> AnchorReport:
        """Keep which commits are in the history of `head`, and which are not.

        Commits are left out if the caller may read nothing that belongs to them.

        Raises:
            Forbidden: the app is paused, or the namespace is not the caller's to write in.
            Invalid: the namespace or a commit is invalid.
        """
        namespace = validation.name(namespace, "namespace", self._limits)
        head = commit(head, "head")
        reachability = {commit(one, "reachable"): True for one in reachable}
        reachability |= {commit(one, "orphaned"): False for one in orphaned}
        if len(reachability) > MAX_COMMITS:
            raise Invalid("reachable", f"and orphaned must be at most {MAX_COMMITS:,} commits together")
        caller.may_write(namespace)
        caller.may_read()
        await self._rates.save(caller, 1)
        return await self._report(caller, namespace, head, reachability)

    @retry_on_conflict
    async def _report(
        self, caller: Caller, namespace: str, head: str, reachability: Mapping[str, bool]
    ) -> AnchorReport:
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "report commits")
            commits = await commits_of(tx, caller, namespace)
            readable = {one: reachability[one] for one in sorted(reachability) if one in commits}
            place = {"user": caller.user_id, "namespace": namespace}
            values = {"head": head, "commits": list(readable), "reachable": list(readable.values())}
            try:
                await tx.execute(_KEEP, place | values)
            except exc.IntegrityError as error:
                if violated(error).startswith("fk_"):
                    raise NotFound("The user was erased a moment ago.", code="user_not_found") from error
                raise
            await tx.execute(_FORGET, place | {"heads": _HEADS})
            detail = {"reachable": sum(readable.values()), "orphaned": len(readable) - sum(readable.values())}
            await audit_log.record(tx, caller, AuditAction.PROJECT_ANCHORS, detail=detail)
        return AnchorReport(namespace, head, **detail)


def commit(value: str, name: str) -> str:
    """A full hash of a commit, in lower case.

    Raises:
        Invalid: it is none.
    """
    if _HASH.fullmatch(value.lower()) is None:
        raise Invalid(name, "must be a whole commit hash of 40 or 64 hexadecimal digits")
    return value.lower()


def anchor(metadata: Mapping[str, Any]) -> str | None:
    """The commit that a memory or message belongs to, if its metadata names one."""
    value = metadata.get(COMMIT)
    return value if isinstance(value, str) and _HASH.fullmatch(value) else None


async def compared(tx: Tx, caller: Caller, namespace: str, head: str | None, commits: Sequence[str]) -> dict[str, bool]:
    """Tells of each commit if it is in the history of `head`. The default is the head of the registered project.

    Commits that no client has compared are missing.
    """
    if not commits:
        return {}
    some = select(Anchor.commit, Anchor.reachable).where(_of_checkout(caller, namespace, head))
    rows = await tx.execute(some.where(Anchor.commit == func.any(list(commits))), caller.parameters)
    return {row.commit: row.reachable for row in rows}


def _of_checkout(caller: Caller, namespace: str, head: str | None) -> ColumnElement[bool]:
    """The anchors of a checkout. The default is the one with which the project is registered for the caller."""
    at = registrations.head(caller, namespace) if head is None else head
    return (Anchor.user_id == caller.user_id) & (Anchor.namespace == namespace) & (Anchor.head == at)


async def commits_of(tx: Tx, caller: Caller, namespace: str) -> dict[str, int]:
    """The commits to which memories and messages belong that the caller may read, and the number of these."""
    counts = Counter[str]()
    for rows, column in _COMMITS.items():
        which = (rows.state == ACTIVE) & column.is_not(None) & column.op("~")(_IS_HASH) & (rows.namespace == namespace)
        counted = select(column, func.count()).where(which, readable_by(caller, rows)).group_by(column)
        for name, number in await tx.execute(counted.order_by(column).limit(MAX_COMMITS), caller.parameters):
            counts[name] += number
    return {name: counts[name] for name in sorted(counts)[:MAX_COMMITS]}
