"""`openmemory audit`: shows the audit log."""

from __future__ import annotations

from typing import Any

from openmemory.doors.cli.operations import command
from openmemory.doors.cli.output import CommandAnswer, Table, local_time
from openmemory.operations.audit import read_audit


def _events(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    rows = [
        (
            local_time(one["at"]),
            one["event"],
            one["result"],
            one["principal_name"],
            f"{one['address'] or ''} {one['door']}".strip(),
            one["user_name"],
            one["app_name"],
            _what(one["count"], one["objects"], one["detail"]),
        )
        for one in answer["events"]
    ]
    table = Table(["when", "event", "result", "who", "from", "user", "app", "what"], rows, wide="what")
    return CommandAnswer(answer, table, notes=[f"Earlier: --before {answer['next']}"] if answer["next"] else [])


def _what(count: int, objects: list[str] | None, detail: dict[str, object] | None) -> str:
    names = ", ".join(objects[:3]) + (f" and {count - 3} more" if count > 3 else "") if objects else ""
    details = ", ".join(f"{name} {value}" for name, value in (detail or {}).items())
    return "; ".join(part for part in (names, details) if part)


audit = command(read_audit, _events)
