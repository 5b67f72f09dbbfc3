"""The options that commands share. This module must be cheap to import, because `--help` reads every signature."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openmemory.doors.cli import times

if TYPE_CHECKING:
    from collections.abc import Mapping

    from openmemory.config.settings import Settings
    from openmemory.config.settings_file import SettingsFile

_WHERE, SCOPE = "Service options", "Scope options"
"""The groups of options in `--help`."""

DataDir = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="The data folder of the built-in stores.", rich_help_panel=_WHERE),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The settings file; default: openmemory.toml in this folder, if you confirmed it.",
        rich_help_panel=_WHERE,
    ),
]
Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Use the service at this URL, such as http://host:8765.", rich_help_panel=_WHERE),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
User = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The user; default: that of the service.", rich_help_panel=SCOPE),
]
App = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The app that writes; default: access.default_app.", rich_help_panel=SCOPE),
]
OnlyApp = Annotated[
    str | None,
    typer.Option("--app", metavar="NAME", help="Only memories that this app wrote.", rich_help_panel=SCOPE),
]
AsApp = Annotated[
    str | None,
    typer.Option("--app", metavar="NAME", help="Ask as this app, with its rules.", rich_help_panel=SCOPE),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The project, or a folder of it such as `.`; default: that of this folder.",
        rich_help_panel=SCOPE,
    ),
]
About = Annotated[
    str | None,
    typer.Option(metavar="person|project", help="person: store it for the user, in no project.", rich_help_panel=SCOPE),
]
Toolsets = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="More tools to offer: context, files, projects and others.", show_default=False),
]
OnlyTools = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="NAME",
        help="Offer these tools alone: those of mempack, devmemory or pimemento, or of a toolset.",
        show_default=False,
    ),
]
AllProjects = Annotated[bool, typer.Option("--all-projects", help="Every project of the user.", rich_help_panel=SCOPE)]
Thread = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The conversation inside the namespace.", rich_help_panel=SCOPE),
]
Kind = Annotated[str | None, typer.Option(metavar="NAME", help="The sort of memory, such as preference or decision.")]
Category = Annotated[list[str] | None, typer.Option(metavar="NAME", help="A category; may be repeated.")]
Metadata = Annotated[str | None, typer.Option(metavar="JSON", help='Its metadata, such as \'{"source": "standup"}\'.')]
TtlDays = Annotated[int | None, typer.Option(metavar="N", min=1, max=36_500, help="The memory expires after N days.")]
ExpiresAt = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        callback=times.start_or_never,
        help="When the memory expires: a date or a time, such as 2027-01-31; `update` also takes never.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        callback=times.start,
        help="Only from this time on: a date, a time, or words such as yesterday or '2 days ago'.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", callback=times.end, help="Only until the end of this time, such as 2026-01-31 or 'last week'."
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", callback=times.end, help="The time: a date, which means its end, a time, or 'last week'."
    ),
]
Query = Annotated[list[str], typer.Argument(metavar="QUERY", help="The text to search for; it needs no quotes.")]
PageSize = Annotated[int, typer.Option("--limit", "-n", min=1, max=100, metavar="N", help="Memories on a page.")]
Rows = Annotated[int, typer.Option("--limit", "-n", min=1, max=100, metavar="N", help="Rows on a page.")]
PageNumber = Annotated[int, typer.Option("--page", min=1, metavar="N", help="The page to show.")]


def words(arguments: list[str] | None) -> str | None:
    """The text that several arguments make; None if there are none."""
    return " ".join(arguments) if arguments else None


def json_of(text: str | None, option: str = "--metadata") -> Any:
    """The value of an option that is JSON, which the service validates; None if it was not given.

    Raises:
        Invalid: it is not JSON.
    """
    from openmemory.errors import Invalid
    from openmemory.serialization import exact_json

    if text is None:
        return None
    try:
        return exact_json.loads(text)
    except ValueError as error:
        raise Invalid(option, f"must be valid JSON: {error}") from None


def location_options(data_dir: str | None, config: Path | None, environ: Mapping[str, str] | None = None) -> list[str]:
    """The options that lead another process, in whatever folder and environment it runs, to the same stores and
    settings. `environ`: the variables that count; None: those of this process."""
    from openmemory.config.settings import environment
    from openmemory.config.settings_file import named_file

    environ = environment() if environ is None else environ
    data_dir = data_dir or environ.get("OPENMEMORY_DATA_DIR")
    config = named_file(config, environ=environ)
    options = ["--data-dir", str(Path(data_dir).expanduser().absolute())] if data_dir else []
    return options + (["--config", str(config)] if config else [])


def load_settings(config: Path | None, *, here: bool = True, **flags: Any) -> Settings:
    """The settings with the flags of a command; None means that a flag was not given. `here`: a settings file in the
    working folder counts if the user confirmed it, and so do the variables of older memory servers.

    Raises:
        SetupError: the settings cannot be used, or the file in the working folder is not confirmed.
    """
    from openmemory.config import settings
    from openmemory.config.settings_file import named_file

    file: Path | SettingsFile | None = config
    if here and named_file(config) is None:
        from openmemory.doors.cli.folder_settings import confirmed_file

        file = confirmed_file()
    return settings.load(file, flags=flags, inherit=here)
