"""Ownership of collections: a collection belongs to one installation, which alone writes it.

A collection contains a point that names its owner. PostgreSQL contains the id of the installation, which replicas
share, and which a copy of the database has too. Two things distinguish copies:

- the place: the identifier of the PostgreSQL server and the number of the database. A restored dump has another one;
- beats: with a Qdrant server, each process counts in PostgreSQL and writes the number into the collection. A number
  that PostgreSQL has not recorded was written by a process of another database. While such numbers change, it runs.

What belongs to another is left alone. Somebody has to say whether the database was copied or moved (`copied`, `moved`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import text

from openmemory.database.engine import Database, Tx
from openmemory.errors import Unavailable
from openmemory.index.port import CollectionState, IndexUnavailable, OwnedByAnother, Owner

BEAT_EVERY = 10.0
"""The seconds after which a beat is followed by the next one."""

SILENT_AFTER = 120.0
"""The seconds without a beat after which the process that wrote the last one counts as ended."""

NEW_AFTER = 1.0
"""The seconds after which an empty collection that another process created, and did not take, is free."""

RETENTION_DAYS = 30
"""The days for which PostgreSQL keeps the beats of a process that ended."""


class InstallationRecord(NamedTuple):
    """The installation, as PostgreSQL records it. `last_beat`: the last one of the writer in question.
    `epoch`: that of the collection's generation."""

    id: UUID
    moved_from: frozenset[str]
    last_beat: int | None
    epoch: UUID | None


@dataclass(slots=True)
class _Observation:
    """An owner as it was first read at a time. `changed`: it has changed since it was first read at all."""

    owner: Owner | None
    at: float
    changed: bool = False


class Ownership:
    """Decides whether this process may write to a collection. `beats`: another database may reach it at any time, as on
    a server."""

    def __init__(self, database: Database, *, beats: bool) -> None:
        self._database = database
        self._beats = beats
        self._writer = uuid4()
        self._place: str | None = None
        self._observations: dict[str, _Observation] = {}
        self._owned: set[str] = set()
        """The collections that have named this installation."""
        self._refused: str | None = None
        """The other place of this installation that a collection named."""

    async def accept(self, collection: str, state: CollectionState) -> Owner:
        """Returns the owner that a collection should name from now on.

        Raises:
            OwnedByAnother: it belongs to another installation, or to another copy of this database.
            IndexUnavailable: that cannot be decided now.
        """
        try:
            owner = await self._accept(collection, state)
            self._owned.add(collection)
            return owner
        except Unavailable as error:
            raise IndexUnavailable(f"the owner of {collection} cannot be checked: {error}") from error

    async def copied(self) -> None:
        """Makes this database an installation of its own. Collections that name the former one are left to it."""
        async with self._database.transaction() as tx:
            await tx.execute(_COPIED)
            await tx.execute(_FORGET_BEATS)
        self._observations.clear()
        self._owned.clear()
        self._refused = None

    async def moved(self) -> bool:
        """Takes the collections over from the place that this database came from. Returns False if none named one."""
        if self._refused is None:
            return False
        async with self._database.transaction() as tx:
            await tx.execute(_MOVED, {"place": self._refused})
        self._refused = None
        return True

    async def _accept(self, collection: str, state: CollectionState) -> Owner:
        place = await self._here()
        async with self._database.statement() as tx:
            mine = await _installation(tx, collection, state.owner)
            if state.owner is None and (reason := await self._refuse_unowned(tx, collection, mine, state)) is not None:
                raise reason
        if state.owner is not None:
            self._check(collection, mine, state.owner, place)
            if self._is_fresh(collection, state.owner, place):
                return state.owner
        else:
            self._observations.pop(collection, None)
        owner = Owner(mine.id, place)
        if not self._beats:
            return owner
        async with self._database.transaction() as tx:
            beat = await tx.scalar(_BEAT, {"writer": self._writer})
            await tx.execute(_FORGET_OLD_BEATS, {"days": RETENTION_DAYS})
        return owner._replace(writer=self._writer, beat=beat or 0)

    async def _refuse_unowned(
        self, tx: Tx, collection: str, mine: InstallationRecord, state: CollectionState
    ) -> IndexUnavailable | None:
        """The reason to leave a collection alone that names no owner, or None if it is this installation's.

        Collections that were made before there were owners name none. One that has named this installation and does
        not any more was made again by somebody else; what it has of ours, we wrote before we noticed.
        """
        if state.created:
            return None
        replaced = collection in self._owned
        if state.watermark is not None:
            if state.watermark.epoch == mine.epoch and not replaced:
                return None
        elif state.ids:
            if not replaced and await tx.scalar(_ANY_OURS, {"ids": list(state.ids)}):
                return None
        else:
            observation = self._look(collection, None)
            if time.monotonic() - observation.at >= NEW_AFTER:
                return None
            return IndexUnavailable(f"{collection} was created by another process a moment ago")
        return OwnedByAnother(
            f"the collection {collection} was filled for another database and names no owner; {_OTHER_NAME}"
        )

    def _check(self, collection: str, mine: InstallationRecord, owner: Owner, place: str) -> None:
        if owner.installation != mine.id:
            raise OwnedByAnother(
                f"the collection {collection} belongs to another installation, {owner.installation}; {_OTHER_NAME}"
            )
        if owner.place not in {place, *mine.moved_from}:
            self._refused = owner.place
            raise OwnedByAnother(
                f"the collection {collection} was filled by another copy of this database; say `openmemory"
                " installation --copied` if that copy is still used, which gives this one a collection of its own, or"
                " `openmemory installation --moved` if this database takes its place",
                asked=True,
            )
        if not self._beats or owner.writer == self._writer:
            return
        if mine.last_beat is not None and owner.beat <= mine.last_beat:
            return
        observation = self._look(collection, owner)
        if time.monotonic() - observation.at >= SILENT_AFTER:
            return
        verb = "is being" if observation.changed else "may be"
        raise OwnedByAnother(
            f"the collection {collection} {verb} used by another copy of this database; stop that one, and this one"
            f" takes the collection after {SILENT_AFTER:.0f} seconds, or say `openmemory installation --copied` here,"
            " which gives this one a collection of its own",
            asked=True,
        )

    def _is_fresh(self, collection: str, owner: Owner, place: str) -> bool:
        """Returns True if the owner needs no new beat: it is that of this place, and was written a moment ago."""
        if owner.place != place or (owner.beat == 0 and self._beats):
            return False
        observation = self._look(collection, owner)
        return not self._beats or time.monotonic() - observation.at < BEAT_EVERY

    def _look(self, collection: str, owner: Owner | None) -> _Observation:
        """Records the owner that was read; returns it with the time since which it has been the same."""
        observation = self._observations.get(collection)
        if observation is None or observation.owner != owner:
            observation = self._observations[collection] = _Observation(
                owner, time.monotonic(), changed=observation is not None
            )
        return observation

    async def _here(self) -> str:
        if self._place is None:
            async with self._database.statement() as tx:
                allowed, number = (await tx.execute(_PLACE)).one()
                server = await tx.scalar(_SERVER) if allowed else "server"
            self._place = f"{server}/{number}"
        return self._place


