"""Our Qdrant front as a process of its own, to be stopped, killed and started again on the same port and folder."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from socket import socket

import httpx

from tests.journeys.service import START, until
from tests.warm import clean_environment

ROOT = Path(__file__).parents[2]


class Qdrant:
    """The process; not running until `start`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with (self.folder.parent / "qdrant.log").open("ab") as log:
            command = [sys.executable, "-m", "tests.faults.qdrant", str(self.folder), str(self.port)]
            self.process = subprocess.Popen(command, cwd=ROOT, env=clean_environment(), stdout=log, stderr=log)
        until(self._answers, START)

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """Ask it to end, and wait."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "the front ended at once"
        with suppress(httpx.HTTPError):
            return httpx.get(self.url, timeout=1).status_code == 200
        return False


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with closing(socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    import uvicorn

    from openmemory.index.engine.rest_api import QdrantRestApi

    uvicorn.run(
        QdrantRestApi(Path(sys.argv[1])), port=int(sys.argv[2]), log_level="warning", timeout_graceful_shutdown=3
    )
