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

    Starts the service in the background if none runs on the data folder; its log is serve.log there.
    """
    import asyncio

    from app.cli.client import credential
    from app.cli.finding import find_or_start

    settings = load_settings(config, data_dir=data_dir)
    flags = [] if data_dir is None else ["--data-dir", data_dir]
    if config is not None:
        flags += ["--config", str(config)]
    url = find_or_start(settings, flags)
    from app.mcp.bridge import bridge

    asyncio.run(bridge(url, settings, credential(settings), client=client, user=user))
