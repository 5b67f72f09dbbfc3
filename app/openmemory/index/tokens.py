"""Stored tokens: kept beside the vectors of chunks, added where they are missing. Searches read those of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Uuid, text

from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql
from openmemory.embeddings.port import Codes
from openmemory.index.models import ItemKind

PAGE = 500
"""The number of stored vectors that are checked for tokens at once, in some milliseconds."""


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


_PAGE = CompiledStatement(
    bound(
        load_sql(__name__, "page", page=str(PAGE)),
        {"after_id": Uuid()},
    )
)
