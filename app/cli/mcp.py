"""`openmemory mcp`: the service as an MCP server on standard input and output."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.options import ConfigFile, DataDir, User, load_settings


def mcp(
    client: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The assistant that connects, such as claude.", show_default=False),
    ] = None,
    user: User = None,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Speak MCP on standard input and output, for assistants that start their servers themselves.

    Starts the service in the background if none runs on the data folder; its log is serve.log there. An openmemory.toml
    in the working folder is not read: name yours with --config, or put it into the data folder.
    """
    import asyncio

    from app.cli.client import credential
    from app.cli.finding import find_or_start
    from app.config import named_file

    # An assistant starts this in the folder of whatever it works on, whose openmemory.toml is not the person's word.
    config = named_file(config)
    settings = load_settings(config, here=False, data_dir=data_dir)
    url = find_or_start(settings, [] if config is None else ["--config", str(config)])
    from app.mcp.bridge import bridge

    asyncio.run(bridge(url, settings, credential(settings), client=client, user=user))
