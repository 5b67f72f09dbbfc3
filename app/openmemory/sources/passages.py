"""Passages as rows of the index, and their erasure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, bindparam, case, delete, func, literal_column, select, text

from openmemory.access.models import User
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.index.bm25 import packed_lexemes, text_vectors
from openmemory.index.collections import same_uuid
from openmemory.index.entries import IndexEntries, array_of
from openmemory.index.models import Embedding, ItemKind
from openmemory.index.port import Payload, Point, SparseVector
from openmemory.index.sync import outbox
from openmemory.index.sync.writer import Text, Version
from openmemory.memories.state import State
from openmemory.sources.models import Passage, PassageKind

EMBEDDED = 300
"""The number of characters of a passage of a file that are embedded, as one vector. Its headings and its beginning say
what it is about. All of its words are searched."""

_WHOLE = func.passage_text(Passage.heading, Passage.speaker, Passage.content)
_PROSE: list[Any] = [
    literal_column(f"'{kind.value}'") for kind in (PassageKind.TURN, PassageKind.SESSION, PassageKind.DOCUMENT)
]
_TEXT = case(
    (Passage.kind.in_(_PROSE), _WHOLE),
    else_=func.left(_WHOLE, literal_column(str(EMBEDDED))),
)
"""A passage as it is embedded."""


class IndexedPassages:
    """The active passages, which the index contains under a tenant of their own."""

    async def points(self, tx: Tx, ids: Sequence[UUID]) -> list[Point]:
        """The points of those passages that are active."""
        return [_point(row, None, words) for row, words in await _rows(tx, _POINTS, ids)]

    async def documents(self, tx: Tx, ids: Sequence[UUID]) -> list[Point]:
        """The same points with their documents."""
        return [
            _point(
                row,
                Payload(text=row[7], user_name=row[8], created_at=row[9], updated_at=row[9], categories=[]),
                words,
            )
            for row, words in await _rows(tx, _DOCUMENTS, ids)
        ]

    async def texts(self, tx: Tx, ids: Sequence[UUID]) -> dict[UUID, Text]:
        """The texts of passages in any state."""
        rows = await tx.execute(select(Passage.id, Passage.hash, _TEXT).where(Passage.id.in_(ids)))
        return {id_: Text(hash_, content) for id_, hash_, content in rows}

    async def versions(self, tx: Tx, ids: Sequence[UUID]) -> list[Version | None]:
        """The revision of each id, in order; None for a passage that is not active."""
        [(revisions,)] = await _VERSIONS.rows(tx, {"ids": array_of(ids)})
        return [None if revision is None else Version(revision, frozenset()) for revision in revisions or ()]

    async def count(self, tx: Tx, *, user: UUID | None) -> int:
        """The number of active passages."""
        query = select(func.count()).select_from(Passage).where(Passage.state == State.ACTIVE)
        if user is not None:
            query = query.where(Passage.user_id == user)
        return (await tx.execute(query)).scalar_one()

    async def entries(self, tx: Tx, *, user: UUID | None, after: UUID | None, limit: int) -> IndexEntries:
        """A page of the expected content of the index, in ascending order of id."""
        values = {"after": after or UUID(int=0), "limit": limit}
        if user is None:
            [(data,)] = await _ENTRIES.rows(tx, values)
        else:
            [(data,)] = await _ENTRIES_OF_USER.rows(tx, values | {"user": user})
        return IndexEntries(data or b"")


async def erase(tx: Tx, which: ColumnElement[bool]) -> list[UUID]:
    """Permanently remove passages with their vectors. Returns their ids."""
    locked = select(Passage.id).where(which).order_by(Passage.id).with_for_update()
    ids = list((await tx.scalars(locked)).all())
    await tx.execute(delete(Passage).where(Passage.id == func.any(ids)))
    await tx.execute(delete(Embedding).where(Embedding.kind == ItemKind.PASSAGE.value, Embedding.id == func.any(ids)))
    await outbox.add_entries(tx, ItemKind.PASSAGE, ids)
    return ids


async def erase_of_user(tx: Tx, user_id: UUID) -> list[UUID]:
    """Permanently remove all passages of a user with their vectors. Returns their ids."""
    return await erase(tx, Passage.user_id == user_id)


async def _rows(tx: Tx, statement: CompiledStatement, ids: Sequence[UUID]) -> list[tuple[Any, Any]]:
    rows = await statement.rows(tx, {"ids": list(ids)})
    vectors = text_vectors([row[-2] for row in rows], [row[-1] for row in rows])
    return list(zip(rows, vectors, strict=True))


def _point(row: Any, document: Payload | None, words: SparseVector) -> Point:
    return Point(
        id=row[0],
        user=ItemKind.PASSAGE.tenant(row[1]),
        app=same_uuid(str(row[2])),
        namespace=row[3],
        kind=row[4],
        revision=row[5],
        text_hash=row[6],
        categories=[],
        document=document,
        words=words,
    )


_COLUMNS = (
    Passage.id, Passage.user_id, Passage.app_id, Passage.namespace, Passage.kind, Passage.revision, Passage.hash,
)  # fmt: skip
_WORDS: tuple[Any, ...] = (literal_column(packed_lexemes("passages.words")), Passage.word_count)
_WHERE = (Passage.id == func.any(bindparam("ids")), Passage.state == State.ACTIVE)
_POINTS = CompiledStatement(select(*_COLUMNS, *_WORDS).where(*_WHERE), plain=True)
_DOCUMENTS = CompiledStatement(
    select(*_COLUMNS, _TEXT, User.user_id, Passage.created_at, *_WORDS)
    .join(User, User.id == Passage.user_id)
    .where(*_WHERE),
    plain=True,
)
_VERSIONS = CompiledStatement(
    text(
        """
        SELECT array_agg(p.revision ORDER BY wanted.place)
        FROM unnest(CAST(:ids AS uuid[])) WITH ORDINALITY AS wanted(id, place)
        LEFT JOIN passages AS p ON p.id = wanted.id AND p.state = 'active'
        """
    ),
    plain=True,
)
_TENANT = "set_byte(uuid_send(p.user_id), 0, get_byte(uuid_send(p.user_id), 0) # 128)"
"""SQL: `ItemKind.PASSAGE.tenant` of the user."""


def _page(of_user: str = "") -> CompiledStatement:
    return CompiledStatement(
        text(
            f"""
            SELECT string_agg(uuid_send(p.id) || {_TENANT} || int4send(p.revision), '' ORDER BY p.id)
            FROM (
                SELECT id, user_id, revision FROM passages
                WHERE state = 'active' AND id > CAST(:after AS uuid) {of_user} ORDER BY id LIMIT CAST(:limit AS int)
            ) AS p
            """  # noqa: S608 - only constants of this module are put in
        ),
        plain=True,
        binary=True,
    )


_ENTRIES = _page()
_ENTRIES_OF_USER = _page("AND user_id = CAST(:user AS uuid)")
