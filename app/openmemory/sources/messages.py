"""Messages as they are stored: the checks of one message, and the statements that append messages to a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Text, bindparam, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.config.sections import CaptureSettings
from openmemory.config.settings import LimitSettings
from openmemory.content_policy import injection, secrets
from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.index.sync import outbox
from openmemory.memories import validation
from openmemory.serialization import exact_json
from openmemory.sources.models import Passage
from openmemory.sources.schemas import MessageAdded, MessageEvent, NewMessage, NewMessages


class CheckedMessage(NamedTuple):
    """A message that passed all checks, its labels, and the kinds of secrets that were redacted."""

    message: NewMessage
    labels: list[str]
    redacted: list[str]


class MessageChecks:
    """Checks messages by the limits and the policies of `capture`. Pure functions."""

    def __init__(self, limits: LimitSettings, capture: CaptureSettings) -> None:
        self._limits = limits
        self._capture = capture

    def spoken(self, text: str, field: str, limit: int, setting: str) -> str:
        """A text about a conversation as it may be stored, without secrets unless `capture.secrets` is `store`.

        Raises:
            Invalid: it is blank, too long or cannot be stored.
        """
        validation.text(text, field, limit, setting)
        return text if self._capture.secrets == "store" else secrets.redacted(text)

    def checked(self, message: NewMessage | Invalid) -> CheckedMessage | Invalid:
        """The message as it may be stored, or the error that rejects it."""
        if isinstance(message, Invalid):
            return message
        try:
            return self._to_checked(message)
        except Invalid as error:
            return error

    def _to_checked(self, message: NewMessage) -> CheckedMessage:
        """The message as it may be stored.

        Raises:
            Invalid: a field is blank, too large or cannot be stored, or the text is a prompt injection and
                `capture.injection` is `refuse`.
        """
        limits = self._limits
        validation.text(message.content, "content", limits.text, "limits.text")
        role = validation.name(message.role, "role", limits)
        own = None if message.id is None else validation.name(message.id, "id", limits)
        created_at = None if message.created_at is None else validation.moment(message.created_at, "created_at")
        validation.metadata(message.metadata, limits)
        content, redacted = message.content, list[str]()
        if self._capture.secrets != "store":
            findings = secrets.find(content)
            content, redacted = secrets.without(content, findings), [each.kind for each in findings]
        instructs = self._capture.injection != "store" and injection.instructs(content)
        if instructs and self._capture.injection == "refuse":
            raise Invalid("content", "looks like a prompt injection (capture.injection)", code="injection_refused")
        checked = replace(message, content=content, role=role, id=own, created_at=created_at)
        return CheckedMessage(checked, [injection.LABEL] if instructs else [], redacted)


class StoredMessage(NamedTuple):
    """A stored message that has a client's own id."""

    id: UUID
    position: int
    content: str


async def read_by_external_ids(tx: Tx, source: UUID, ids: Sequence[str]) -> dict[str, StoredMessage]:
    """The messages of a conversation that have one of the clients' ids."""
    if not ids:
        return {}
    columns = (Passage.external_id, Passage.id, Passage.position, Passage.content)
    condition = Passage.external_id == func.any(bindparam("ids", type_=ARRAY(Text)))
    rows = await tx.execute(select(*columns).where(Passage.source_id == source, condition), {"ids": list(ids)})
    return {
        row.external_id: StoredMessage(row.id, row.position, row.content) for row in rows if row.external_id is not None
    }


def repeated(message: NewMessage, stored_message: StoredMessage) -> MessageAdded | Invalid:
    """The result of a message whose id is stored: the same message, or an error."""
    if stored_message.content == message.content:
        return MessageAdded(stored_message.id, MessageEvent.NONE, stored_message.position)
    return Invalid("id", "is that of another message of this thread", code="message_id_reused")


_ADD_ENTRIES = outbox.ADD_ENTRIES.format(kind="'passage'", id="new.id", user="new.user_id", source="FROM new")
_STORE = text(load_sql(__name__, "store", entries=_ADD_ENTRIES, audited=audit_log.OF_NEW))


async def store(tx: Tx, caller: Caller, new: NewMessages, source: UUID, rows: Sequence[dict[str, Any]]) -> None:
    """Appends messages to a conversation that this transaction has locked, with their outbox entries."""
    values = {
        "source_id": source,
        "user_id": caller.user_id,
        "app_id": caller.app_id,
        "namespace": new.namespace,
        "thread_id": new.thread_id,
        "rows": exact_json.for_jsonb(list(rows)),
        "length": rows[-1]["position"],
        "title": new.title,
        "infer": new.infer,
        "ttl_days": new.ttl_days,
        **audit_log.parameters(caller, AuditAction.THREAD_ADD),
    }
    await tx.execute(_STORE, values)
