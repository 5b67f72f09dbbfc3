"""A Qdrant server for benchmarks: the built-in engine behind Qdrant's protocol, in a process of its own.

python -m benchmarks.front FOLDER PORT
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from socket import socket

import httpx
import uvicorn

from openmemory.index.engine.rest_api import QdrantRestApi

START = 60.0
"""Seconds that the start may take."""


@contextmanager
def running_front(folder: Path) -> Iterator[str]:
    """The address of a front over a folder."""
    with closing(socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.front", str(folder), str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(process, url)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=20)


def _wait(process: subprocess.Popen, url: str) -> None:
    deadline = time.monotonic() + START
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the front ended with {process.returncode}")
        try:
            if httpx.get(url, timeout=1).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.05)
    raise RuntimeError("the front did not answer")


if __name__ == "__main__":
    uvicorn.run(QdrantRestApi(Path(sys.argv[1])), port=int(sys.argv[2]), log_level="error")
