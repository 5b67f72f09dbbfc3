"""`openmemory serve`: runs the service in the foreground."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from openmemory.doors.cli.options import ConfigFile, DataDir, load_settings
from openmemory.errors import SetupError

if TYPE_CHECKING:
    from socket import socket

    from openmemory.config.settings import Settings


def serve(
    data_dir: DataDir = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The address to listen on.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="The port; 0 selects a free one.", show_default="8765")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="The number of processes; on Windows only 1.", show_default="1"),
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Run the service until Ctrl-C. A second Ctrl-C stops it immediately."""
    settings = load_settings(config, data_dir=data_dir, host=host, port=port, workers=workers)
    if sys.platform == "win32" and settings.workers > 1:
        raise SetupError("workers: must be 1 on Windows, where two processes cannot accept on one socket")
    sockets = _listen(settings)
    # The start produces almost no garbage, and collecting it would take a tenth of the start time.
    gc.disable()
    try:
        if settings.workers > 1:
            from openmemory.doors.server.workers import run
        else:
            from openmemory.doors.server.processes import run
        run(settings, sockets)
    except KeyboardInterrupt:  # before the server installed its signal handler
        return
    finally:
        gc.enable()
        for listener in sockets:
            listener.close()


def _listen(settings: Settings) -> list[socket]:
    from openmemory.doors.server.sockets import PortInUse, listen

    try:
        return listen(settings.host, settings.port)
    except PortInUse:
        from openmemory.doors.cli.finding import who_listens

        if owner := who_listens(settings):
            raise SetupError(f"port {settings.port} is taken by {owner}") from None
        raise
