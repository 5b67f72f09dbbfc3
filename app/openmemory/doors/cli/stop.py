"""`openmemory stop`: stops the service of a data folder."""

from __future__ import annotations

from openmemory.doors.cli.options import ConfigFile, DataDir, Json, load_settings
from openmemory.doors.cli.output import CommandAnswer


def stop(data_dir: DataDir = None, config: ConfigFile = None, json: Json = False) -> None:
    """Stop the service of the data folder. Waits until it has ended."""
    from openmemory.doors.cli.finding import stop_service

    info = stop_service(load_settings(config, data_dir=data_dir))
    answer = CommandAnswer(
        {"pid": info.pid, "url": info.url}, f"Stopped process {info.pid}, which listened on {info.url}."
    )
    answer.show(json=json)
