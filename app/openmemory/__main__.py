"""The `openmemory` command."""

from __future__ import annotations

import io
import sys

from openmemory.cli.commands import cli
from openmemory.cli.exits import Exit, exit_of, one_line
from openmemory.errors import OpenMemoryError


def main() -> None:
    """Run the command line. A failure is reported as one line on standard error and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A memory may contain characters that the terminal's encoding cannot represent.
            stream.reconfigure(errors="backslashreplace")
    try:
        cli(prog_name="openmemory")
    except OpenMemoryError as error:
        print(f"openmemory: {one_line(error)}", file=sys.stderr)
        sys.exit(exit_of(error))
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)


if __name__ == "__main__":
    main()
