"""The report of what was imported and what was not, as text or JSON."""

from __future__ import annotations

from typing import Any

from openmemory.doors.cli.migrating import ImportOutcome, Report
from openmemory.doors.cli.output import CommandAnswer, plain

_SHOWN = 20
"""The number of rejected rows that are listed for people."""
_COUNTED = (
    "apps",
    "categories",
    "history",
    "revisions",
    "access_logs",
    "rules",
    "policies",
    "captures",
    "links",
    "projects",
    "sources",
    "passages",
    "vectors",
)
_WORDS = {
    "history": "changes of state", "access_logs": "accesses", "rules": "access rules", "policies": "archive policies",
}  # fmt: skip
_IDS = {
    "adopted_ids": "With the ids of the source, because nothing here referred to them yet",
    "kept_ids": "Still with the ids they had here, not those of the source",
}  # fmt: skip


def answer(report: Report) -> CommandAnswer:
    """The report for a terminal and as JSON. The import failed if anything was left out."""
    lines = [_user(outcome, dry_run=report.dry_run) for outcome in report.users] or ["The source contains no memories."]
    left_out = report.left_out
    lines += [f"Left out: {count:,} of {kind}: {reason}." for (kind, reason), count in left_out.counts.most_common()]
    lines += [
        f"  {plain(row['kind'])} {plain(row['id'])}: {plain(row['reason'])}" for row in left_out.first_rows[:_SHOWN]
    ]
    if len(left_out.first_rows) > _SHOWN:
        lines.append("  --json lists more of them.")
    if nobodys := left_out.nobodys:
        lines.append(f"The user of {nobodys:,} of them is unknown, so they are in the report of every user.")
    if left_out.mended:
        where = ", ".join(f"{count:,} of {kind}" for kind, count in left_out.mended.most_common())
        lines.append(f"Numbers in metadata that JSON does not allow, such as NaN, became null: {where}.")
    return CommandAnswer(report.as_json(), *lines, *map(plain, report.notes), failed=not report.whole)


def _user(outcome: ImportOutcome, *, dry_run: bool) -> str:
    counts = outcome.found
    states = ", ".join(f"{count:,} {state}" for state, count in counts.memories.items() if count) or "none"
    more = (f"{getattr(counts, name):,} {_WORDS.get(name, name)}" for name in _COUNTED if getattr(counts, name, 0))
    name = plain(outcome.user) if outcome.user == outcome.into else f"{plain(outcome.user)} as {plain(outcome.into)}"
    lines = [f"{name}: {'; '.join((f'{sum(counts.memories.values()):,} memories ({states})', *more))}."]
    if dry_run:
        lines.append("  Nothing was imported (--dry-run).")
    elif outcome.error is not None:
        lines.append(f"  The service rejected the archive: {plain(outcome.error)}")
    elif outcome.service is not None:
        lines += _service(outcome.service)
    return "\n".join(lines)


def _service(report: dict[str, Any]) -> list[str]:
    memories = report.get("memories", {})
    names = ("added", "replaced", "skipped", "renamed", "archived_duplicates", "left_out")
    words = {"skipped": "already here", "renamed": "with a new id", "archived_duplicates": "archived as twins",
             "left_out": "left out"}  # fmt: skip
    counts = [f"{memories[name]:,} {words.get(name, name)}" for name in names if memories.get(name)]
    others = [f"{report[name]:,} {_WORDS.get(name, name)}" for name in _COUNTED if isinstance(report.get(name), int)]
    lines = [f"  Memories: {', '.join(counts) or 'none'}. With them: {', '.join(others)}."]
    lines += [f"  {words}: {', '.join(map(plain, report[name]))}." for name, words in _IDS.items() if report.get(name)]
    if mended := report.get("mended"):
        lines.append(f"  Numbers in metadata that JSON does not allow, such as NaN, became null: {mended:,}.")
    left_out = report.get("left_out")
    for row in left_out[:_SHOWN] if isinstance(left_out, list) else ():
        lines.append(f"  Left out: {plain(row.get('kind'))} {plain(row.get('id'))}: {plain(row.get('reason'))}")
    return lines
