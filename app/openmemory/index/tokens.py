"""Stored token vectors: stored beside those of the chunks, read for the best hits of a search, added where missing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from sqlalchemy import TextClause, Uuid, text

from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Tx
from openmemory.embeddings.port import CODE, Codes
from openmemory.index.models import ItemKind
from openmemory.index.sync.entries import array_of

PAGE = 500
"""The number of stored vectors that are checked for tokens at once, in some milliseconds."""


class StoredTokens(NamedTuple):
    """The tokens of several items, concatenated: the item ids, and the number of tokens of each, which is never 0."""

    ids: list[UUID]
    counts: list[int]
    tokens: Codes

    def by_id(self) -> dict[UUID, Codes]:
        """The tokens of each item."""
        ends = accumulate(self.counts)
        return {
            id_: self.tokens[end - count : end] for id_, count, end in zip(self.ids, self.counts, ends, strict=True)
        }

    def joined(self, more: StoredTokens) -> StoredTokens:
        """Joins both."""
        if not self.ids:
            return more
        tokens = np.concatenate([self.tokens, more.tokens])
        return StoredTokens([*self.ids, *more.ids], [*self.counts, *more.counts], tokens)


NONE = StoredTokens([], [], np.empty((0, CODE), dtype=np.uint8))


class VectorKey(NamedTuple):
    """The key of a stored vector, in the order of the scan."""

    kind: str = ""
    id: UUID = UUID(int=0)
    model: str = ""


class VectorPage(NamedTuple):
    """The end of a page of stored vectors, and its keys without tokens."""

    last: VectorKey
    lacking: list[VectorKey]


async def keep(tx: Tx, kind: ItemKind, model: str, hashes: Sequence[tuple[UUID, str]], tokens: Sequence[Codes]) -> int:
    """Stores the tokens of items with the hashes of their texts, if vectors of these texts are stored. Returns the
    number of stored items."""
    stored = await tx.execute(
        _KEEP,
        {
            "kind": kind.value,
            "model": model,
            "ids": [id_ for id_, _ in hashes],
            "hashes": [text_hash for _, text_hash in hashes],
            "tokens": [one.tobytes() for one in tokens],
        },
    )
    return stored.rowcount


async def of_items(tx: Tx, kind: ItemKind, user: UUID, model: str, ids: Sequence[UUID]) -> StoredTokens:
    """The tokens of those of the user's items that have some for their current text."""
    [(heads, tokens)] = await _of_items(kind).rows(tx, wanted(user, model, ids))
    return unpacked(ids, heads, tokens)


def wanted(user: UUID, model: str, ids: Sequence[UUID]) -> dict[str, Any]:
    """The parameters of `packed`."""
    return {"tokens_of": array_of(ids), "tokens_user": user, "tokens_model": model}


def unpacked(ids: Sequence[UUID], heads: bytes | None, tokens: bytes | None) -> StoredTokens:
    """Unpacks the result of `packed` for these ids."""
    if heads is None or tokens is None:
        return NONE
    found = np.frombuffer(heads, dtype=">i4").reshape(-1, 2)
    return StoredTokens(
        [ids[place - 1] for place in found[:, 0].tolist()],
        (found[:, 1] // CODE).tolist(),
        np.frombuffer(tokens, dtype=np.uint8).reshape(-1, CODE),
    )


async def page(tx: Tx, model: str, after: VectorKey) -> VectorPage | None:
    """The page of stored vectors after this one, with those of this model that lack tokens. None at the end."""
    values = {"model": model, "after_kind": after.kind, "after_id": after.id, "after_model": after.model}
    rows = await _PAGE.rows(tx, values)
    if not rows:
        return None
    last = VectorKey(rows[-1].kind, rows[-1].id, rows[-1].model)
    return VectorPage(last, [VectorKey(row.kind, row.id, row.model) for row in rows if row.lacking])


# The row of the vectors is locked: an item that is erased meanwhile must leave nothing behind, and an item with a new
# text must not get older tokens.
_KEEP = text(
    """
    INSERT INTO embedding_tokens (kind, id, model, text_hash, tokens)
    SELECT CAST(:kind AS text), t.id, CAST(:model AS text), t.hash, t.tokens
    FROM unnest(CAST(:ids AS uuid[]), CAST(:hashes AS text[]), CAST(:tokens AS bytea[])) AS t(id, hash, tokens)
    WHERE EXISTS (
        SELECT FROM embeddings AS e
        WHERE e.kind = CAST(:kind AS text) AND e.id = t.id AND e.model = CAST(:model AS text) AND e.text_hash = t.hash
        FOR SHARE)
    ON CONFLICT (kind, id, model) DO UPDATE SET text_hash = excluded.text_hash, tokens = excluded.tokens
    """
)


# One row with all tokens in one value, as vectors are read (`index.sync.writer`), and another value with the place and
# size of each. The aggregates see the rows in the same, arbitrary order. Each is looked up separately (OFFSET 0 ensures
# that): before the tables were analysed, the planner preferred full scans.
@cache
def packed(kind: ItemKind) -> TextClause:
    """The tokens of those of the user's items that have some for their current text, for `unpacked`."""
    return bound(
        f"""
    SELECT string_agg(int4send(CAST(f.place AS int)) || int4send(length(f.tokens)), '') AS heads,
        string_agg(f.tokens, '') AS tokens
    FROM (
        SELECT wanted.place, t.tokens
        FROM unnest(CAST(:tokens_of AS uuid[])) WITH ORDINALITY AS wanted(id, place)
        CROSS JOIN LATERAL (
            SELECT m.hash FROM {kind.table} AS m WHERE m.id = wanted.id AND m.user_id = :tokens_user OFFSET 0) AS m
        CROSS JOIN LATERAL (
            SELECT t.tokens FROM embedding_tokens AS t
            WHERE t.kind = '{kind.value}' AND t.id = wanted.id AND t.model = :tokens_model AND t.text_hash = m.hash
                AND length(t.tokens) > 0 OFFSET 0) AS t
    ) AS f
    """,  # noqa: S608 - only names are put in
        {"tokens_user": Uuid()},
    )


@cache
def _of_items(kind: ItemKind) -> CompiledStatement:
    return CompiledStatement(packed(kind), plain=True, binary=True)


# A scan along both primary keys, which contain all requested columns.
_PAGE = CompiledStatement(
    bound(
        f"""
        SELECT e.kind, e.id, e.model, e.model = :model AND t.there IS NULL AS lacking
        FROM (
            SELECT kind, id, model FROM embeddings
            WHERE (kind, id, model) > (:after_kind, :after_id, :after_model) ORDER BY kind, id, model LIMIT {PAGE}
        ) AS e
        LEFT JOIN LATERAL (
            SELECT true AS there FROM embedding_tokens AS t
            WHERE t.kind = e.kind AND t.id = e.id AND t.model = e.model OFFSET 0) AS t ON true
        ORDER BY e.kind, e.id, e.model
        """,  # noqa: S608 - only a constant is put in
        {"after_id": Uuid()},
    )
)
