"""`openmemory open`: opens the page in the browser."""

from __future__ import annotations

from openmemory.doors.cli.options import ConfigFile, DataDir, Json, load_settings
from openmemory.doors.cli.output import CommandAnswer


def open_(data_dir: DataDir = None, config: ConfigFile = None, json: Json = False) -> None:
    """Open the page in the browser. Start the service if it is not running, and always print the address."""
    import webbrowser

    from openmemory.doors.cli.finding import find_or_start

    settings = load_settings(config, data_dir=data_dir)
    address = (
        find_or_start(settings, [] if settings.file is None else ["--config", str(settings.file.absolute())]) + "/"
    )
    opened = webbrowser.open(address)
    words = "" if opened else " No browser could be started here: open the address yourself."
    CommandAnswer({"url": address, "opened": opened}, address + words).show(json=json)
