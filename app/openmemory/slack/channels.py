"""Stores channels of Slack as conversations, and removes them. Each public method is one use case and one transaction.

A channel is a namespace `slack/NAME`. Its threads are conversations `slack/ID/TS`, and what stands alone is in one
conversation for each day, `slack/ID/2026-01-31` in UTC. The source `slack/ID` has no messages: its metadata say how
far the channel was loaded. A message has its `ts` as external id and as its time, so it is there once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Text, and_, bindparam, exc, func, literal_column, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.access.apps import refuse_if_paused, refuse_paused, refuse_unreadable
from openmemory.access.rate_limits import RateLimiter
from openmemory.access.readable import readable_by
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.config.sections import CaptureSettings
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database, Tx, violated
from openmemory.database.locks import lock
from openmemory.database.retry import retry_on_conflict
from openmemory.database.sql_files import load_sql
from openmemory.errors import Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.index.models import ItemKind
from openmemory.index.sync import outbox
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import validation
from openmemory.memories.state import State
from openmemory.serialization import exact_json
from openmemory.slack.schemas import (
    ChannelForgotten,
    ChannelPart,
    RefusedSlackMessage,
    SlackMessage,
    SlackSaved,
    StoredChannel,
    StoredChannels,
    moment_of,
)
from openmemory.sources import lifecycle, passages
from openmemory.sources.messages import CheckedMessage, MessageChecks
from openmemory.sources.models import Passage, Source, SourceKind
from openmemory.sources.schemas import NewMessage

_PREFIX = "slack/"
_TITLE = 80
_MESSAGES_OF_A_SAVE = 10
"""The number of messages that count as one save of `rates.saves`."""
_OUT_OF_THE_WAY = 1_000_000_000
"""The position of a message before its conversation is put in order."""


class _Storable(NamedTuple):
    """A message as it may be stored."""

    message: SlackMessage
    content: str
    speaker: str
    labels: list[str]


class _Changes(NamedTuple):
    """Messages to add, stored ones to move to another conversation, and those to erase."""

    added: list[_Storable]
    moved: list[dict[str, Any]]
    erased: list[UUID]


class SlackChannels:
    """Stores, lists and removes channels."""

    def __init__(
        self,
        database: Database,
        delivery: OutboxDelivery,
        *,
        limits: LimitSettings,
        capture: CaptureSettings,
        rates: RateLimiter,
    ) -> None:
        self._database = database
        self._delivery = delivery
        self._limits = limits
        self._capture = capture
        self._checks = MessageChecks(limits, capture)
        self._rates = rates

    async def save(self, caller: Caller, part: ChannelPart) -> SlackSaved:
        """Store a part of a channel. What is there already stays, edited messages are replaced, and those that are gone
        are erased. A message that cannot be stored is named in `refused`, and its earlier text stays.

        Raises:
            Forbidden: the app is paused, a rule hides the channel from it, or it is not the caller's to write in.
            Invalid: the name of the channel or a time is invalid.
        """
        namespace = self.namespace(part.channel)
        caller.may_write(namespace)
        part = replace(part, channel=namespace.removeprefix(_PREFIX))
        await self._rates.save(caller, max(1, -(-len(part.messages) // _MESSAGES_OF_A_SAVE)))
        totals = SlackSaved()
        checked = await asyncio.to_thread(self._check_messages, part, totals)
        result = await self._save(caller, namespace, part, checked)
        for field in ("added", "changed", "removed", "unchanged"):
            setattr(totals, field, getattr(result, field))
        self._delivery.wake()
        return totals

    async def record_message(self, caller: Caller, what: str, channel: str) -> None:
        """Log that a message or a file was sent to a channel of Slack."""
        async with self._database.transaction() as tx:
            await audit_log.record(tx, caller, AuditAction.SLACK_SEND, detail={"what": what, "channel": channel[:100]})

    async def refuse_if_paused(self, caller: Caller, doing: str = "load channels") -> None:
        """Require that the caller may write, and that its app is not paused.

        Raises:
            Forbidden: it may not, or the app is.
        """
        caller.may_write()
        async with self._database.transaction() as tx:
            await refuse_if_paused(tx, caller, doing)

    def namespace(self, channel: str) -> str:
        """The namespace of a channel.

        Raises:
            Invalid: the name cannot be one.
        """
        name = channel.strip().removeprefix("#").strip()
        if not name or "/" in name:
            raise Invalid("channel", "must be the name of a channel, such as general")
        return validation.name(_PREFIX + name, "channel", self._limits)

    def _check_messages(self, part: ChannelPart, totals: SlackSaved) -> list[_Storable]:
        checked = list[_Storable]()
        for message in {one.ts: one for one in part.messages}.values():
            new = NewMessage(message.text, message.author, message.ts, None, _metadata(part, message))
            result = self._checks.checked(new)
            if isinstance(result, CheckedMessage):
                checked.append(_Storable(message, result.message.content, result.message.role, result.labels))
                totals.redacted += bool(result.redacted)
            else:
                totals.refused.append(RefusedSlackMessage(message.ts, result.message))
        return checked

    @retry_on_conflict
    async def _save(
        self, caller: Caller, namespace: str, part: ChannelPart, checked: Sequence[_Storable]
    ) -> SlackSaved:
        result, prefix = SlackSaved(), f"{_PREFIX}{part.channel_id}"
        place = {
            "user_id": caller.user_id, "app_id": caller.app_id, "namespace": namespace, "prefix": f"{prefix}/",
        }  # fmt: skip
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "store channels")
            await lock(tx, f"slack {caller.user_id} {caller.app_id} {part.channel_id}")
            [id_] = (await _open_sources(tx, place, {prefix: part.channel})).values()
            # Everything of a channel has this app and this namespace, so that one rule decides.
            await refuse_unreadable(tx, caller, Source, id_)
            stored = await _read_stored(tx, place, part)
            timestamps, changes = {one.ts for one in part.messages}, _Changes([], [], [])
            roots = {one.message.thread_ts for one in checked} - {None}
            added, moved, erased = changes
            for one in checked:
                before, locator = stored.pop(one.message.ts, None), _locator(prefix, one.message)
                same = before is not None and (before.content, before.speaker) == (one.content, one.speaker)
                if before is None or not same:
                    added.append(one)
                    erased += [before.id] if before else []
                    result.changed += before is not None
                    result.added += before is None
                elif before.locator != locator:
                    moved.append({"id": before.id, "locator": locator, "ts": one.message.thread_ts})
                else:
                    result.unchanged += 1
            for ts, row in stored.items():
                if ts in timestamps:
                    continue  # it cannot be stored as it is now
                if row.gone or ts in part.gone:
                    erased.append(row.id)
                    result.removed += 1
                elif ts in roots and row.locator != f"{prefix}/{ts}":
                    moved.append({"id": row.id, "locator": f"{prefix}/{ts}", "ts": ts})
            result.changed += len(moved)
            await _write(tx, caller, place, part, changes)
            await _record_range(tx, id_, part)
        return result

    async def stored(self, caller: Caller) -> StoredChannels:
        """The channels whose messages the caller may read, by name."""
        caller.may_read()
        await self._rates.search(caller)
        id_ = func.split_part(Passage.thread_id, "/", 2)
        counted = (
            select(Passage.namespace, id_, func.count(), func.min(Passage.created_at), func.max(Passage.created_at))
            .where(readable_by(caller, Passage), func.starts_with(Passage.thread_id, _PREFIX))
            .group_by(Passage.namespace, id_)
        )
        states = select(Source.namespace, Source.locator, Source.metadata_).where(
            readable_by(caller, Source), _kind(), Source.locator.regexp_match(f"^{_PREFIX}[A-Z0-9]+$")
        )
        channels = dict[tuple[str, str], StoredChannel]()
        async with self._database.transaction() as tx:
            for namespace, locator, state in await tx.execute(states, caller.parameters):
                name, its = namespace.removeprefix(_PREFIX), locator.removeprefix(_PREFIX)
                channels[name, its] = StoredChannel(name, its, 0, None, None, state.get("since"), state.get("through"))
            for namespace, its, count, oldest, newest in await tx.execute(counted, caller.parameters):
                name = namespace.removeprefix(_PREFIX)
                channel = channels.setdefault((name, its), StoredChannel(name, its, 0, None, None, None, None))
                channel.messages, channel.oldest, channel.newest = count, oldest, newest
            await audit_log.record(tx, caller, AuditAction.THREAD_LIST, detail={"channels": len(channels)})
        return StoredChannels(caller.user, [channels[key] for key in sorted(channels)])

    async def speakers(self, caller: Caller, author: str) -> list[str]:
        """The names under which an author speaks in the channels that the caller may read: it may be a name or an id,
        in whatever case.

        Raises:
            Invalid: the author cannot be a name.
        """
        name = validation.name(author, "author", self._limits).removeprefix("@").lower()
        names = [Passage.metadata_[key].astext for key in ("slack_user_id", "slack_user_name", "slack_real_name")]
        mine = readable_by(caller, Passage), func.starts_with(Passage.thread_id, _PREFIX)
        its = [func.lower(one) == bindparam("author", type_=Text) for one in (Passage.speaker, *names)]
        query = select(Passage.speaker).where(*mine, its[0] | its[1] | its[2] | its[3]).distinct().limit(20)
        async with self._database.transaction() as tx:
            return [one for one in await tx.scalars(query, {**caller.parameters, "author": name}) if one]

    @retry_on_conflict
    async def forget(self, caller: Caller, channel: str) -> ChannelForgotten:
        """Permanently erase a channel with its messages and vectors. Only the user may.

        Raises:
            Forbidden: the caller is an app.
            NotFound: the user has no such channel.
        """
        caller.must_be_owner("forget channels", everywhere=False)
        namespace = self.namespace(channel)
        caller.may_write(namespace)
        which = and_(
            _kind(), readable_by(caller, Source, states=(State.ACTIVE, State.DELETED)),
            Source.namespace == namespace, func.starts_with(Source.locator, _PREFIX),
        )  # fmt: skip
        async with self._database.transaction() as tx:
            sources, erased = await lifecycle.erase(tx, caller, which)
            if not sources:
                raise NotFound("Channel not found", code="channel_not_found")
            await audit_log.record(tx, caller, AuditAction.THREAD_ERASE, erased)
        self._delivery.wake()
        return ChannelForgotten(len(erased))


async def _read_stored(tx: Tx, place: Mapping[str, Any], part: ChannelPart) -> dict[str, Any]:
    """The stored messages that this part may change, by `ts`. `gone`: it must have them, or Slack has not."""
    timestamps = {one.ts for one in part.messages} | set(part.gone)
    timestamps |= {one.thread_ts for one in part.messages if one.thread_ts is not None}
    whole = [each for messages in part.threads.values() for each in messages]
    values = {
        **place,
        "times": [moment_of(ts) for ts in timestamps],
        "after": None if part.after is None else moment_of(part.after),
        "until": None if part.until is None else moment_of(part.until),
        "threads": [f"{place['prefix']}{ts}" for ts in part.threads],
        "whole": whole,
    }
    return {row.ts: row for row in await tx.execute(_STORED, values)}


async def _write(tx: Tx, caller: Caller, place: dict[str, Any], part: ChannelPart, changes: _Changes) -> None:
    """Writes the changes of one part, and puts the conversations that they touch in order."""
    added, moved, erased = changes
    if not (added or moved or erased):
        return
    prefix = place["prefix"].removesuffix("/")
    titles = {_locator(prefix, one.message): _title(part.channel, one) for one in added if one.message.begins}
    targets = {_locator(prefix, one.message) for one in added} | {one["locator"] for one in moved}
    touched = set((await tx.scalars(_SOURCES_OF, {"ids": [*erased, *(one["id"] for one in moved)]})).all())
    opened = await _open_sources(tx, place, {one: titles.get(one) for one in targets}) if targets else {}
    await passages.erase(tx, Passage.id.in_(erased))
    for number, one in enumerate(moved):
        one |= {"source_id": opened[one["locator"]], "position": _OUT_OF_THE_WAY + number}
    ids = [one["id"] for one in moved]
    if moved:
        await tx.execute(_MOVE, {"rows": exact_json.for_jsonb([one | {"id": str(one["id"])} for one in moved])})
        await outbox.add_entries(tx, ItemKind.PASSAGE, ids)
    rows = [
        {
            "id": uuid4(), "source_id": opened[(locator := _locator(prefix, one.message))], "thread_id": locator,
            "position": _OUT_OF_THE_WAY + len(moved) + number, "external_id": one.message.ts, "speaker": one.speaker,
            "content": one.content, "metadata": _metadata(part, one.message),
            "created_at": moment_of(one.message.ts), "labels": one.labels,
        }
        for number, one in enumerate(added)
    ]  # fmt: skip
    if rows:
        audited = audit_log.parameters(caller, AuditAction.THREAD_ADD)
        await tx.execute(_ADD, {**place, "rows": exact_json.for_jsonb(rows), **audited})
    touched |= set(opened.values())
    for statement in (_NUMBER, _SETTLE, _LENGTH, _EMPTY):
        await tx.execute(statement, {"sources": list(touched)})
    if erased:
        await audit_log.record(tx, caller, AuditAction.THREAD_ERASE, list(erased))


async def _record_range(tx: Tx, id_: UUID, part: ChannelPart) -> None:
    """Remembers how far a channel was loaded: one range, which grows by what touches it."""
    if part.since is None or part.until is None:
        return
    metadata: dict[str, Any] = await tx.scalar(select(Source.metadata_).where(Source.id == id_)) or {}
    since, through = part.since, part.until
    if (first := metadata.get("since")) is not None and (last := metadata.get("through")) is not None:
        if moment_of(since) > moment_of(last) or moment_of(through) < moment_of(first):
            return
        since, through = min(since, first, key=moment_of), max(through, last, key=moment_of)
    values = {"since": since, "through": through}
    await tx.execute(update(Source).where(Source.id == id_).values(metadata_=metadata | values))


def _kind() -> ColumnElement[bool]:
    return Source.kind == literal_column(f"'{SourceKind.CONVERSATION.value}'")


def _metadata(part: ChannelPart, message: SlackMessage) -> dict[str, Any]:
    of_thread = {} if message.thread_ts is None else {"slack_thread_ts": message.thread_ts}
    return {
        "slack_channel_name": part.channel, "slack_channel_id": part.channel_id,
        "slack_real_name": message.real_name, "slack_user_name": message.user_name, "slack_user_id": message.user_id,
        "message_ts": message.ts, **of_thread,
    }  # fmt: skip


def _locator(prefix: str, message: SlackMessage) -> str:
    """The conversation of a message: its thread, or its day."""
    return f"{prefix}/{message.thread_ts or moment_of(message.ts).date().isoformat()}"


def _title(channel: str, one: _Storable) -> str:
    """The title of a conversation: the channel, with the day or the beginning of its first message."""
    if one.message.thread_ts is None:
        return f"{channel}, {moment_of(one.message.ts).date().isoformat()}"
    words = " ".join("".join(each if each.isprintable() else " " for each in one.content[:400]).split())
    return f"{channel}: {words[:_TITLE]}"


async def _open_sources(tx: Tx, place: Mapping[str, Any], titles: Mapping[str, str | None]) -> dict[str, UUID]:
    """The sources of these locators, made if needed, and locked until the transaction ends."""
    rows = [{"locator": locator, "title": title} for locator, title in titles.items()]
    try:
        sources = await tx.execute(_OPEN, {**place, "rows": exact_json.for_jsonb(rows)})
    except exc.IntegrityError as error:
        if violated(error).startswith("fk_"):
            raise NotFound("The user or app was erased a moment ago.", code="user_not_found") from error
        raise
    return {row.locator: row.id for row in sources}


_OPEN = text(
    """
    INSERT INTO sources (user_id, app_id, namespace, kind, locator, title, infer)
    SELECT :user_id, :app_id, :namespace, 'conversation', locator, title, false
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(locator text, title text) ORDER BY locator
    ON CONFLICT ON CONSTRAINT uq_sources_app_id_namespace_kind_locator
    DO UPDATE SET title = coalesce(excluded.title, sources.title), state = 'active', deleted_at = NULL
    RETURNING id, locator
    """
)
_STORED = text(load_sql(__name__, "stored")).bindparams(
    bindparam("whole", type_=ARRAY(Text)), bindparam("threads", type_=ARRAY(Text))
)
_SOURCES_OF = text("SELECT DISTINCT source_id FROM passages WHERE id = ANY(:ids)")
_MOVE = text(
    """
    UPDATE passages AS p SET source_id = r.source_id, thread_id = r.locator, position = r.position,
        revision = p.revision + 1,
        metadata = CASE WHEN r.ts IS NULL THEN p.metadata - 'slack_thread_ts'
            ELSE p.metadata || jsonb_build_object('slack_thread_ts', r.ts) END
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(id uuid, source_id uuid, locator text, position integer, ts text)
    WHERE p.id = r.id
    """
)
_ADD_ENTRIES = outbox.ADD_ENTRIES.format(kind="'passage'", id="new.id", user="new.user_id", source="FROM new")
_ADD = text(load_sql(__name__, "add", entries=_ADD_ENTRIES, audited=audit_log.OF_NEW))
# The messages of a conversation are numbered by their times. Positions are unique, so they move in two steps.
_NUMBER = text(
    """
    UPDATE passages AS p SET position = -n.number
    FROM (
        SELECT id, row_number() OVER (PARTITION BY source_id ORDER BY created_at, id) AS number
        FROM passages WHERE source_id = ANY(:sources)
    ) AS n
    WHERE p.id = n.id AND p.position <> n.number
    """
)
_SETTLE = text("UPDATE passages SET position = -position WHERE source_id = ANY(:sources) AND position < 0")
_LENGTH = text(
    """
    UPDATE sources AS s SET length = n.length, updated_at = n.last
    FROM (
        SELECT source_id, count(*) AS length, max(created_at) AS last
        FROM passages WHERE source_id = ANY(:sources) GROUP BY source_id
    ) AS n
    WHERE s.id = n.source_id
    """
)
_EMPTY = text(
    """
    DELETE FROM sources AS s WHERE s.id = ANY(:sources)
        AND NOT EXISTS (SELECT FROM passages AS p WHERE p.source_id = s.id)
    """
)
