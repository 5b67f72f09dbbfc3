"""Conversion between captures and their database columns. Pure functions."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from datetime import datetime
from typing import Any

from openmemory.capture import verbatim
from openmemory.capture.extraction import CaptureInput
from openmemory.capture.queue import ClaimedCapture
from openmemory.capture.schemas import CaptureCreate, Turn
from openmemory.identity.principal import Principal
from openmemory.memories.schemas import MemoryCreate
from openmemory.serialization import exact_json

WINDOW = "thread:"
"""The beginning of the id of a principal that stands for a conversation."""

_TIMES = ("created_at", "expires_at", "valid_from", "valid_until")


def columns_of(new: CaptureCreate) -> dict[str, Any]:
    """The columns `input`, `options` and `hash` of a new capture. Equal captures have the same hash."""
    content: dict[str, Any] = {"text": new.like.text}
    if new.messages:
        content = {"messages": [_columns_of_turn(turn) for turn in new.messages]}
    like = asdict(new.like)
    shared = {
        name: value for name, value in like.items() if name not in ("text", "app") and value not in (None, (), {})
    }
    raw = exact_json.dumps({"input": content, "options": shared})
    return exact_json.loads(raw) | {"hash": hashlib.sha256(raw).hexdigest()}  # type: ignore[no-any-return]


def _columns_of_turn(turn: Turn) -> dict[str, Any]:
    return {name: value for name, value in asdict(turn).items() if value is not None}


def options(column: dict[str, Any]) -> MemoryCreate:
    """The fields that all new memories of a capture share."""
    times = {name: datetime.fromisoformat(column[name]) for name in _TIMES if name in column}
    return MemoryCreate(text="", **column | times | {"categories": tuple(column.get("categories", ()))})


def input_of(claimed: ClaimedCapture) -> CaptureInput:
    """The input of a capture with its namespace and time."""
    content = claimed.input
    what = tuple(Turn(**turn) for turn in content["messages"]) if "messages" in content else content["text"]
    at = claimed.options.get("created_at")
    time = claimed.created_at if at is None else datetime.fromisoformat(at)
    return CaptureInput(what, claimed.namespace, time, verbatim.ids(claimed.operations))


def is_window(claimed: ClaimedCapture) -> bool:
    """Returns True if the input is a part of a stored conversation, whose messages are searched as passages."""
    return str(claimed.principal["id"]).startswith(WINDOW)


def principal_of(who: Principal) -> dict[str, Any]:
    """The parts of the capture's credential that a background job needs."""
    namespaces = None if who.namespaces is None else list(who.namespaces)
    zone = None if who.timezone is None else who.timezone.key
    scopes = sorted(map(str, who.scopes))
    return {"id": who.id, "name": who.name, "namespaces": namespaces, "scopes": scopes, "timezone": zone}
