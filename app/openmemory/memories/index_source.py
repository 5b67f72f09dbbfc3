"""Memories as the source of the index."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import bindparam, func, literal_column, select, text
from sqlalchemy.dialects.postgresql import array

from openmemory.access.models import User
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql
from openmemory.index.bm25 import packed_lexemes, text_vectors
from openmemory.index.collections import same_uuid
from openmemory.index.entries import IndexEntries, array_of
from openmemory.index.port import Payload, Point
from openmemory.index.sync.writer import Text, Version
from openmemory.memories.intake import STATE
from openmemory.memories.models import Memory, MemoryCategory
from openmemory.memories.repository import CATEGORY_NAMES
from openmemory.memories.state import State


class IndexedMemories:
    """The active memories, which are the expected content of the index. No search finds the state of a project."""

    async def points(self, tx: Tx, ids: Sequence[UUID]) -> list[Point]:
        """The points of those memories that are active."""
        rows = await _POINTS.rows(tx, {"ids": array_of(ids)})
        [(places, owners, apps, writers, namespaces, kinds, revisions, hashes, category_lists, lexemes, lengths)] = rows
        if not places:
            return []
        return [
            Point(
                id=ids[place - 1],
                user=same_uuid(owner),
                app=same_uuid(app),
                namespace=namespace,
                kind=kind,
                revision=revision,
                text_hash=hash_,
                categories=[same_uuid(category) for category in categories.split()],
                writers=[same_uuid(writer) for writer in others.split()],
                words=words,
            )
            for place, owner, app, others, namespace, kind, revision, hash_, categories, words in zip(
                places, owners.split(","), apps.split(","), writers.split(","), namespaces, kinds, revisions,
                hashes.split(","), category_lists.split(","), text_vectors(lexemes, lengths), strict=True,
            )
        ]  # fmt: skip

    async def documents(self, tx: Tx, ids: Sequence[UUID]) -> list[Point]:
        """The same points with their documents."""
        rows = await _DOCUMENTS.rows(tx, {"ids": list(ids)})
        vectors = text_vectors([row[-2] for row in rows], [row[-1] for row in rows])
        return [
            Point(
                id=id_,
                user=user,
                app=app,
                namespace=namespace,
                kind=kind,
                revision=revision,
                text_hash=hash_,
                categories=category_ids,
                writers=[writer for writer in writers if writer is not None],
                document=Payload(
                    text=content,
                    user_name=name,
                    created_at=created_at,
                    updated_at=updated_at,
                    categories=categories,
                ),
                words=words,
            )
            for (
                id_, user, app, namespace, kind, revision, hash_, content, name, created_at, updated_at, categories,
                category_ids, writers, *_
            ), words in zip(rows, vectors, strict=True)
        ]  # fmt: skip

    async def texts(self, tx: Tx, ids: Sequence[UUID]) -> dict[UUID, Text]:
        """The texts of memories in any state."""
        rows = await tx.execute(select(Memory.id, Memory.hash, Memory.content).where(Memory.id.in_(ids)))
        return {row.id: Text(row.hash, row.content) for row in rows}

    async def versions(self, tx: Tx, ids: Sequence[UUID]) -> list[Version | None]:
        """The revision and categories of each id, in order; None for a memory that is not active."""
        [(revisions, category_lists)] = await _VERSIONS.rows(tx, {"ids": array_of(ids)})
        if not revisions:
            return []
        return [
            None if revision is None else Version(revision, frozenset(map(same_uuid, categories.split())))
            for revision, categories in zip(revisions, category_lists.split(","), strict=True)
        ]

    async def count(self, tx: Tx, *, user: UUID | None) -> int:
        """The number of active memories."""
        query = select(func.count()).select_from(Memory).where(*_INDEXED)
        if user is not None:
            query = query.where(Memory.user_id == user)
        return (await tx.execute(query)).scalar_one()

    async def entries(self, tx: Tx, *, user: UUID | None, after: UUID | None, limit: int) -> IndexEntries:
        """A page of the expected content of the index, in ascending order of id."""
        values = {"after": after or _FIRST, "limit": limit}
        if user is None:
            [(data,)] = await _ENTRIES.rows(tx, values)
        else:
            [(data,)] = await _ENTRIES_OF_USER.rows(tx, values | {"user": user})
        return IndexEntries(data or b"")


_INDEXED = Memory.state == State.ACTIVE, Memory.kind != STATE
_CATEGORY_IDS = func.array(
    select(MemoryCategory.category_id).where(MemoryCategory.memory_id == Memory.id).correlate(Memory).scalar_subquery()
)

_POINTS = CompiledStatement(
    text(load_sql(__name__, "points", lexemes=packed_lexemes("m.words"))),
    plain=True,
)
_DOCUMENTS = CompiledStatement(
    select(
        Memory.id,
        Memory.user_id,
        Memory.app_id,
        Memory.namespace,
        Memory.kind,
        Memory.revision,
        Memory.hash,
        Memory.content,
        User.user_id.label("user_name"),
        Memory.created_at,
        Memory.updated_at,
        CATEGORY_NAMES.label("categories"),
        _CATEGORY_IDS.label("category_ids"),
        array([Memory.text_app_id, Memory.metadata_app_id]).label("writers"),
        literal_column(packed_lexemes("memories.words")),
        Memory.word_count,
    )
    .join(User, User.id == Memory.user_id)
    .where(Memory.id == func.any(bindparam("ids")), *_INDEXED),
    plain=True,
)
_VERSIONS = CompiledStatement(
    text(
        """
        SELECT array_agg(m.revision ORDER BY wanted.place),
            string_agg(array_to_string(ARRAY(
                SELECT c.category_id FROM memory_categories AS c WHERE c.memory_id = m.id), ' '), ','
                ORDER BY wanted.place)
        FROM unnest(CAST(:ids AS uuid[])) WITH ORDINALITY AS wanted(id, place)
        LEFT JOIN memories AS m ON m.id = wanted.id AND m.state = 'active' AND m.kind <> 'state'
        """
    ),
    plain=True,
)
_FIRST = UUID(int=0)


def _page(of_user: str = "") -> CompiledStatement:
    return CompiledStatement(
        text(
            f"""
            SELECT string_agg(uuid_send(m.id) || uuid_send(m.user_id) || int4send(m.revision), '' ORDER BY m.id)
            FROM (
                SELECT id, user_id, revision FROM memories
                WHERE state = 'active' AND kind <> 'state' AND id > CAST(:after AS uuid) {of_user}
                ORDER BY id LIMIT CAST(:limit AS int)
            ) AS m
            """  # noqa: S608 - only constants of this module are put in
        ),
        plain=True,
        binary=True,
    )


_ENTRIES = _page()
_ENTRIES_OF_USER = _page("AND user_id = CAST(:user AS uuid)")
