"""A service of its own for a benchmark: started as its users start it, stopped in the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

HERE = Path(__file__).resolve().parent.parent

UNLIMITED = {f"OPENMEMORY_RATES_{what}": "0" for what in ("SAVES", "SEARCHES", "REQUESTS")}
"""What is measured is how fast it is, not how fast it lets itself be."""

START = 60.0
"""Seconds that the first start may take."""


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """A folder that everybody may pass through: started by root, the built-in PostgreSQL runs as somebody else."""
    with tempfile.TemporaryDirectory(prefix=f"om-{name}-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def python_of(checkout: Path) -> Path:
    """The interpreter of a checkout's virtual environment."""
    return Path(sys.executable) if checkout == HERE else checkout / ".venv" / "bin" / "python"


@contextmanager
def running_service(data_dir: Path, checkout: Path = HERE, **environment: str) -> Iterator[str]:
    """The address of a fresh `openmemory serve` on a free port, with its data in `data_dir` and the code of a
    checkout."""
    data_dir.mkdir(parents=True, exist_ok=True)
    log = (data_dir.parent / "serve.log").open("wb")
    process = subprocess.Popen(
        [python_of(checkout).parent / "openmemory", "serve", "--data-dir", str(data_dir.resolve()), "--port", "0"],
        cwd=data_dir,
        env=os.environ | {"OPENMEMORY_LOG_LEVEL": "warning"} | UNLIMITED | environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        yield _address(process, data_dir, Path(log.name))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
        log.close()


def _address(process: subprocess.Popen, data_dir: Path, log: Path) -> str:
    deadline = time.monotonic() + START
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the service ended with {process.returncode}:\n{log.read_text()}")
        try:
            url = json.loads((data_dir / "service.json").read_text())["url"]
            if url and httpx.get(f"{url}/health/ready", timeout=5).status_code == 200:
                return url
        except (OSError, ValueError, KeyError, httpx.HTTPError):
            pass
        time.sleep(0.05)
    raise RuntimeError(f"the service did not become ready:\n{log.read_text()}")


async def idle(url: str) -> None:
    """Wait until what was added is delivered, so that it is found by its meaning and disturbs no measurement."""
    async with httpx.AsyncClient(base_url=url) as http:
        for _ in range(400):
            found = (await http.get("/api/v1/doctor", timeout=60)).json()
            if not found.get("vectors_waiting", found.get("marks_waiting")):  # as earlier versions call it
                return
            await asyncio.sleep(0.3)
    raise TimeoutError("what was added is not delivered")
