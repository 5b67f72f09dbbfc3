"""A shell's `openmemory` that is forked from a process with everything imported, as `tests.warm` does it.

The shell finds a small program of that name, which starts in a twentieth of the time. It passes its arguments, its
environment, its folder and its streams to the tests, and ends as the command does that was forked with them.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import warm

MAX_SECONDS = 120.0
"""Seconds that a command may take."""

_CLIENT = """#!{python} -IS
import json, os, socket, sys
order = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}}
with socket.socket(socket.AF_UNIX) as door:
    door.connect({address!r})
    socket.send_fds(door, [b" "], [0, 1, 2])
    door.sendall(json.dumps(order).encode())
    door.shutdown(socket.SHUT_WR)
    code = int(door.makefile().read() or 1)
sys.exit(code if code >= 0 else 128 - code)
"""


@contextmanager
def warm_path(place: Path) -> Iterator[str]:
    """Puts the program into a folder of `place`, and returns that folder to put before the others of a PATH.

    Where processes cannot be forked safely it is empty, so that the shell finds the command itself.
    """
    folder, address = place / "warm", place / "warm.sock"
    folder.mkdir()
    if not warm.available():
        yield str(folder)
        return
    program = folder / "openmemory"
    program.write_text(_CLIENT.format(python=sys.executable, address=str(address)), encoding="utf-8")
    program.chmod(0o755)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            _forked(self.request, folder)

    with socketserver.ThreadingUnixStreamServer(str(address), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield str(folder)
        finally:
            server.shutdown()
            thread.join()


def _forked(door: socket.socket, folder: Path) -> None:
    """Runs one command to its end, and answers with its exit code."""
    door.settimeout(MAX_SECONDS)
    _, streams, _, _ = socket.recv_fds(door, 1, 3)
    try:
        order = json.loads(door.makefile("rb").read())
        environment = order["environment"]
        # The command knows nothing of the program before it.
        folders = environment["PATH"].split(os.pathsep)
        environment["PATH"] = os.pathsep.join(each for each in folders if each != str(folder))
        command = warm.Command(order["arguments"], streams, environment, Path(order["folder"]))
    finally:
        for number in streams:
            os.close(number)
    try:
        door.sendall(b"%d" % command.wait(MAX_SECONDS))
    finally:
        command.kill()
