"""Writes the passages of a source. Passages that are equal to stored ones keep their rows and their vectors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, and_, delete, exc, select, text, true, update
from sqlalchemy.dialects.postgresql import insert as pg_insert

from openmemory.access.apps import refuse_unreadable
from openmemory.access.readable import readable_by
from openmemory.database.engine import Tx, violated
from openmemory.database.locks import lock
from openmemory.database.sql_files import load_sql
from openmemory.errors import NotFound
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Scope
from openmemory.index.models import ItemKind
from openmemory.index.sync import outbox
from openmemory.memories.state import State
from openmemory.serialization import exact_json
from openmemory.sources import passages
from openmemory.sources.models import Passage, PassageKind, Source, SourceKind


class NewPassage(NamedTuple):
    """A passage to be stored."""

    content: str
    first_line: int | None
    last_line: int | None
    heading: str | None
    labels: list[str]
    symbols: list[str]


class OpenedSource(NamedTuple):
    """A source that this transaction has locked. `hash`: None if it is new."""

    id: UUID
    hash: str | None
    state: State
    user_id: UUID
    app_id: UUID
    namespace: str
    length: int


async def opened(tx: Tx, caller: Caller, namespace: str, kind: SourceKind, locator: str) -> OpenedSource:
    """The app's source of this locator, locked until the transaction ends. It is made if needed."""
    values = {
        "user_id": caller.user_id, "app_id": caller.app_id, "namespace": namespace, "kind": kind, "locator": locator,
        "infer": False,
    }  # fmt: skip
    insert = pg_insert(Source).values(values)
    # Changes nothing, but locks the row.
    insert = insert.on_conflict_do_update(
        constraint="uq_sources_app_id_namespace_kind_locator", set_={"length": Source.length}
    )
    try:
        row = (await tx.execute(insert.returning(Source.id, Source.hash, Source.state, Source.length))).one()
    except exc.IntegrityError as error:
        if violated(error).startswith("fk_"):
            raise NotFound("The user or app was erased a moment ago.", code="user_not_found") from error
        raise
    return OpenedSource(row.id, row.hash, row.state, caller.user_id, caller.app_id, namespace, row.length)


async def opened_in_project(
    tx: Tx, caller: Caller, namespace: str, kind: SourceKind, locator: str, *which: ColumnElement[bool]
) -> OpenedSource:
    """The source of this locator that counts for the caller in a project, locked until the transaction ends.

    It is the app's own. Otherwise it is another app's: of those that the caller may read and that are one of `which`,
    the one that changed last. If there is none, the app's own is made. A source that a rule hides from the app is
    passed over, because a refusal would reveal it.
    """
    await lock(tx, f"{kind} {caller.user_id} {namespace} {locator}")
    if Scope.READ not in caller.principal.scopes:  # it may not learn what others have
        return await opened(tx, caller, namespace, kind, locator)
    in_project = Source.user_id == caller.user_id, Source.namespace == namespace, Source.kind == kind.value
    some = select(Source.id, Source.hash, Source.state, Source.app_id, Source.length).where(
        *in_project, Source.locator == locator, readable_by(caller, Source), *which
    )
    first = some.order_by(*counting(caller)).limit(1).with_for_update()
    row = (await tx.execute(first, caller.parameters)).one_or_none()
    own = await _own(tx, caller, namespace, kind, locator, *which)
    # The app may not read its own source, or that is none of `which`. The caller refuses it then.
    refused = own is not None and (own.state is not State.DELETED or not own.meant)
    if row is None or row.app_id == caller.app_id or refused:
        return await opened(tx, caller, namespace, kind, locator)
    return OpenedSource(row.id, row.hash, row.state, caller.user_id, row.app_id, namespace, row.length)


async def _own(
    tx: Tx, caller: Caller, namespace: str, kind: SourceKind, locator: str, *which: ColumnElement[bool]
) -> Any:
    """The id and the state of the app's own source of this locator, and if it is one of `which`; None if it has
    none."""
    own = Source.app_id == caller.app_id, Source.namespace == namespace, Source.kind == kind.value
    query = select(Source.id, Source.state, and_(true(), *which).label("meant"))
    return (await tx.execute(query.where(*own, Source.locator == locator))).one_or_none()


