"""Output of commands: tables on a terminal, tab-separated lines for other programs, and JSON on request."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import typer

from openmemory.errors import Invalid

_CONTROL = dict.fromkeys(
    (*range(0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)),
    " ",
)
"""Terminal controls, line separators and writing direction marks: a stored text must not control the terminal."""


def as_json(value: Any) -> None:
    """Prints a value as indented JSON."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def plain(value: Any) -> str:
    """A value on one line, without control characters."""
    return "" if value is None else str(value).translate(_CONTROL).strip()


def local_time(moment: float | str | None) -> str:
    """A time from the API (epoch seconds, or ISO 8601 in UTC) in the local time zone, to the minute."""
    if moment is None:
        return ""
    at = datetime.fromtimestamp(moment, UTC) if isinstance(moment, int | float) else datetime.fromisoformat(moment)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone().strftime("%Y-%m-%d %H:%M")


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, wide: str) -> None:
    """Prints rows. `wide` is the column that takes the remaining width.

    Without a terminal, each row is one line of tab-separated values, and there is no heading.
    """
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(plain(cell) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        shown.add_column(column, overflow="fold", no_wrap=column != wide, ratio=1 if column == wide else None)
    for row in rows:
        shown.add_row(*(Text(plain(cell)) for cell in row))
    Console().print(shown)


def note(text: str) -> None:
    """Prints a note for the user, separate from the output itself."""
    print(text, file=sys.stderr)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Shows on standard error that work is in progress if it is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def read_stdin() -> str:
    """All of standard input as text, without the final line break.

    Raises:
        Invalid: it is not UTF-8.
    """
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise Invalid("text", f"standard input is not UTF-8 (byte {error.start + 1})") from None


def confirm(question: str, yes: bool) -> None:
    """Asks for confirmation before an irreversible action. `yes`: it was confirmed beforehand.

    Raises:
        Invalid: there is no terminal to ask on.
        Abort: the answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise Invalid("--yes", "is needed where nobody can be asked, because this cannot be undone")
    typer.confirm(f"{question} This cannot be undone.", abort=True, err=True)


@contextmanager
def receiving(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar of bytes on standard error if it is a terminal. It moves back and forth until the total is known.
    Call the yielded function with done and total."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total, description="receiving")


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar on standard error if it is a terminal. Call the yielded function with done and total."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(what), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
