"""Tables that fit the width of the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHORTEST = 8
"""Characters of an id that a terminal shows, unless more are needed to tell the rows apart."""

_READABLE = 40
"""Columns that a text needs beside others. With less it stands on lines of its own."""

_INDENT = 2


def show(columns: Sequence[str], rows: Sequence[Sequence[str]], wide: str, details: Sequence[str]) -> None:
    """Prints rows in the width of the terminal, with short ids.

    The column `wide` takes the remaining width. Where that is too small to read, and where there are details, it stands
    on lines of its own, and the details below it.
    """
    from rich.cells import cell_len
    from rich.console import Console

    console = Console(highlight=False)
    cells = {
        name: _shorten_ids(each)
        for name, each in zip(columns, zip(*rows, strict=True) if rows else [()] * len(columns), strict=True)
    }
    widths = {name: max(map(cell_len, (name, *each))) for name, each in cells.items()}
    head = [name for name in columns if name != wide and name not in details]
    space = console.width - sum(widths[name] + _INDENT for name in head)
    if not details and space >= min(widths[wide], _READABLE):
        _show_columns(console, cells, wide)
        return
    below = list(details)
    while len(head) > 1 and sum(widths[name] + _INDENT for name in head) > console.width + _INDENT:
        below.insert(0, head.pop())
    _show_stacked(console, {name: cells[name] for name in head}, cells[wide], {name: cells[name] for name in below})


def _show_columns(console: Console, cells: dict[str, list[str]], wide: str) -> None:
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=None, header_style="bold", pad_edge=False)
    for column in cells:
        table.add_column(column, overflow="fold", no_wrap=column != wide, ratio=1 if column == wide else None)
    for row in zip(*cells.values(), strict=True):
        table.add_row(*map(Text, row))
    console.print(table)


def _show_stacked(
    console: Console, head: dict[str, list[str]], wide: Sequence[str], below: dict[str, list[str]]
) -> None:
    """Each row as a line, and below it the text on lines of its own and the other cells with their names."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    widths = [max(map(cell_len, (name, *cells))) for name, cells in head.items()]

    def align(row: Iterable[str]) -> str:
        cells = zip(row, widths, strict=True)
        return (" " * _INDENT).join(set_cell_size(cell, width) for cell, width in cells).rstrip()

    console.print(Text(align(head), "bold"))
    for place, row in enumerate(zip(*head.values(), strict=True)):
        console.print(Text(align(row)))
        width = console.width - _INDENT
        parts = (f"{name} {cells[place]}" for name, cells in below.items() if cells[place] not in ("", "-"))
        for text, style in ((wide[place], ""), *((line, "dim") for line in _pack_lines(parts, width))):
            for line in Text(text, style).wrap(console, width, overflow="fold") if text else ():
                line.rstrip()
                console.print(Text(" " * _INDENT).append_text(line))


def _pack_lines(parts: Iterable[str], width: int) -> Iterator[str]:
    """Lines of as many parts as fit."""
    line = ""
    for part in parts:
        longer = f"{line}{' ' * _INDENT}{part}" if line else part
        if line and len(longer) > width:
            yield line
            longer = part
        line = longer
    yield line


def _shorten_ids(cells: Sequence[str]) -> list[str]:
    """The cells of a column, with as many characters of each id as tell it from the others."""
    ids = {cell for cell in cells if _ID.fullmatch(cell)}
    length = next(size for size in range(_SHORTEST, 37) if len({one[:size] for one in ids}) == len(ids))
    length += length in (8 + 1, 13 + 1, 18 + 1, 23 + 1)  # none ends with a hyphen
    return [cell[:length] if cell in ids else cell for cell in cells]