def counting(caller: Caller) -> tuple[Any, ...]:
    """The order of the sources of one locator: the app's own, and then the one that changed last."""
    return Source.app_id != caller.app_id, Source.updated_at.desc(), Source.id


async def take_over(tx: Tx, caller: Caller, source: OpenedSource, kind: SourceKind, locator: str) -> OpenedSource:
    """Gives a source of another app to the calling app, which replaces its text. A text belongs to the app that wrote
    it. The app's own deleted source of this locator is erased.

    Raises:
        Forbidden: a rule hides from the app what it would store.
    """
    if source.app_id == caller.app_id:
        return source
    if (deleted := await _own(tx, caller, source.namespace, kind, locator)) is not None:
        await refuse_unreadable(tx, caller, Source, deleted.id)
        await passages.erase(tx, Passage.source_id == deleted.id)
        await tx.execute(delete(Source).where(Source.id == deleted.id))
    await tx.execute(update(Source).where(Source.id == source.id).values(app_id=caller.app_id))
    moved = update(Passage).where(Passage.source_id == source.id)
    moved = moved.values(app_id=caller.app_id, revision=Passage.revision + 1)
    await outbox.add_entries(tx, ItemKind.PASSAGE, (await tx.scalars(moved.returning(Passage.id))).all())
    await refuse_unreadable(tx, caller, Source, source.id)
    return source._replace(app_id=caller.app_id)


async def replace_passages(
    tx: Tx, source: OpenedSource, kind: PassageKind, new: Sequence[NewPassage], columns: dict[str, Any]
) -> int:
    """Make the passages of a source these. Returns the number of new ones. `columns`: new values of the source,
    and the thread id of the passages."""
    ids_by_text = defaultdict[tuple[str, str | None], list[UUID]](list)
    stored = select(Passage.id, Passage.content, Passage.heading)
    for id_, content, heading in await tx.execute(
        stored.where(Passage.source_id == source.id).order_by(Passage.position.desc())
    ):
        ids_by_text[content, heading].append(id_)
    moved, added = list[dict[str, Any]](), list[dict[str, Any]]()
    for position, passage in enumerate(new, 1):
        place = {"position": position, "first_line": passage.first_line, "last_line": passage.last_line}
        if same := ids_by_text[passage.content, passage.heading]:
            moved.append(place | {"id": same.pop()})
        else:
            fields = {
                "content": passage.content, "heading": passage.heading, "labels": passage.labels,
                "symbols": passage.symbols,
            }  # fmt: skip
            added.append(place | fields | {"id": uuid4()})
    await passages.erase(tx, Passage.id.in_([id_ for ids in ids_by_text.values() for id_ in ids]))
    # Positions are unique, so that they are first moved out of the way.
    await tx.execute(_MOVE, {"source": source.id, "rows": exact_json.for_jsonb(moved)})
    await tx.execute(_SETTLE, {"source": source.id})
    values = {
        "source_id": source.id, "user_id": source.user_id, "app_id": source.app_id, "namespace": source.namespace,
        "kind": kind.value, "rows": exact_json.for_jsonb(added), "length": len(new),
    }  # fmt: skip
    defaults = dict.fromkeys(("media_type", "title", "object_key", "thread_id"))
    await tx.execute(_ADD, defaults | values | columns)
    return len(added)


_MOVE = text(
    """
    UPDATE passages AS p SET position = -r.position, first_line = r.first_line, last_line = r.last_line
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(id uuid, position integer, first_line integer, last_line integer)
    WHERE p.id = r.id AND p.source_id = :source
    """
)
_SETTLE = text("UPDATE passages SET position = -position WHERE source_id = :source AND position < 0")
_ADD_ENTRIES = outbox.ADD_ENTRIES.format(kind="'passage'", id="new.id", user="new.user_id", source="FROM new")
_ADD = text(load_sql(__name__, "add", entries=_ADD_ENTRIES))
