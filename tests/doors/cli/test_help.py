"""The help of every command, in a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command

from openmemory.doors.cli.commands import complete

WIDTH = 80


def commands() -> Iterator[tuple[str, Any, Any]]:
    waiting: list[tuple[Any, Any]] = [(get_command(complete()), None)]
    while waiting:
        command, parent = waiting.pop()
        context = typer.Context(command, info_name=command.name or "openmemory", parent=parent)
        yield context.command_path, command, context
        waiting += [(child, context) for child in getattr(command, "commands", {}).values()]


EVERY = {path: (command, context) for path, command, context in commands()}


@pytest.mark.parametrize("path", EVERY)
def test_no_help_is_wider_than_the_terminal_or_cut(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    command, context = EVERY[path]
    told = command.get_help(context)
    assert max(map(len, told.splitlines())) <= WIDTH
    assert "…" not in told
    words = " ".join(told.split())
    for parameter in command.params:
        assert parameter.hidden or " ".join((parameter.help or "").split()) in words
        assert all(option in words for option in parameter.opts if option.startswith("-"))
    for name, child in getattr(command, "commands", {}).items():
        assert f" {name} {' '.join(child.get_short_help_str(10_000).split())}" in words


def test_commands_and_options_stand_in_groups() -> None:
    top, search = (command.get_help(context) for command, context in (EVERY["openmemory"], EVERY["openmemory search"]))
    assert [line for line in top.splitlines() if line.endswith(":") and not line.startswith(" ")] == [
        "Options:", "Memories:", "Projects and sources:", "Assistants:", "Access:", "Moving and erasing:", "Service:",
    ]  # fmt: skip
    assert top.index("Memories:") < top.index("\n  search ") < top.index("\n  policies ") < top.index("Projects and")
    assert search.index("\nOptions:") < search.index("--since") < search.index("Scope options:")
    assert search.index("Service options:") < search.index("--data-dir")


@pytest.mark.parametrize(
    ("path", "usage"),
    [
        ("search", "[OPTIONS] QUERY..."), ("update", "[OPTIONS] ID [TEXT...]"), ("delete", "[OPTIONS] ID..."),
        ("connect", "[OPTIONS] [CLIENT...]"), ("grants add", "[OPTIONS] EFFECT OBJECT_TYPE [OBJECT]"),
    ],
)  # fmt: skip
def test_the_usage_shows_which_arguments_repeat_and_which_may_be_left_out(path: str, usage: str) -> None:
    command, context = EVERY[f"openmemory {path}"]
    assert command.get_help(context).splitlines()[0] == f"Usage: openmemory {path} {usage}"
