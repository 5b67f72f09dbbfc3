"""`openmemory mcp`: runs an MCP server on standard input and output."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from openmemory.doors.cli import project
from openmemory.doors.cli.options import ConfigFile, DataDir, OnlyTools, Toolsets, Url, User, load_settings


def mcp(
    *,
    client: Annotated[str | None, typer.Option(metavar="NAME", help="The assistant's name, such as claude.")] = None,
    user: User = None,
    data_dir: DataDir = None,
    config: ConfigFile = None,
    url: Url = None,
    toolsets: Toolsets = None,
    only: OnlyTools = None,
) -> None:
    """Run an MCP server on standard input and output.

    It is for assistants that start their servers as programs. It starts the service in the background if none runs on
    the data folder, and logs to serve.log there. An openmemory.toml in the working folder is ignored: use --config, or
    put the file into the data folder. With --url, it uses the service at that URL, with the key in OPENMEMORY_API_KEY.
    """
    import asyncio

    from openmemory.config.settings import client_key
    from openmemory.config.settings_file import named_file
    from openmemory.doors.cli.client import checked_url, credential
    from openmemory.doors.cli.finding import find_or_start

    # An assistant starts this in the folder it works on. An openmemory.toml there does not express the user's choice.
    config = named_file(config)
    settings = load_settings(config, here=False, data_dir=data_dir)
    if url is None:
        address = find_or_start(settings, [] if config is None else ["--config", str(config)])
        key = credential(settings)
    else:
        address, key = checked_url(url).rstrip("/"), client_key()
    from openmemory.doors.cli.checkout import Checkout
    from openmemory.doors.mcp.transport.bridge import HereProject, bridge

    folder = os.getcwd()  # noqa: PTH109 - `pathlib` is not needed otherwise
    folder_project = project.of_folder(folder)
    note = project.UNCONFIRMED if folder_project.unconfirmed else None
    root = project.repository(folder) or folder
    here = (
        None
        if folder_project.namespace is None
        else HereProject(folder_project.namespace, root, Checkout(folder), note)
    )
    options = {"toolsets": toolsets, "only": only}
    asyncio.run(bridge(address, settings, key, client=client, user=user, own=url is None, project=here, **options))
