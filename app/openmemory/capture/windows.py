"""Windows of conversations: takes messages that are stored verbatim to the language model, some at a time.

A window is a capture like any other. The position up to which a conversation has been taken is written in the same
transaction, so no message is lost and none is taken twice. Without a language model nothing is taken, and the messages
wait until one is configured.
"""

from __future__ import annotations

from typing import Any, get_args
from uuid import UUID

from sqlalchemy import insert, text

from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.capture.intake import checked
from openmemory.capture.models import Capture
from openmemory.capture.rows import WINDOW, columns_of, principal_of
from openmemory.capture.schemas import CaptureCreate, Role, Turn
from openmemory.capture.worker import Worker
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.identity.principal import Door, Principal, Scope
from openmemory.memories.intake import Intake
from openmemory.memories.schemas import MemoryCreate

MESSAGES = 10
"""The number of messages in a window."""

CHARACTERS = 2_000
"""The number of characters that end a window before it has so many messages."""

IDLE = 600
"""The seconds after the last message when a shorter window is taken. So it is when the conversation is closed."""

OVERLAP = 2
"""The number of messages before a window that the model reads with it: an answer does not repeat its question."""

MAX_OVERLAP = 1_000
"""The number of characters that are kept of each of them."""

_DUE = text(
    f"""
    SELECT s.id, s.user_id, s.app_id, s.namespace, s.locator, s.captured, s.length,
        s.closed_at IS NOT NULL OR s.updated_at < now() - interval '{IDLE} s' AS over
    FROM sources AS s JOIN apps AS a ON a.id = s.app_id AND a.is_active
    WHERE s.state = 'active' AND s.kind = 'conversation' AND s.infer AND s.length > s.captured AND (
        s.closed_at IS NOT NULL OR s.updated_at < now() - interval '{IDLE} s' OR s.length - s.captured >= {MESSAGES}
        OR (SELECT sum(length(p.content)) FROM passages AS p
            WHERE p.source_id = s.id AND p.position > s.captured AND p.state = 'active') >= {CHARACTERS})
    ORDER BY s.updated_at LIMIT 1 FOR NO KEY UPDATE OF s SKIP LOCKED
    """  # noqa: S608 - only constants are put in
)
_TURNS = text(
    """
    SELECT position, speaker, content, created_at FROM passages
    WHERE source_id = :id AND position > :after AND state = 'active' AND (expires_at IS NULL OR expires_at > now())
        AND kind = 'turn'
    ORDER BY position LIMIT :most
    """
)
_SET_POSITION = text("UPDATE sources SET captured = :position WHERE id = :id")


class ConversationWindows:
    """Makes captures of the messages that no capture has read yet."""

    def __init__(self, database: Database, worker: Worker, intake: Intake, limits: LimitSettings) -> None:
        self._database = database
        self._worker = worker
        self._intake = intake
        self._limits = limits

    async def run(self) -> int:
        """Take every window that is due. Returns the number of captures. Does nothing without a language model.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        if not await self._worker.extractor.configured():
            return 0
        count = 0
        while (number := await self._take()) is not None:
            count += number
        if count:
            self._worker.wake()
        return count

    @retry_on_conflict
    async def _take(self) -> bool | None:
        """Take one window. Returns False if its messages were deleted, and None if no window is due."""
        async with self._database.transaction() as tx:
            due = (await tx.execute(_DUE)).one_or_none()
            if due is None:
                return None
            before, window = await self._window(tx, due)
            if not window:
                await tx.execute(_SET_POSITION, {"id": due.id, "position": due.length})
                return False
            await self._capture(tx, due, [*before, *window])
            await tx.execute(_SET_POSITION, {"id": due.id, "position": window[-1].position})
        return True

    @staticmethod
    async def _window(tx: Tx, due: Any) -> tuple[list[Any], list[Any]]:
        """The messages just before the window, and those of the window."""
        values = {"id": due.id, "after": due.captured - OVERLAP, "most": OVERLAP + MESSAGES}
        turns = (await tx.execute(_TURNS, values)).all()
        before = [turn for turn in turns if turn.position <= due.captured]
        window, size = list[Any](), 0
        for turn in turns[len(before) :][:MESSAGES]:
            window.append(turn)
            size += len(turn.content)
            if size >= CHARACTERS:
                break
        return before, window

    async def _capture(self, tx: Tx, due: Any, turns: list[Any]) -> None:
        like = MemoryCreate("", namespace=due.namespace, thread_id=due.locator, created_at=turns[-1].created_at)
        messages = tuple(_turn(turn, MAX_OVERLAP if turn.position <= due.captured else None) for turn in turns)
        columns = columns_of(checked(CaptureCreate(like, messages), self._intake, self._limits))
        principal = Principal(
            f"{WINDOW}{due.id}", "conversation", namespaces=(due.namespace,), scopes=_SCOPES, door=Door.JOB
        )
        values = columns | {
            "user_id": due.user_id, "app_id": due.app_id, "namespace": due.namespace,
            "principal": principal_of(principal),
        }  # fmt: skip
        id_: UUID = (await tx.execute(insert(Capture).values(values).returning(Capture.id))).scalar_one()
        await audit_log.record(
            tx, principal, AuditAction.CAPTURE_ADD, [id_], user_id=due.user_id, detail={"thread": str(due.id)}
        )


_SCOPES = frozenset({Scope.READ, Scope.WRITE})
_ROLES: tuple[Role, ...] = get_args(Role)


def _turn(turn: Any, most: int | None) -> Turn:
    """A message as a turn. A person's name becomes a part of what they say."""
    content = turn.content[:most]
    role = next((role for role in _ROLES if role == (turn.speaker or "user").lower()), None)
    if role is None:
        return Turn("user", f"{turn.speaker}: {content}", turn.position)
    return Turn(role, content, turn.position)
