"""Statements on the open sessions and the messages between processes. Each is its own transaction.

A process proves that it is alive by an advisory lock on its number, which PostgreSQL releases when its connection ends.
Other processes check this by trying a shared lock for the duration of one statement. The lock is shared so that two
checks never mistake each other for the process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, Boolean, Integer, LargeBinary, String, Uuid, bindparam, text

from openmemory.database.engine import Tx

CLASS = 0x6F6D7270
"""First half of the advisory lock keys; the second half is the number of a process."""

BATCH = 100
"""Maximum number of messages taken at once."""

_ACKNOWLEDGED_AT_ONCE = 200
"""Maximum number of acknowledgements in one notification, which holds 8,000 bytes."""


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


class SendResult(NamedTuple):
    """The result of sending a message. `number` is None if `holder`, the process with the session, is dead."""

    holder: int
    number: int | None


class ReceivedMessage(NamedTuple):
    """A message for a session of this process."""

    session: UUID
    sender: int
    ticket: int
    body: bytes


class MessageState(NamedTuple):
    """The state of a message: it still waits to be taken; its session is open; the session's process is alive."""

    waiting: bool
    open: bool
    alive: bool


def channel(number: int) -> str:
    """The channel that a process listens on."""
    return f"openmemory_relay_{number}"


_ENTER = text("""
insert into mcp_sessions (id, user_name, app_name, principal, bearer, holder)
select id, user_name, app_name, principal, bearer, :holder
from unnest(:ids, :users, :apps, :principals, :bearers) as entered(id, user_name, app_name, principal, bearer)
on conflict (id) do update set holder = excluded.holder
""").bindparams(
    bindparam("holder", type_=Integer),
    bindparam("ids", type_=ARRAY(Uuid)),
    bindparam("users", type_=ARRAY(String)),
    bindparam("apps", type_=ARRAY(String)),
    bindparam("principals", type_=ARRAY(String)),
    bindparam("bearers", type_=ARRAY(Boolean)),
)

_LEAVE = text("delete from mcp_sessions where id = any(:ids)").bindparams(bindparam("ids", type_=ARRAY(Uuid)))

_LEAVE_ALL = text("delete from mcp_sessions where holder = :holder").bindparams(bindparam("holder", type_=Integer))

# If the session closes in the meantime, the foreign key check fails and the message is not accepted.
_SEND = text(f"""
with found as materialized (
  select id, holder, pg_try_advisory_xact_lock_shared({CLASS}, holder) as dead from mcp_sessions
  where id = :session
    and (:anybody or (user_name is not distinct from :user and app_name is not distinct from :app))
    and (principal = :principal or (bearer and CAST(:principal AS text) is null))
), sent as (
  insert into mcp_messages (session_id, sender, ticket, body)
  select id, :sender, :ticket, :body from found where not dead
  returning number
)
select found.holder, sent.number,
       case when sent.number is not null then pg_notify('{channel(0)[:-1]}' || found.holder, '') end
from found left join sent on true
""").bindparams(  # noqa: S608 - only constants of this module are put in
    bindparam("session", type_=Uuid),
    bindparam("user", type_=String),
    bindparam("app", type_=String),
    bindparam("principal", type_=String),
    bindparam("sender", type_=Integer),
    bindparam("ticket", type_=BigInteger),
    bindparam("body", type_=LargeBinary),
)

_STANDS = text("select exists (select from mcp_sessions where id = :session and bearer)").bindparams(
    bindparam("session", type_=Uuid)
)

_TAKE = text(f"""
with next as (
  select m.number from mcp_messages m join mcp_sessions s on s.id = m.session_id
  where s.holder = :holder order by m.number limit {BATCH}
), taken as (
  delete from mcp_messages m using next where m.number = next.number
  returning m.number, m.session_id, m.sender, m.ticket, m.body
)
select session_id, sender, ticket, body from taken order by number
""").bindparams(bindparam("holder", type_=Integer))  # noqa: S608 - as above

_FATE = text(f"""
select exists (select from mcp_messages where number = :number),
       exists (select from mcp_sessions where id = :session),
       not pg_try_advisory_xact_lock_shared({CLASS}, :holder)
""").bindparams(  # noqa: S608 - as above
    bindparam("number", type_=BigInteger), bindparam("session", type_=Uuid), bindparam("holder", type_=Integer)
)

_WITHDRAW = text("delete from mcp_messages where number = :number").bindparams(bindparam("number", type_=BigInteger))

