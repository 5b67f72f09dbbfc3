"""`openmemory stop`: stops the service of a data folder."""

from __future__ import annotations

from openmemory.cli.options import ConfigFile, DataDir, Json, load_settings


def stop(data_dir: DataDir = None, config: ConfigFile = None, json: Json = False) -> None:
    """Stop the service of the data folder and wait until it is gone."""
    from openmemory.cli.finding import stop_service
    from openmemory.cli.output import as_json

    info = stop_service(load_settings(config, data_dir=data_dir))
    if json:
        as_json({"pid": info.pid, "url": info.url})
    else:
        print(f"Stopped process {info.pid}, which listened on {info.url}.")
