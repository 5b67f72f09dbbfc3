"""Statements on the open sessions and the messages between processes. Each is its own transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import text

from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql

CHANNEL = "openmemory_relay_"
"""The channel that a process listens on, without its number. An empty payload announces messages to take; `1:202` says
that the session answered message 1 with the HTTP status 202."""


class SessionNames(NamedTuple):
    """The user and app of a session, from its URL. None means the configured default."""

    user: str | None
    app: str | None


class SessionOwner(NamedTuple):
    """The names of a session and the principal whose credential opened it.

    `bearer`: the session id alone is sufficient, because the client sends no credential.
    """

    names: SessionNames
    principal: str
    bearer: bool


class MessageSender(NamedTuple):
    """The sender of a message: the names, if the URL has them, and the principal, if there is a credential."""

    names: SessionNames | None
    principal: str | None


class ReceivedMessage(NamedTuple):
    """A message for a session of this process."""

    session: UUID
    sender: int
    ticket: int
    body: bytes


_ENTER = text(load_sql(__name__, "enter"))

_LEAVE = text("delete from mcp_sessions where holder = :holder")

# A session that is locked is in use.
_SWEEP = text("""
delete from mcp_sessions
where id in (select id from mcp_sessions where seen_at < :before for update skip locked)
""")

_STANDS = text("select exists (select from mcp_sessions where id = :session and bearer)")

_SEND = text(load_sql(__name__, "send", channel=CHANNEL))

_TAKE = text("""
with next as (
  select m.number from mcp_messages m join mcp_sessions s on s.id = m.session_id
  where s.holder = :holder order by m.number limit 100
), taken as (
  delete from mcp_messages m using next where m.number = next.number
  returning m.number, m.session_id, m.sender, m.ticket, m.body
)
select session_id, sender, ticket, body from taken order by number
""")

_ACKNOWLEDGE = text(f"select pg_notify('{CHANNEL}' || :sender, :ticket || ':' || :status)")

_WITHDRAW = text("delete from mcp_messages where number = :number")


async def enter(tx: Tx, holder: int, sessions: Mapping[UUID, SessionOwner]) -> datetime:
    """Registers these open sessions of a process, or renews them. Returns PostgreSQL's time."""
    owners = list(sessions.values())
    values = {
        "ids": list(sessions),
        "users": [owner.names.user for owner in owners],
        "apps": [owner.names.app for owner in owners],
        "principals": [owner.principal for owner in owners],
        "bearers": [owner.bearer for owner in owners],
    }
    now: datetime = (await tx.execute(_ENTER, values | {"holder": holder})).scalar_one()
    return now


async def leave(tx: Tx, holder: int) -> None:
    """Removes all sessions of a process."""
    await tx.execute(_LEAVE, {"holder": holder})


async def sweep(tx: Tx, before: datetime) -> int:
    """Removes sessions that were last renewed before this time, with the messages to them. Returns their number."""
    return (await tx.execute(_SWEEP, {"before": before})).rowcount


async def stands(tx: Tx, session: UUID) -> bool:
    """Returns True if the session exists and its id alone is sufficient as a credential."""
    return bool(await tx.scalar(_STANDS, {"session": session}))


async def send(tx: Tx, session: UUID, poster: MessageSender, *, sender: int, ticket: int, body: bytes) -> int | None:
    """Stores a message and notifies the process that holds its session. Returns the number of the message, or None if
    the poster has no such session."""
    user, app = poster.names or SessionNames(None, None)
    anybody = poster.names is None
    values = {"session": session, "anybody": anybody, "user": user, "app": app, "principal": poster.principal}
    number: int | None = await tx.scalar(_SEND, values | {"sender": sender, "ticket": ticket, "body": body})
    return number


async def receive(tx: Tx, holder: int) -> list[ReceivedMessage]:
    """Removes and returns messages for the sessions of a process, in the order in which they were accepted."""
    return [ReceivedMessage(*row) for row in await tx.execute(_TAKE, {"holder": holder})]


async def acknowledge(tx: Tx, answered: Iterable[tuple[ReceivedMessage, int]]) -> None:
    """Notifies the senders of messages of the HTTP statuses with which the sessions answered."""
    values = [{"sender": each.sender, "ticket": each.ticket, "status": status} for each, status in answered]
    await tx.execute(_ACKNOWLEDGE, values)


async def withdraw(tx: Tx, number: int) -> bool:
    """Withdraws a message. Returns False if it was already taken or removed."""
    return bool((await tx.execute(_WITHDRAW, {"number": number})).rowcount)