async def _installation(tx: Tx, collection: str, owner: Owner | None) -> InstallationRecord:
    writer = None if owner is None else owner.writer
    row: Any = (await tx.execute(_MINE, {"collection": collection, "writer": writer})).one()
    return InstallationRecord(row.id, frozenset(row.moved_from), row.beat, row.epoch)


_OTHER_NAME = "give this installation another name in qdrant.collection"

_MINE = text(
    """
    SELECT i.id, i.moved_from, b.beat, g.epoch
    FROM installation AS i
    LEFT JOIN index_beats AS b ON b.writer = CAST(:writer AS uuid)
    LEFT JOIN index_generations AS g ON g.collection = :collection
    """
)
_ANY_OURS = text(
    """
    SELECT EXISTS (SELECT FROM memories WHERE id = ANY(CAST(:ids AS uuid[])))
        OR EXISTS (SELECT FROM passages WHERE id = ANY(CAST(:ids AS uuid[])))
    """
)
_PLACE = text(
    """
    SELECT has_function_privilege('pg_control_system()', 'execute'), oid::text
    FROM pg_database WHERE datname = current_database()
    """
)
_SERVER = text("SELECT system_identifier::text FROM pg_control_system()")
_BEAT = text(
    """
    INSERT INTO index_beats (writer, beat) VALUES (:writer, 1)
    ON CONFLICT (writer) DO UPDATE SET beat = index_beats.beat + 1, seen_at = now()
    RETURNING beat
    """
)
_FORGET_OLD_BEATS = text("DELETE FROM index_beats WHERE seen_at < now() - make_interval(days => :days)")
_FORGET_BEATS = text("DELETE FROM index_beats")
_COPIED = text("UPDATE installation SET id = gen_random_uuid(), collection = NULL, moved_from = '{}'")
_MOVED = text(
    "UPDATE installation SET moved_from = array_append(moved_from, CAST(:place AS varchar))"
    " WHERE NOT moved_from @> ARRAY[CAST(:place AS varchar)]"
)