_DEAD = text(f"""
with holders as materialized (select distinct holder from mcp_sessions where holder <> :me)
select holder from holders where pg_try_advisory_xact_lock_shared({CLASS}, holder)
""").bindparams(bindparam("me", type_=Integer))  # noqa: S608 - as above

_BURY = text(f"""
with holders as materialized (select distinct holder from mcp_sessions where holder = any(:holders)),
     dead as materialized (select holder from holders where pg_try_advisory_xact_lock_shared({CLASS}, holder))
delete from mcp_sessions s using dead where s.holder = dead.holder
""").bindparams(bindparam("holders", type_=ARRAY(Integer)))  # noqa: S608 - as above

_NOTIFY = text("select pg_notify(:channel, :payload)")


async def enter(tx: Tx, holder: int, sessions: Mapping[UUID, SessionOwner]) -> None:
    """Registers these sessions as held by a process."""
    owners = list(sessions.values())
    values = {
        "ids": list(sessions),
        "users": [owner.names.user for owner in owners],
        "apps": [owner.names.app for owner in owners],
        "principals": [owner.principal for owner in owners],
        "bearers": [owner.bearer for owner in owners],
    }
    await tx.execute(_ENTER, values | {"holder": holder})


async def leave(tx: Tx, sessions: Collection[UUID]) -> None:
    """Removes ended sessions, together with the messages on their way to them."""
    await tx.execute(_LEAVE, {"ids": list(sessions)})


async def leave_all(tx: Tx, holder: int) -> None:
    """Removes all sessions of a process."""
    await tx.execute(_LEAVE_ALL, {"holder": holder})


async def send(
    tx: Tx, session: UUID, poster: MessageSender, *, sender: int, ticket: int, body: bytes
) -> SendResult | None:
    """Stores a message for a session and notifies the process that holds it. None if the poster has no such session.

    Raises:
        IntegrityError: the session was closed at that moment.
    """
    user, app = poster.names or SessionNames(None, None)
    anybody = poster.names is None
    values = {"session": session, "anybody": anybody, "user": user, "app": app, "principal": poster.principal}
    row = (await tx.execute(_SEND, values | {"sender": sender, "ticket": ticket, "body": body})).one_or_none()
    return None if row is None else SendResult(row[0], row[1])


async def stands(tx: Tx, session: UUID) -> bool:
    """Returns True if the session exists and its id alone is sufficient as a credential."""
    return bool(await tx.scalar(_STANDS, {"session": session}))


async def take(tx: Tx, holder: int) -> list[ReceivedMessage]:
    """Removes and returns messages for the sessions of a process, in the order in which they were accepted."""
    return [ReceivedMessage(*row) for row in await tx.execute(_TAKE, {"holder": holder})]


async def acknowledge(tx: Tx, sender: int, statuses: Sequence[tuple[int, int]]) -> None:
    """Notifies a sender of the results of its messages: pairs of a ticket and an HTTP status."""
    for start in range(0, len(statuses), _ACKNOWLEDGED_AT_ONCE):
        chunk = statuses[start : start + _ACKNOWLEDGED_AT_ONCE]
        payload = " ".join(f"{ticket}:{status}" for ticket, status in chunk)
        await tx.execute(_NOTIFY, {"channel": channel(sender), "payload": payload})


def acknowledged(payload: str) -> list[tuple[int, int]]:
    """Parses a payload of `acknowledge`. An empty payload, which announces messages to take, gives an empty list."""
    pairs = (pair.partition(":") for pair in payload.split())
    return [(int(ticket), int(status)) for ticket, _, status in pairs]


async def fate(tx: Tx, number: int, session: UUID, holder: int) -> MessageState:
    """The current state of a message that was sent."""
    values = {"number": number, "session": session, "holder": holder}
    return MessageState(*(await tx.execute(_FATE, values)).one())


async def withdraw(tx: Tx, number: int) -> bool:
    """Withdraws a message. Returns False if it was already taken or removed."""
    return bool((await tx.execute(_WITHDRAW, {"number": number})).rowcount)


async def dead(tx: Tx, me: int) -> set[int]:
    """The other processes that hold sessions but are not alive at this moment."""
    return set((await tx.execute(_DEAD, {"me": me})).scalars())


async def bury(tx: Tx, holders: Iterable[int]) -> int:
    """Removes the sessions, with their messages, of those processes that are not alive. Returns their number."""
    return (await tx.execute(_BURY, {"holders": list(holders)})).rowcount
