"""The only writes of memories. Row, revision, status history, outbox entry and access log are written together.

Each change is one statement for any number of memories.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import (
    ColumnElement,
    Text,
    Uuid,
    and_,
    bindparam,
    case,
    delete,
    exc,
    exists,
    func,
    insert,
    literal,
    literal_column,
    null,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.orm import aliased

from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.database.engine import Tx, violated
from openmemory.database.sql_files import load_sql
from openmemory.errors import ConflictError, NotFound
from openmemory.identity.caller import Caller
from openmemory.index.models import ItemKind
from openmemory.index.sync import outbox
from openmemory.memories import repository, state_machine
from openmemory.memories.fields import ADDED, names_of, typed
from openmemory.memories.models import (
    LAST_REVISION,
    STATE,
    Category,
    Memory,
    MemoryCategory,
    MemoryRevision,
    MemoryStatusHistory,
)
from openmemory.memories.schemas import Amendment, CheckedMemory, Event, Expiry, MemoryAdded, MemoryUpdate, ReplacedText
from openmemory.memories.state import State
from openmemory.serialization import exact_json
from openmemory.serialization.normal_form import normal_form

_ADD_ENTRIES = outbox.ADD_ENTRIES.format(kind="'memory'", id="new.id", user="new.user_id", source="FROM new")

_ADD = text(
    load_sql(
        __name__, "add", columns=names_of(ADDED), typed_columns=typed(ADDED), entries=_ADD_ENTRIES,
        audited=audit_log.OF_NEW,
    )
)  # fmt: skip

_EXACT_DUPLICATES = text(
    """
    SELECT m.namespace, m.app_id, m.hash, m.id, coalesce(least(m.expires_at, m.valid_until) <= now(), false) AS expired
    FROM unnest(CAST(:namespaces AS text[]), CAST(:apps AS uuid[]), CAST(:hashes AS text[]))
        AS t(namespace, app_id, hash)
    JOIN memories AS m ON m.user_id = :user_id AND m.namespace = t.namespace AND m.app_id = t.app_id
        AND m.hash = t.hash AND m.state = 'active'
    """
)


_EXPIRED = literal("expired", Text())
"""The reason that the status history records for an expired memory."""


def text_hash(content: str) -> str:
    """MD5 of the text's normal form in hexadecimal, of most texts the same as mem0's. It identifies equal texts and has
    no security purpose."""
    return hashlib.md5(normal_form(content).encode(), usedforsecurity=False).hexdigest()


async def add(tx: Tx, caller: Caller, news: Sequence[CheckedMemory], apps: dict[str, UUID]) -> list[MemoryAdded]:
    """Store texts verbatim, in order. For an exact duplicate of an active memory, return that memory (NONE).

    `apps` maps the app names in `news` to their ids.

    Raises:
        NotFound: the user or app was erased meanwhile.
    """
    categories = await category_ids(tx, {name for new in news for name in new.categories})
    now = datetime.now(UTC)
    rows = [_row(new, apps[new.app] if new.app else caller.app_id, now) for new in news]
    assignments = [
        {"memory_id": row["id"], "category_id": categories[name]}
        for row, new in zip(rows, news, strict=True)
        for name in sorted(set(new.categories))
    ]
    stored_ids = await _insert(tx, caller, rows, assignments)
    present: dict[tuple[str, UUID, str], UUID] = {}
    missing = [row for row in rows if row["id"] not in stored_ids]
    while missing:
        present, expired = await _exact_duplicates(tx, caller, missing)
        if not expired and all(_identity(row) in present for row in missing):
            break
        # An expired memory, or one that is no longer valid, is invisible and must not block its text from being stored
        # again. An exact duplicate that is gone was archived by a concurrent transaction.
        await change_state(tx, caller, Memory.id == func.any(expired), State.ARCHIVED)
        stored_ids |= await _insert(tx, caller, missing, assignments)
        missing = [row for row in rows if row["id"] not in stored_ids]
    return [
        MemoryAdded(id=row["id"], memory=row["content"], event=Event.ADD)
        if row["id"] in stored_ids
        else MemoryAdded(id=present[_identity(row)], memory=row["content"], event=Event.NONE)
        for row in rows
    ]


_SAME = ("metadata", "namespace", "thread_id", "kind", "key", "importance", "valid_from", "valid_until", "labels")


def _row(new: CheckedMemory, app_id: UUID, now: datetime) -> dict[str, Any]:
    same = {name: getattr(new, name) for name in _SAME}
    return same | {
        "id": uuid4(),
        "app_id": app_id,
        "content": new.text,
        "hash": text_hash(new.text),
        "expires_at": new.expires_at if new.ttl_days is None else now + timedelta(days=new.ttl_days),
        "created_at": new.created_at or now,
    }


def _identity(row: dict[str, Any]) -> tuple[str, UUID, str]:
    return row["namespace"], row["app_id"], row["hash"]


def _order(row: dict[str, Any]) -> tuple[str, str, str]:
    """The sort key of inserts. Transactions that add the same texts in the same order cannot deadlock."""
    return row["namespace"], str(row["app_id"]), row["hash"]


async def _insert(tx: Tx, caller: Caller, rows: list[dict[str, Any]], assignments: list[dict[str, Any]]) -> set[UUID]:
    try:
        result = await tx.execute(
            _ADD,
            {
                "user_id": caller.user_id,
                "rows": exact_json.for_jsonb(sorted(rows, key=_order)),
                "assignments": exact_json.for_jsonb(assignments),
                **audit_log.parameters(caller, AuditAction.MEMORY_ADD),
            },
        )
    except exc.IntegrityError as error:
        if violated(error).startswith("fk_"):
            raise NotFound("The user or app was erased a moment ago.", code="user_not_found") from error
        raise
    return {row.id for row in result}


async def _exact_duplicates(
    tx: Tx, caller: Caller, rows: list[dict[str, Any]]
) -> tuple[dict[tuple[str, UUID, str], UUID], list[UUID]]:
    """The active memories with the texts of `rows`, and the ids of those that have expired."""
    result = await tx.execute(
        _EXACT_DUPLICATES,
        {
            "user_id": caller.user_id,
            "namespaces": [row["namespace"] for row in rows],
            "apps": [row["app_id"] for row in rows],
            "hashes": [row["hash"] for row in rows],
        },
    )
    duplicates = result.all()
    return {(each.namespace, each.app_id, each.hash): each.id for each in duplicates}, [
        each.id for each in duplicates if each.expired
    ]


_ATTEMPTS = 3
"""The attempts to find a category that another transaction removes between its two statements."""


async def category_ids(tx: Tx, names: set[str]) -> dict[str, UUID]:
    """The ids of the categories with these names. Creates missing categories."""
    if not names:
        return {}
    # Locked as a foreign key locks them, so that no erasure of a user removes them as unused.
    query = select(Category.name, Category.id).where(Category.name == func.any(sorted(names)))
    query = query.with_for_update(read=True, key_share=True)
    ids = dict[str, UUID]()
    for _ in range(_ATTEMPTS):
        rows = [{"name": name} for name in sorted(names - ids.keys())]
        await tx.execute(pg_insert(Category).on_conflict_do_nothing(), rows)
        ids = {row.name: row.id for row in await tx.execute(query)}
        if len(ids) == len(names):
            return ids
    raise ConflictError("A category was removed at this moment. Try again.", code="category_removed")


Flagging = Callable[[str, dict[str, Any]], tuple[str, ...]]
"""Returns the labels of a memory from its text and metadata."""


async def update_text(
    tx: Tx,
    caller: Caller,
    which: ColumnElement[bool],
    change: MemoryUpdate | Amendment,
    labels: Flagging,
    *,
    confirms: bool = False,
    changed_at: datetime | None = None,
    restored_revision: int | None = None,
) -> ReplacedText:
    """Write a new revision of the one memory that `which` selects. Unchanged content writes nothing.

    Returns the memory as it was, read under the lock that the update holds.

    `confirms`: the user themself named the categories, which confirms those that were assigned automatically.
    `changed_at`: the time of the new revision; None: now.
    `restored_revision`: the text is that of this revision, and so belongs to the app that wrote it then.

    Raises:
        NotFound: there is no such memory, or it is not the caller's.
        ConflictError: another active memory of the same app and namespace has this text already, or the memory has
            another revision than the change expects.
    """
    columns = (
        Memory.id, Memory.content, Memory.metadata_, Memory.revision, Memory.namespace, Memory.app_id,
        Memory.expires_at, Memory.labels, Memory.kind,
    )  # fmt: skip
    # Logging a read takes a key-share lock on the row. This update does not change the key, so it need not wait.
    query = select(*columns).where(which).with_for_update(key_share=True)
    current = (await tx.execute(query, caller.parameters)).one_or_none()
    if current is None:
        raise repository.no_memory()
    if not isinstance(change, MemoryUpdate):
        change = change(current.content, dict(current.metadata))
    if change.expected_revision not in (None, current.revision):
        raise ConflictError(
            f"The memory was changed since: it has revision {current.revision}, not {change.expected_revision}.",
            code="memory_changed",
            hint="Read it again, and make the change from what it says now.",
        )
    content = current.content if change.text is None else change.text
    metadata = current.metadata if change.metadata is None else change.metadata
    refiled, categories = False, None
    if change.categories is not None:
        refiled, categories = await _replace_categories(tx, current.id, set(change.categories), confirms=confirms)
    replaced_text = ReplacedText(current.content, current.labels, current.revision, categories)
    expires_at = current.expires_at if change.expiry is None else end_of(change.expiry)
    kind = change.kind or current.kind
    same = (content, metadata, expires_at, kind) == (
        current.content, current.metadata, current.expires_at, current.kind,
    )  # fmt: skip
    if same and not refiled:
        return replaced_text
    if current.revision == LAST_REVISION:
        raise ConflictError(
            f"The memory has {LAST_REVISION:,} revisions, the last that there can be.",
            code="revisions_used_up",
            hint="Add the text as a memory of its own.",
        )
    values = {
        "content": content, "hash": text_hash(content), "metadata_": metadata,
        "revision": current.revision + 1, "updated_at": func.now(), "labels": list(labels(content, metadata)),
        "expires_at": expires_at, "kind": kind,
    }  # fmt: skip
    values |= await _writers(tx, caller, current, values, restored_revision)
    duplicate = and_(
        Memory.user_id == caller.user_id, Memory.namespace == current.namespace, Memory.app_id == current.app_id,
        Memory.hash == values["hash"], Memory.id != current.id,
    )  # fmt: skip
    await _archive_expired(tx, caller, duplicate)
    try:
        await tx.execute(update(Memory).where(Memory.id == current.id).values(values))
    except exc.IntegrityError as error:
        raise duplicate_conflict(error) from error
    await tx.execute(
        insert(MemoryRevision).values(
            memory_id=current.id, revision=current.revision + 1, old_text=current.content, new_text=content,
            metadata_=metadata, changed_by=caller.user_id, app_id=caller.app_id,
            changed_at=func.now() if changed_at is None else changed_at,
        )
    )  # fmt: skip
    await outbox.add_entries(tx, ItemKind.MEMORY, [current.id])
    return replaced_text


async def _writers(
    tx: Tx, caller: Caller, current: Any, values: dict[str, Any], restored_revision: int | None
) -> dict[str, Any]:
    """The columns that name the apps whose text and metadata a memory holds after an update to these values."""
    columns: dict[str, Any] = {}
    if values["content"] != current.content:
        writer: UUID | None = caller.app_id
        if restored_revision is not None:
            writer = await tx.scalar(select(repository.author(literal(current.id), literal(restored_revision))))
        other = None if writer == current.app_id else writer
        by_user = caller.owner and writer == caller.app_id
        columns |= {"text_app_id": other, "text_by_user": other is not None and by_user}
    if values["metadata_"] != current.metadata:
        columns["metadata_app_id"] = None if caller.app_id == current.app_id else caller.app_id
    return columns


def end_of(expiry: Expiry) -> datetime | None:
    """The time of an expiry; None for never."""
    return expiry.at if expiry.ttl_days is None else datetime.now(UTC) + timedelta(days=expiry.ttl_days)


_LEAVE_ALONE = text(
    """
    INSERT INTO pending_categorizations (memory_id, due_at) VALUES (:id, 'infinity')
    ON CONFLICT (memory_id) DO UPDATE SET due_at = 'infinity'
    """
).bindparams(bindparam("id", type_=Uuid))


async def _replace_categories(tx: Tx, memory_id: UUID, names: set[str], *, confirms: bool) -> tuple[bool, list[str]]:
    """Assign exactly these categories to a memory. Returns True if that changed anything, and the names before.

    An automatic assignment stays automatic if a client names it again, unless the user `confirms` it.
    """
    requested_ids = set((await category_ids(tx, names)).values())
    query = select(Category.id, Category.name).join(MemoryCategory).where(MemoryCategory.memory_id == memory_id)
    before = {row.id: row.name for row in await tx.execute(query)}
    present_ids = before.keys()
    if removed_ids := present_ids - requested_ids:
        await tx.execute(
            delete(MemoryCategory).where(
                MemoryCategory.memory_id == memory_id, MemoryCategory.category_id == func.any(list(removed_ids))
            )
        )
    if new_ids := requested_ids - present_ids:
        assignments = [{"memory_id": memory_id, "category_id": id_} for id_ in new_ids]
        await tx.execute(insert(MemoryCategory), assignments)
    confirmed_count = 0
    if confirms:
        automatic = and_(MemoryCategory.memory_id == memory_id, MemoryCategory.automatic)
        confirmed_count = (await tx.execute(update(MemoryCategory).where(automatic).values(automatic=False))).rowcount
    if confirms or requested_ids != present_ids:
        await tx.execute(_LEAVE_ALONE, {"id": memory_id})
    return requested_ids != present_ids or confirmed_count > 0, sorted(before.values())


async def change_state(
    tx: Tx,
    caller: Caller,
    which: ColumnElement[bool],
    target: State,
    values: Mapping[str, Any] | None = None,
) -> list[tuple[UUID, State]]:
    """Move every memory that `which` selects, and that may become `target`, to that state.

    An expired memory that becomes active loses its expiry, even if it was still active. `which` may bind the caller's
    parameters and `values`.

    Returns the id and the previous state of each changed memory. Memories that already have the state, or whose state
    does not allow the transition, are left unchanged; the caller distinguishes them.

    Raises:
        ConflictError: a memory would become active while another active memory has the same text.
    """
    bound = {**caller.parameters, **(values or {})}
    at: ColumnElement[datetime] = func.now()
    if target is State.ACTIVE:
        returning = aliased(Memory)
        same = and_(
            Memory.user_id == returning.user_id, Memory.namespace == returning.namespace,
            Memory.app_id == returning.app_id, Memory.hash == returning.hash, Memory.id != returning.id,
        )  # fmt: skip
        ids = list(await tx.scalars(select(Memory.id).where(which), bound))
        has_expired = and_(Memory.id == func.any(ids), Memory.state == State.ACTIVE, Memory.expires_at <= func.now())
        if await change_state(tx, caller, has_expired, State.ARCHIVED):
            at = func.clock_timestamp()  # later than the archiving above
        await _archive_expired(tx, caller, exists().where(returning.id == func.any(ids), same))
    selection = (
        select(Memory.id, Memory.state, (Memory.expires_at <= func.now()).label("expired"))
        .where(which, or_(*(Memory.state == state for state in state_machine.sources(target))))
        .order_by(Memory.id)
        .with_for_update(key_share=True)
        .cte("chosen")
    )
    stamps: dict[str, Any] = {
        "state": target,
        "updated_at": func.now(),
        "archived_at": func.now() if target is State.ARCHIVED else None,
        "deleted_at": func.now() if target is State.DELETED else None,
    }
    if target is State.ACTIVE:
        # A superseded memory that is restored becomes valid again.
        over = and_(Memory.superseded_by.is_not(None), Memory.valid_until <= func.now())
        stamps |= {
            "valid_until": case((over, null()), else_=Memory.valid_until),
            "superseded_by": case((over, null()), else_=Memory.superseded_by),
            "expires_at": case((Memory.expires_at <= func.now(), null()), else_=Memory.expires_at),
        }
    updates = (
        update(Memory)
        .where(Memory.id == selection.c.id)
        .values(stamps)
        .returning(Memory.id, selection.c.state.label("old_state"), selection.c.expired)
        .cte("changed")
    )
    history = (
        insert(MemoryStatusHistory)
        .from_select(
            ["memory_id", "changed_by", "app_id", "old_state", "new_state", "reason", "changed_at"],
            select(
                updates.c.id,
                literal(caller.user_id),
                # Null for the user themself: no app may restore what the user has archived.
                literal(None if caller.owner else caller.app_id, Uuid()),
                updates.c.old_state,
                literal(target, STATE),
                case((updates.c.expired, _EXPIRED), else_=null()) if target is State.ARCHIVED else null(),
                at,
            ),
        )
        .cte("history")
    )
    statement = select(updates.c.id, updates.c.old_state).add_cte(history)
    try:
        rows = (await tx.execute(statement, bound)).all()
    except exc.IntegrityError as error:
        raise duplicate_conflict(error) from error
    if rows:
        await outbox.add_entries(tx, ItemKind.MEMORY, [row.id for row in rows])
    return [(row.id, row.old_state) for row in rows]


async def expire(tx: Tx, caller: Caller, which: ColumnElement[bool], values: Mapping[str, Any]) -> list[UUID]:
    """Expire the active memories that `which` selects, with `values` bound. Returns their ids.

    They are archived, and their history records the reason.
    """
    statement = update(Memory).where(which).values(expires_at=func.now()).returning(Memory.id)
    ids = list(await tx.scalars(statement, {**caller.parameters, **values}))
    return [id_ for id_, _ in await change_state(tx, caller, Memory.id == func.any(ids), State.ARCHIVED)]


async def _archive_expired(tx: Tx, caller: Caller, which: ColumnElement[bool]) -> None:
    """Archive memories that have expired or are no longer valid. They are invisible, so they must not block their text
    from being stored again."""
    over = func.least(Memory.expires_at, Memory.valid_until) <= func.now()
    # A constant, so that every plan can use the partial index of active texts.
    has_expired = and_(which, Memory.state == literal_column("'active'"), over)
    await change_state(tx, caller, has_expired, State.ARCHIVED)


def duplicate_conflict(error: exc.IntegrityError) -> Exception:
    """The error to raise for a violated constraint: a ConflictError if an active memory has the text already."""
    if violated(error) == "uq_memories_active_text":
        return ConflictError(
            "Another active memory of the same app and namespace says exactly this.",
            code="duplicate_memory",
            hint="Delete or archive one of the two.",
        )
    return error
