"""The `openmemory` command."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run the command line. A failure is reported as one line on standard error and an exit code."""
    if sys.argv[1:2] == ["hook"] and not {"-h", "--help"} & {*sys.argv}:
        # Importing the other commands takes longer than a hook may take.
        from openmemory.doors.cli.hook import run

        run(sys.argv[2:])
    from openmemory.doors.cli.commands import narrow
    from openmemory.doors.cli.option_names import in_options
    from openmemory.doors.server.exits import Exit, exit_of
    from openmemory.errors import OpenMemoryError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A memory may contain characters that the terminal's encoding cannot represent.
            stream.reconfigure(errors="backslashreplace")
    try:
        narrow(sys.argv[1:])(prog_name="openmemory")
    except OpenMemoryError as error:
        print(f"openmemory: {in_options(error, sys.argv[1:])}", file=sys.stderr)
        sys.exit(exit_of(error))
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)


if __name__ == "__main__":
    main()
