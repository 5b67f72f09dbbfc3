"""`openmemory doctor`: checks every component and reports problems."""

from __future__ import annotations

from functools import partial
from typing import Any

from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.hook import sessions_folder
from openmemory.doors.cli.left_out import left_out_of_sessions
from openmemory.doors.cli.output import CommandAnswer, Table, plain, progress


@partial(connected, existing=True)
async def doctor(client: Client) -> CommandAnswer:
    """Check every component and report problems. The exit code is 1 if there is one."""
    with progress("components checked"):
        report = await client.call("GET", "/api/v1/doctor", patient=True)
    rows: list[tuple[Any, ...]] = []
    for name, check in report["checks"].items():
        detail = (
            ", ".join(f"{key} {value}" for key, value in check["detail"].items()) if check["ok"] else check["error"]
        )
        rows.append((name, "ok" if check["ok"] else "FAILS", detail, f"{check['milliseconds']:.0f} ms"))
    rows += [(name.replace("_", " "), count, "", "") for name, count in report["counts"].items()]
    rows += [(f"{name} on disk", _in_units(size), "", "") for name, size in report["sizes"].items()]
    rows += [
        ("vectors waiting", report["vectors_waiting"], "", ""),
        ("vectors stuck", report["vectors_stuck"], "", ""),
        ("vectors that differ", "unknown" if report["drift"] is None else report["drift"], "", ""),
    ]
    rows += [
        (f"collection {one['state']}", one["points"], f"{one['collection']} ({one['model']})", "")
        for one in report["collections"]
    ]
    sessions = left_out_of_sessions(sessions_folder())
    for session in sessions:
        rows += [
            ("left out of a session", count, f"{why} ({session.transcript})", "")
            for why, count in session.messages.items()
        ]
        if session.waiting:
            rows.append(("session not stored", "waits", f"{session.waiting} ({session.transcript})", ""))
    return CommandAnswer(
        {**report, "left_out_of_sessions": [session._asdict() for session in sessions]},
        f"OpenMemory {report['version']}: {report['status']}",
        Table(["check", "state", "detail", "time"], rows, wide="detail"),
        *(f"Problem: {plain(problem)}" for problem in report["problems"]),
        failed=bool(report["problems"]),
    )


def _in_units(size: float) -> str:
    """Returns a number of bytes in the unit that people read easily, such as `12.3 MB`."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
