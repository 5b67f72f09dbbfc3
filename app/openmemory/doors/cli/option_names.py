"""The names that the command line has for the fields of the API."""

from __future__ import annotations

import re
from collections.abc import Sequence

from openmemory.doors.server.exits import one_line
from openmemory.errors import OpenMemoryError, SetupError

_PARAMETERS = {
    "additional_context": "text", "app_ids": "app", "categories": "category", "content": "text",
    "criteria_name": "criteria", "days_to_archive": "days", "days_to_expire": "days", "expected_revision": "revision",
    "expires_at": "days", "from": "first", "from_date": "since", "memory_content": "text", "page_size": "limit",
    "path": "name", "search_query": "contains", "size": "limit", "to": "last", "to_date": "until",
}  # fmt: skip
"""The fields of the API that commands call otherwise."""

_FIELD = re.compile(r"([a-z]+(?:_[a-z]+)*)((?:[.\[][^\s:]*)?): ")
_NAME = re.compile(r"(?<![\w.])[a-z]+(?:_[a-z]+)+(?![\w.])")


def in_options(error: OpenMemoryError, arguments: Sequence[str]) -> str:
    """The message and its hint on one line. What the API calls a field has the name of the option or argument of the
    command that was called: `--limit`, not `size`. Errors of the settings name those as they are."""
    if isinstance(error, SetupError):
        return one_line(error)
    message, names = one_line(error), _names_in(arguments)
    start = 0
    if (field := _FIELD.match(message)) and (option := names.get(field[1])):
        inside = field[2].strip(".[]")
        message = f"{option}: {'' if inside.isdigit() or not inside else f'{inside}: '}{message[field.end() :]}"
        if inside:
            return message  # what stands in a JSON value has the names of the API
        start = len(option)
    return message[:start] + _NAME.sub(lambda match: names.get(match[0], match[0]), message[start:])


def _names_in(arguments: Sequence[str]) -> dict[str, str]:
    """The options and arguments of the command that was called, by the names that the API has for them."""
    from typer.main import get_command

    from openmemory.doors.cli.commands import narrow

    command = get_command(narrow(arguments))
    for name in arguments:
        if name not in (commands := getattr(command, "commands", {})):
            break
        command = commands[name]
    options = {
        str(one.name).rstrip("_"): max(one.opts, key=len) if one.param_type_name == "option" else str(one.metavar)
        for one in command.params
    }
    options |= {field: options[name] for field, name in _PARAMETERS.items() if name in options and field not in options}
    return options | {f"{name}{end}": word for name, word in options.items() for end in ("s", "_id", "_ids")} | options
