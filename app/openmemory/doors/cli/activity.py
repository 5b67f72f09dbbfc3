"""`openmemory activity`: shows what apps wrote and read."""

from __future__ import annotations

from typing import Any

import typer

from openmemory.doors.cli.operations import add
from openmemory.doors.cli.output import CommandAnswer, Table, local_time
from openmemory.operations.activity import daily_stats, show_feed, tool_usage

activity = typer.Typer(no_args_is_help=True)


def _feed(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    rows = [
        (local_time(one["at"]), one["event"], one["app_name"] or "", one["count"],
         "; ".join(memory["text"] for memory in one["memories"]))
        for one in answer["entries"]
    ]  # fmt: skip
    notes = [f"Earlier: --before {answer['next']}"] if answer["next"] else [] if rows else ["There is nothing yet."]
    return CommandAnswer(answer, Table(["when", "event", "app", "memories", "texts"], rows, wide="texts"), notes=notes)


def _days(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    rows = [(one["day"], one["app_name"], one["written"], one["accessed"]) for one in answer["days"]]
    table = Table(["day", "app", "written", "accessed"], rows, wide="app")
    return CommandAnswer(answer, table, notes=[] if rows else ["No app wrote or read anything."])


def _tools(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    columns = ("calls", "items", "used", "saved")
    rows = [(one["tool"], *(f"{one[name]:,}" for name in columns), one["app_name"]) for one in answer["tools"]]
    total = answer["total"]
    note = f"{total['calls']:,} calls: {total['used']:,} tokens given, {total['saved']:,} fewer than as JSON"
    table = Table(["tool", "calls", "results", "tokens", "saved", "app"], rows, wide="app")
    return CommandAnswer(answer, table, notes=[note] if rows else ["No tool was called."])


add(activity, show_feed, _feed)
add(activity, daily_stats, _days)
add(activity, tool_usage, _tools)
