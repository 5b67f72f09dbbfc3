"""The options that commands share. This module must be cheap to import, because `--help` reads every signature."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from openmemory.config.settings import Settings

DataDir = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="Folder of the built-in stores.", show_default=False)
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings; default: openmemory.toml here.", show_default=False),
]
Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help="A service elsewhere, such as http://host:8765.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Answer as JSON.")]
User = Annotated[
    str | None, typer.Option(metavar="NAME", help="Whose memories; default: access.default_user.", show_default=False)
]
App = Annotated[str | None, typer.Option(metavar="NAME", help="The app that wrote them.", show_default=False)]
Namespace = Annotated[
    str | None, typer.Option(metavar="NAME", help="A project or workspace of the user.", show_default=False)
]


def load_settings(config: Path | None, *, here: bool = True, **flags: Any) -> Settings:
    """The settings with the flags of a command; None means that a flag was not given. `here`: a configuration file in
    the working folder is read."""
    from openmemory.config import settings

    return settings.load(config, flags=flags, here=here)
