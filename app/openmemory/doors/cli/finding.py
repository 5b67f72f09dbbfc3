"""Finds, starts and stops the service of a data folder, and reports which program uses a port."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil

from openmemory.config.legacy_env import SWITCH
from openmemory.config.settings import Settings, environment
from openmemory.config.settings_file import FILE_NAME
from openmemory.doors.server.sockets import ANOTHER_PORT, PortInUse, listen
from openmemory.embedded.folder import DataFolder, NotReadable, ServiceInfo, default_data_dir, running_service
from openmemory.errors import NotFound, SetupError, Unavailable

_LOG = "serve.log"
_LOG_LIMIT = 10_000_000
_START_PATIENCE = 90.0
"""Seconds within which a service must open its stores, for example on first start or on recovery after a crash."""
_BUSY_PATIENCE = 15.0
"""Seconds to wait for a command that opened the stores itself."""
_STOP_PATIENCE = 15.0


def data_folder(settings: Settings) -> Path:
    """The data folder of the settings."""
    return Path(settings.data_dir).expanduser().absolute() if settings.data_dir else default_data_dir()


def is_empty(settings: Settings) -> bool:
    """Returns True if the data folder does not exist, or holds nothing."""
    folder = data_folder(settings)
    return not folder.is_dir() or not any(folder.iterdir())


def has_address(info: ServiceInfo) -> bool:
    """Returns True if the folder's owner is a service. A command that opened the stores itself does not listen."""
    return info.url.startswith("http")


def reachable_service(settings: Settings) -> str | None:
    """The URL of the service on the data folder once it answers; None if no process owns the folder.

    Raises:
        SetupError: the folder cannot be read. If it belongs to another account, the message says how to use its
            service.
        Unavailable: the process that owns the folder did not answer in time.
    """
    folder = data_folder(settings)
    began = time.monotonic()
    while (info := _owner_of(folder, settings)) is not None:
        if has_address(info) and _answers(info.url):
            return info.url
        if time.monotonic() - began > (_START_PATIENCE if has_address(info) else _BUSY_PATIENCE):
            raise Unavailable(
                f"{folder}: in use by process {info.pid}, which listens on {info.url} and does not answer"
            )
        time.sleep(0.05)
    return None


def find_or_start(settings: Settings, flags: list[str]) -> str:
    """The URL of the service on the data folder. Starts one in the background if none runs.

    `flags`: the options of `openmemory serve` that give the same settings, without the data folder.

    Raises:
        SetupError: the service cannot start with this configuration.
        Unavailable: the service was not ready in time.
    """
    deadline = time.monotonic() + _START_PATIENCE
    started: tuple[subprocess.Popen[bytes], Path] | None = None
    while (url := reachable_service(settings)) is None:
        if started is None:
            started = _start(settings, flags)
        process, log = started
        if process.poll() is not None and running_service(data_folder(settings)) is None:
            # If another command started a service at the same time, that one is used instead.
            raise SetupError(f"the service did not start: {_last_line(log)} (see {log})")
        if time.monotonic() > deadline:
            raise Unavailable(f"the service was not ready in time; see {log}")
        time.sleep(0.02)
    return url


def stop_service(settings: Settings) -> ServiceInfo:
    """Stops the service of the data folder and waits until it has ended.

    Raises:
        NotFound: no service runs there.
        Unavailable: the service does not end, or this account may not stop it.
    """
    folder = data_folder(settings)
    info = running_service(folder)
    if info is None or not has_address(info):
        raise NotFound(f"{folder}: no service is running on this data folder")
    if not info.is_alive():
        raise Unavailable(f"process {info.pid} runs in another container or on another machine; stop it there")
    try:
        os.kill(info.pid, signal.SIGTERM)
    except ProcessLookupError:
        return info
    except PermissionError:
        raise Unavailable(f"process {info.pid} belongs to another account; stop it as that account") from None
    deadline = time.monotonic() + _STOP_PATIENCE
    while info.is_alive():
        if time.monotonic() > deadline:
            raise Unavailable(
                f"process {info.pid} does not stop; `kill -9 {info.pid}` is safe, no stored memory is lost"
            )
        time.sleep(0.02)
    return info


def who_listens(settings: Settings) -> str | None:
    """The program that listens on the configured port, as far as this account can see it."""
    info = running_service(data_folder(settings))
    if info is not None and has_address(info) and urlsplit(info.url).port == settings.port:
        return f"the service of {data_folder(settings)}: process {info.pid}, which listens on {info.url}"
    process = _listener(settings.port)
    url = _configured_url(settings)
    if _is_openmemory(url):
        who = f"process {process.pid}" if process else "a process of another account"
        use = f"use it with `openmemory mcp --url {url}`"
        return f"another OpenMemory: {who}, which listens on {url}; {use}, or {ANOTHER_PORT}"
    if process is not None:
        return f"process {process.pid} ({process.name()}); {ANOTHER_PORT}"
    return None


def _owner_of(folder: Path, settings: Settings) -> ServiceInfo | None:
    try:
        return running_service(folder)
    except NotReadable as error:
        # The folder belongs to another account. Use its service's URL if that is readable, otherwise try our own port.
        url = error.url if error.url.startswith("http") else _configured_url(settings)
        if not _is_openmemory(url):
            raise
        raise SetupError(f"{error.message}, or use the service of that account with --url {url}") from None


def _configured_url(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


def _start(settings: Settings, flags: list[str]) -> tuple[subprocess.Popen[bytes], Path]:
    # Claiming the folder briefly creates it as the service would, and shows early if it cannot be used.
    folder = DataFolder.claim(data_folder(settings), listen=f"no port (process {os.getpid()} starts the service)")
    try:
        path = folder.path / _LOG
        if path.exists() and path.stat().st_size > _LOG_LIMIT:
            path.unlink()
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    finally:
        folder.release()
    try:
        if "port" not in settings.model_fields_set and not _is_free(settings):
            flags = [*flags, "--port", "0"]
        if "--config" not in flags and (file := folder.path / FILE_NAME).is_file():
            flags = [*flags, "--config", str(file)]
        # -P: do not import from a folder `app` in the working folder.
        command = [sys.executable, "-P", "-m", "openmemory", "serve", "--data-dir", str(folder.path), *flags]
        # The service runs in the data folder: neither the folder that an assistant works in nor the variables set for
        # that work may provide settings.
        process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=folder.path,
            env={**environment(), SWITCH: "off"},
        )  # fmt: skip
    finally:
        os.close(log)
    return process, path


def _is_free(settings: Settings) -> bool:
    try:
        sockets = listen(settings.host, settings.port)
    except PortInUse:
        return False
    for listener in sockets:
        listener.close()
    return True


def _answers(url: str) -> bool:
    try:
        return _health(url, patience=5).is_success
    except httpx.HTTPError:
        return False


def _is_openmemory(url: str) -> bool:
    try:
        answer = _health(url, patience=2)
        return answer.is_success and answer.json().get("service") == "openmemory"
    except (httpx.HTTPError, ValueError, AttributeError):
        return False


def _health(url: str, *, patience: float) -> httpx.Response:
    # Loading all CA certificates takes longer than the response, so it is done only for https.
    secure = url.startswith("https://")
    return httpx.get(f"{url}/health/live", timeout=patience, trust_env=False, verify=secure)


def _listener(port: int) -> psutil.Process | None:
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:2] == (port,) and connection.pid:
                return psutil.Process(connection.pid)
    except psutil.Error:
        return None
    return None


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4_096))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("openmemory: ") if lines else "it said nothing"
