"""Output of commands: lines and notes for people, tab-separated lines for other programs, and JSON on request."""

from __future__ import annotations

import json as json_
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from openmemory.errors import Invalid, SetupError

_CONTROL = dict.fromkeys(
    (*range(0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)),
    " ",
)
"""Terminal controls, line separators and writing direction marks: a stored text must not control the terminal."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows to print. `wide` is the column that takes the remaining width, `details` are those that stand below it.

    Without a terminal, each row is one line of tab-separated values with whole ids, and there is no heading.
    """

    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]
    wide: str
    details: Sequence[str] = ()

    def show(self) -> None:
        """Prints the table."""
        rows = [[plain(cell) for cell in row] for row in self.rows]
        if not sys.stdout.isatty():
            for row in rows:
                print("\t".join(row))
        else:
            from openmemory.doors.cli import tables

            tables.show(self.columns, rows, self.wide, self.details)


class CommandAnswer:
    """The result of a command: the value for `--json`, and lines and tables for people.

    Notes are part of it: other programs get them as lines that begin with `#`, and in JSON as `notes`.
    """

    def __init__(
        self,
        value: Any,
        *parts: str | Table,
        notes: Iterable[str] = (),
        asides: Iterable[str] = (),
        failed: bool = False,
    ) -> None:
        """`asides` go to standard error: what failed, and notes about a text that is to be used as it is. `failed`: the
        exit code is 1."""
        self._value = value
        self._parts = parts
        self._notes = list(notes)
        self._asides = list(asides)
        self.failed = failed

    def show(self, *, json: bool) -> None:
        """Prints the value, or what is for people."""
        if json:
            notes = [*self._notes, *self._asides]
            value = {**self._value, "notes": notes} if notes and isinstance(self._value, dict) else self._value
            print(json_.dumps(value, ensure_ascii=False, indent=2))
        else:
            for part in self._parts:
                if isinstance(part, Table):
                    part.show()
                else:
                    print(part)
            for line in self._notes:
                print(_wrap(line) if sys.stdout.isatty() else f"# {line}")
            for line in self._asides:
                note(line)

    def exit(self) -> None:
        """Ends a command that failed.

        Raises:
            Exit: it failed.
        """
        if self.failed:
            raise typer.Exit(1)


def _wrap(line: str) -> str:
    import shutil
    import textwrap

    return textwrap.fill(line, shutil.get_terminal_size().columns, break_long_words=False, break_on_hyphens=False)


def page_answer(answer: dict[str, Any], table: Table, page: int, nothing: str) -> CommandAnswer:
    """One page of a list, with its number unless it has everything. `nothing` is the note about an empty list."""
    notes = [f"Page {page}; {answer['total']} in all."] if len(answer["items"]) < answer["total"] else []
    return CommandAnswer(answer, table, notes=notes if answer["total"] else [nothing])


def format_decision(answer: dict[str, Any], _: dict[str, Any]) -> CommandAnswer:
    """The result of a decision, with the command that undoes it."""
    undo = [f"`openmemory undo {answer['action']}` undoes it for some minutes."] if answer["action"] else []
    return CommandAnswer(answer, f"{plain(answer['message'])}.", notes=undo)


def plain(value: Any) -> str:
    """A value on one line, without control characters."""
    return "" if value is None else str(value).translate(_CONTROL).strip()


def plain_lines(text: str) -> list[str]:
    """A text line by line, without control characters."""
    return [line.replace("\t", "    ").translate(_CONTROL).rstrip() for line in text.splitlines()]


def writer(app: str, added_by: str | None) -> str:
    """The app that wrote a text, and the one that added its memory if that is another. Filters by app go by this."""
    return app if added_by in (None, app) else f"{app}, added by {added_by}"


def memories(count: int) -> str:
    """A number of memories."""
    return "1 memory" if count == 1 else f"{count:,} memories"


def passages(count: int) -> str:
    """A number of passages."""
    return "1 passage" if count == 1 else f"{count:,} passages"


def local_time(moment: float | str | None) -> str:
    """A time from the API (epoch seconds, or ISO 8601 in UTC) in the local time zone, to the minute."""
    if moment is None:
        return ""
    at = datetime.fromtimestamp(moment, UTC) if isinstance(moment, int | float) else datetime.fromisoformat(moment)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone().strftime("%Y-%m-%d %H:%M")


def note(text: str) -> None:
    """Prints a note for the user, separate from the output itself."""
    print(text, file=sys.stderr)


def read_stdin() -> str:
    """All of standard input as text, without the final line break.

    Raises:
        Invalid: it is not UTF-8.
    """
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise Invalid("text", f"standard input must be UTF-8; byte {error.start + 1} is not") from None


def text_of(file: str) -> str:
    """The text of a file.

    Raises:
        SetupError: it cannot be read.
    """
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise SetupError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SetupError(f"{file}: must be text in UTF-8") from None


def confirm(question: str, yes: bool) -> None:
    """Asks for confirmation before an irreversible action. `yes`: it was confirmed beforehand.

    Raises:
        Invalid: there is no terminal to ask on.
        Abort: the answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise Invalid("--yes", "must be given without a terminal, because nobody can be asked")
    typer.confirm(f"{question} This cannot be undone.", abort=True, err=True)


def on_a_terminal() -> bool:
    """Returns True if somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def prompt_yes_no(question: str) -> bool:
    """Asks on the terminal, and leaves standard output alone. Returns True for yes; no is the default."""
    print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


ShowProgress = Callable[[int, int | None], None]
"""Called with the amount done, and the total or None if it is unknown."""


@contextmanager
def progress(what: str, *, size: bool = False) -> Iterator[ShowProgress]:
    """A progress bar on standard error if it is a terminal. `size`: it counts bytes."""
    if not sys.stderr.isatty():
        yield lambda _count, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = BarColumn(), DownloadColumn() if size else MofNCompleteColumn(), TextColumn(what), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        yield lambda count, total: bar.update(task, completed=count, total=total)
