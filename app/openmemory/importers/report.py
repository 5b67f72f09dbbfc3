"""The report of what was imported and what was not, as text or JSON."""

from __future__ import annotations

from typing import Any

from openmemory.cli.output import as_json, plain
from openmemory.importers.run import ImportOutcome, Report

_COUNTED = ("apps", "categories", "history", "revisions", "access_logs", "rules", "policies", "captures", "vectors")
_WORDS = {
    "history": "changes of state", "access_logs": "accesses", "rules": "access rules", "policies": "archive policies",
}  # fmt: skip


def show(report: Report, *, json: bool) -> None:
    """Prints the report."""
    if json:
        as_json(report.as_json())
        return
    for taken in report.users:
        print(_user(taken, dry_run=report.dry_run))
    for (kind, reason), count in report.left_out.counts.most_common():
        print(f"Left out: {count:,} of {kind}: {reason}.")
    _named(report.left_out.shown)
    if nobodys := report.left_out.nobodys:
        print(f"Of {nobodys:,} of them nothing tells whose they were: they count whoever is asked for.")
    if mended := report.left_out.mended:
        where = ", ".join(f"{count:,} of {kind}" for kind, count in mended.most_common())
        print(f"Numbers in metadata that JSON cannot say, such as NaN, became null: {where}.")
    for note in report.notes:
        print(note)
    if not report.users:
        print("There is nobody's memory in it.")


def _user(taken: ImportOutcome, *, dry_run: bool) -> str:
    found = taken.found
    states = ", ".join(f"{count:,} {state}" for state, count in found.memories.items() if count) or "none"
    more = (f"{getattr(found, name):,} {_WORDS.get(name, name)}" for name in _COUNTED if getattr(found, name, 0))
    name = plain(taken.user) if taken.user == taken.into else f"{plain(taken.user)} as {plain(taken.into)}"
    lines = [f"{name}: {'; '.join((f'{sum(found.memories.values()):,} memories ({states})', *more))}."]
    if dry_run:
        lines.append("  Nothing was written (--dry-run).")
    elif taken.error is not None:
        lines.append(f"  Refused as a whole: {plain(taken.error)}")
    elif taken.service is not None:
        lines += _service(taken.service)
    return "\n".join(lines)


def _service(told: dict[str, Any]) -> list[str]:
    memories = told.get("memories", {})
    names = ("added", "replaced", "skipped", "renamed", "archived_twins", "left_out")
    words = {"skipped": "already here", "renamed": "with a new id", "archived_twins": "archived as twins",
             "left_out": "left out"}  # fmt: skip
    counted = [f"{memories[name]:,} {words.get(name, name)}" for name in names if memories.get(name)]
    others = [f"{told[name]:,} {_WORDS.get(name, name)}" for name in _COUNTED if isinstance(told.get(name), int)]
    lines = [f"  Memories: {', '.join(counted) or 'none'}. With them: {', '.join(others)}."]
    if mended := told.get("mended"):
        lines.append(f"  Numbers in metadata that JSON cannot say, such as NaN, became null: {mended:,}.")
    left_out = told.get("left_out")
    for row in left_out[:20] if isinstance(left_out, list) else ():
        lines.append(f"  Left out: {plain(row.get('kind'))} {plain(row.get('id'))}: {plain(row.get('reason'))}")
    return lines


def _named(rows: list[dict[str, str]]) -> None:
    for row in rows[:20]:
        print(f"  {plain(row['kind'])} {plain(row['id'])}: {plain(row['reason'])}")
    if len(rows) > 20:
        print("  More of them with --json.")
