"""The data folder and its single owner: the process that serves the embedded stores in it."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
import weakref
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import platformdirs
import psutil

from openmemory.embedded.account import obstacle, server_account
from openmemory.errors import SetupError, Unavailable

_SYSTEM_FOLDER = Path("/var/lib/openmemory")
_LOCK = "openmemory.lock"
_INFO = "service.json"
_LOCAL_KEY = "local.key"
_TEMPORARY = "tmp"
_ANOTHER = "choose another with --data-dir"
_PATIENCE = 0.5
"""Seconds that an owner may take between locking and publishing its details. A probe holds the lock far shorter."""


class NotReadable(SetupError):
    """This account cannot read the data folder. `url`: the address of its service, if its details can be read."""

    def __init__(self, message: str, url: str) -> None:
        super().__init__(message)
        self.url = url


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """The owner of a data folder. `url` is empty until the service listens.

    `process_started` is in epoch seconds and distinguishes the owner from another process with a reused pid.
    """

    pid: int
    process_started: float
    url: str
    started_at: datetime
    version: str

    def is_alive(self) -> bool:
        """Returns True if exactly that process is running, as far as this process can see."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.process_started) < 2
            return bool(same and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False


class DataFolder:
    """A data folder that this process owns until `release()` or the end of the process."""

    def __init__(self, path: Path, lock: int, started_at: datetime) -> None:
        self.path = path
        self._lock: int | None = lock
        self._started_at = started_at
        _owned.add(self)

    @classmethod
    def claim(cls, path: Path, *, listen: str) -> DataFolder:
        """Create the folder if it is missing and become its owner.

        `listen`: the service's URL if it is known already. Otherwise `publish` sets it later.

        Raises:
            SetupError: the folder cannot be used, or another process owns it; the message names it and its URL.
        """
        path = path.expanduser().absolute()
        try:
            _make(path)
            path = path.resolve()
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _take(lock, path)
                if (path / _TEMPORARY).exists():  # may contain files of a killed owner
                    shutil.rmtree(path / _TEMPORARY)
                folder = cls(path, lock, datetime.now(UTC))
            except BaseException:
                os.close(lock)
                raise
            try:
                folder.publish(listen)
            except BaseException:
                folder.release()
                raise
            return folder
        except OSError as error:
            raise _unusable(path, error) from error

    def publish(self, url: str) -> None:
        """Publish the address of the service to clients."""
        if self._lock is None:
            raise RuntimeError(f"{self.path} is released")
        me = psutil.Process()
        info = ServiceInfo(me.pid, me.create_time(), url, self._started_at, version("openmemory-server"))
        text = json.dumps(asdict(info) | {"started_at": info.started_at.isoformat()}, indent=2) + "\n"
        draft = self.path / f"{_INFO}.new"
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(self.path / _INFO)
        except OSError as error:
            raise _unusable(self.path, error) from error

    def local_key(self) -> str:
        """Returns the credential of those who may read this folder, and with it everything. Created with the folder."""
        path = self.path / _LOCAL_KEY
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            if key := local_key(self.path):
                return key
            path.unlink()  # a crash occurred between its creation and its writing
            return self.local_key()
        except OSError as error:
            raise _unusable(self.path, error) from error
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"local_{secrets.token_urlsafe(32)}\n")
            file.flush()
            os.fsync(file.fileno())
        return self.local_key()

    def release(self) -> None:
        """Release the folder. Calling it twice is fine."""
        if self._lock is None:
            return
        # The lock file is kept: if it were unlinked, two processes could each lock a file of that name.
        (self.path / _INFO).unlink(missing_ok=True)
        (self.path / f"{_INFO}.new").unlink(missing_ok=True)
        self._disown()

    def _disown(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


_owned: weakref.WeakSet[DataFolder] = weakref.WeakSet()


def _disown_in_child() -> None:
    for folder in list(_owned):
        folder._disown()


# flock belongs to the open file: a forked child that kept it open would own the folder after our exit.
os.register_at_fork(after_in_child=_disown_in_child)


def default_data_dir() -> Path:
    """Returns the platform's user data folder, or `/var/lib/openmemory` for root if PostgreSQL cannot enter the home.

    A folder that already has content takes precedence, so that changed permissions of a home never seem to lose data.

    Raises:
        SetupError: this account has no home folder.
    """
    try:
        home = platformdirs.user_data_path("openmemory", appauthor=False)
    except RuntimeError:
        raise SetupError("This account has no home folder for the data: set data_dir (OPENMEMORY_DATA_DIR)") from None
    account = server_account()
    if account is None or _holds_something(home):
        return home
    if _holds_something(_SYSTEM_FOLDER) or obstacle(home, account):
        return _SYSTEM_FOLDER
    return home


def temporary(path: Path) -> Path:
    """Returns the folder for temporary files in a data folder. Created if missing, and emptied by the next owner.

    Other places may not be writable, and the system's own temporary folder may be in memory.
    """
    folder = path / _TEMPORARY
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def local_key(path: Path) -> str | None:
    """Returns the credential of those who may read the folder; None for others, or if no service has run yet."""
    try:
        return (path.expanduser() / _LOCAL_KEY).read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def running_service(path: Path) -> ServiceInfo | None:
    """Returns the current owner of the folder without claiming it. None if there is none, whatever a dead owner left.

    Raises:
        NotReadable: this account cannot read the folder.
        SetupError: the folder cannot be read.
        Unavailable: a process owns it and does not publish its details.
    """
    path = path.expanduser().absolute()
    try:
        lock = os.open(path / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        info = _read(path)
        raise NotReadable(_unusable(path, error).message, "" if info is None else info.url) from error
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        return _locked_or_owner(lock, fcntl.LOCK_SH, path)
    finally:
        os.close(lock)


def _make(path: Path) -> None:
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() == 0:
            folder.chmod(0o711)
    if not path.is_dir():
        raise SetupError(f"{path}: is not a folder; {_ANOTHER}")


def _take(lock: int, path: Path) -> None:
    try:
        owner = _locked_or_owner(lock, fcntl.LOCK_EX, path)
    except Unavailable:
        raise SetupError(f"{path}: data folder in use by another process") from None
    if owner is not None:
        where = f"which listens on {owner.url}" if owner.url else "which does not listen yet"
        raise SetupError(f"{path}: data folder in use by process {owner.pid}, {where}")


def _locked_or_owner(lock: int, how: int, path: Path) -> ServiceInfo | None:
    """Takes the lock and returns None, or returns the details of the owner that has it.

    Raises:
        Unavailable: a process owns it and does not publish its details.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            info, late = _read(path), time.monotonic() > deadline
        else:
            return None
        # An owner in another pid namespace cannot be seen: after the grace period, the lock is proof enough.
        if info is not None and (late or info.is_alive()):
            return info
        if late:
            raise Unavailable(f"{path}: data folder in use by a process that does not say where it listens")
        time.sleep(0.01)


def _read(path: Path) -> ServiceInfo | None:
    try:
        fields = json.loads((path / _INFO).read_text(encoding="utf-8"))
        return ServiceInfo(
            pid=int(fields["pid"]),
            process_started=float(fields["process_started"]),
            url=str(fields["url"]),
            started_at=datetime.fromisoformat(fields["started_at"]),
            version=str(fields["version"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _holds_something(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


def _unusable(path: Path, error: OSError) -> SetupError:
    return SetupError(f"{path}: cannot be used as the data folder: {error.strerror}; {_ANOTHER}")
