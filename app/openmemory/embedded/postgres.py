"""The built-in PostgreSQL: a full server of our own, reached over a private unix socket and kept running."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psycopg
from sqlalchemy.engine import URL

from openmemory.embedded import server_log, sockets
from openmemory.embedded.account import obstacle, owner_name, server_account
from openmemory.embedded.authentication import restricted
from openmemory.embedded.binaries import Binaries, installed, runnable_by
from openmemory.embedded.folder import DataFolder
from openmemory.embedded.memory import machine, shared_buffers
from openmemory.embedded.processes import end_servers, exited, kill_servers, launch, says_ready
from openmemory.errors import MOVE_BY_ARCHIVES, SetupError

logger = logging.getLogger(__name__)

_NAME = "openmemory"
_CONNECTIONS = 50
_RESERVED = 5
"""Extra connections: PostgreSQL reserves three for superusers, and we use one of them to set up the database."""
_ROOT_ROLE = "postgres"
_LOG_CHECK = 60.0
_DISCARD_TIMEOUT = 10.0
_SLOWEST_RESTART = 30.0
_STABLE = 60.0
"""Seconds of uptime after which an exit no longer counts as a failed restart."""

_SETTINGS = {
    # Small and quiet: a personal service beside other programs. Durability settings keep their defaults.
    "maintenance_work_mem": "32MB",
    "effective_cache_size": "1GB",
    "max_wal_size": "256MB",
    "min_wal_size": "32MB",
    "io_method": "sync",
    "max_worker_processes": "4",
    "max_parallel_workers": "2",
    # On two cores, a parallel worker takes from the service what it gives to the statement.
    "max_parallel_workers_per_gather": "1" if (os.cpu_count() or 1) > 2 else "0",
    "max_parallel_maintenance_workers": "1",
    "max_logical_replication_workers": "0",
    "autovacuum_max_workers": "2",
    "autovacuum_worker_slots": "4",
    "jit": "off",
    "random_page_cost": "1.1",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # The log never contains statements, because these contain what people asked to remember.
    "log_min_error_statement": "panic",
}


class EmbeddedPostgres:
    """The server of one data folder that we own. If started by root, it runs as `nobody`.

    Start and stop it on the same event loop. On Linux it shuts down when the thread of that loop ends, so that
    killing the service leaves no server behind. On other platforms the next start ends the orphan.
    """

    def __init__(
        self,
        folder: DataFolder,
        *,
        binaries: Binaries | None = None,
        start_timeout: float = 60.0,
        connections: int = _CONNECTIONS - _RESERVED,
    ) -> None:
        """`start_timeout`: seconds until the server must answer, which after a crash includes its recovery.

        `connections`: the maximum number of open connections, at least 45.
        """
        self._connections = max(_CONNECTIONS, connections + _RESERVED)
        self.folder = folder.path
        self.data = self.folder / "postgres"
        self.log = self.folder / "postgres.log"
        self.version = ""
        self.restarts = 0
        self._binaries = binaries
        self._timeout = start_timeout
        self._account = server_account()
        self._sockets = sockets.socket_folder(self.folder, self._account)
        self._access: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._launched = False
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The SQLAlchemy URL of the database."""
        where = {"host": str(self._sockets), "port": str(sockets.PORT)}
        return URL.create("postgresql+psycopg", username=_NAME, database=_NAME, query=where).render_as_string()

    @property
    def pid(self) -> int | None:
        """The postmaster's process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    async def start(self) -> None:
        """Create the database if there is none, take over from a dead owner, start the server and supervise it.

        Raises:
            SetupError: it cannot start; the message says why and what to do.
        """
        if self._supervisor is not None:
            raise RuntimeError("The built-in PostgreSQL is already started.")
        try:
            binaries = await asyncio.to_thread(self._prepare)
            if not self.data.is_dir():
                await self._initialise(binaries)
            await self._serve(binaries)
        except OSError as error:
            await self._shut_down()
            raise SetupError(f"{error.filename or self.folder}: {error.strerror}") from error
        except BaseException:
            await self._shut_down()
            raise
        self._supervisor = asyncio.create_task(self._supervise(binaries), name="embedded-postgres")

    async def stop(self) -> None:
        """Shut the server down within four seconds. Calling it twice is fine."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
            self._supervisor = None
        await self._shut_down()

    def _prepare(self) -> Binaries:
        """Check and repair the files on disk, and return the programs to run."""
        self._access = restricted(self.folder, self._account)
        if self._account and (closed := obstacle(self.folder, self._account)):
            raise SetupError(
                f"{self.folder}: started by root, the built-in PostgreSQL runs as {self._account.name}, which may not "
                f"enter {closed}; allow it (chmod o+x {closed}), choose another data_dir or start as an ordinary user"
            )
        server_log.bound(self.log)
        binaries = runnable_by(self._account, self._binaries or installed(), self.folder)
        for draft in self.folder.glob("postgres.new-*"):
            _discard(draft)
        if self.data.is_dir() and not any(self.data.iterdir()):
            self.data.rmdir()
        if self.data.exists():
            self._check_data(binaries)
        return binaries

    def _check_data(self, binaries: Binaries) -> None:
        try:
            major = (self.data / "PG_VERSION").read_text(encoding="utf-8").strip()
        except (FileNotFoundError, NotADirectoryError):
            raise SetupError(
                f"{self.data}: holds no PostgreSQL data (no PG_VERSION); restore it or move it away"
            ) from None
        if major != binaries.major:
            raise SetupError(
                f"{self.data}: written by PostgreSQL {major}, but this OpenMemory brings PostgreSQL {binaries.major}; "
                f"{MOVE_BY_ARCHIVES}"
            )
        owner, ours = self.data.stat().st_uid, self._account.uid if self._account else os.geteuid()
        if self._account and owner == 0:
            self._hand_over(self.data)
        elif owner != ours:
            raise SetupError(
                f"{self.data}: belongs to {owner_name(self.data)}; start OpenMemory as that user or change the owner"
            )

    def _hand_over(self, path: Path) -> None:
        """Give a folder to the server's account, the top last, so that an interruption is detected and repeated."""
        if self._account:
            for parent, _, files in os.walk(path, topdown=False):
                for each in (*(Path(parent, name) for name in files), Path(parent)):
                    os.chown(each, self._account.uid, self._account.gid, follow_symlinks=False)

    async def _initialise(self, binaries: Binaries) -> None:
        """Create the database cluster in a temporary folder and move it into place as a whole."""
        draft = self.folder / f"postgres.new-{secrets.token_hex(4)}"
        draft.mkdir(mode=0o700)
        self._hand_over(draft)
        options = "--locale=C --lc-ctype=C.UTF-8 --locale-provider=builtin --builtin-locale=C.UTF-8 --encoding=UTF8"
        closed = "--auth-local=reject --auth-host=reject --no-instructions"  # see `restricted`
        identity = ["-D", str(draft), "-U", _ROOT_ROLE]
        process = self._launch(binaries.program("initdb"), *identity, *options.split(), *closed.split())
        try:
            if not await exited(process, self._timeout) or process.returncode != 0:
                raise server_log.failure(self.log, "could not make its database")
            await asyncio.to_thread(self._move_in, draft)
        except BaseException:
            process.kill()
            process.wait()
            _discard(draft)
            raise

    def _move_in(self, draft: Path) -> None:
        draft.rename(self.data)
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _launch(self, *command: str | Path) -> subprocess.Popen[bytes]:
        log = server_log.open_log(self.log)
        try:
            return launch(command, self._account, log)
        finally:
            os.close(log)

    async def _serve(self, binaries: Binaries) -> None:
        """Start the server after ending any leftover one, and wait until it answers."""
        if ended := await asyncio.to_thread(end_servers, self.data):
            logger.warning("Stopped a PostgreSQL that an earlier service left running (processes %s).", ended)
        self._launched = True
        sockets.create(self._sockets, self._account)
        settings = _SETTINGS | {
            "shared_buffers": shared_buffers(machine()),
            "max_connections": str(self._connections),
            "listen_addresses": "",
            "port": str(sockets.PORT),
            "unix_socket_directories": f'"{self._sockets}"',
            "unix_socket_permissions": "0700",
            **self._access,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = self._launch(binaries.program("postgres"), "-D", self.data, *options)
        await self._ready(self._process)

    async def _ready(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the first connection, and use it to create the role and the database if they are missing."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        while True:
            if process.poll() is not None:
                raise server_log.failure(self.log, "does not start")
            # Polling the socket instead would log a refusal each time during a recovery.
            if says_ready(self.data, process.pid):
                try:
                    connection = await self._connect()
                    break
                except psycopg.OperationalError as error:
                    logger.debug("The built-in PostgreSQL does not answer yet: %s", error)
            if loop.time() > deadline:
                raise server_log.failure(self.log, f"does not answer within {self._timeout:g} s")
            await asyncio.sleep(0.01)
        async with connection:
            await self._furnish(connection)
            self.version = connection.info.parameter_status("server_version") or ""

    async def _connect(self) -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(
            host=str(self._sockets),
            port=sockets.PORT,
            user=_ROOT_ROLE,
            dbname="postgres",
            connect_timeout=5,
            autocommit=True,
        )

    async def _furnish(self, connection: psycopg.AsyncConnection) -> None:
        # Not a superuser: an injected statement could otherwise run programs. All extensions in use are trusted ones.
        if not await _one(connection, "SELECT count(*) FROM pg_roles WHERE rolname = %s"):
            async with connection.transaction():
                await connection.execute(f"CREATE ROLE {_NAME} LOGIN")
                # Errors of our own statements reach us anyway; their details would copy private texts to the log.
                await connection.execute(f"ALTER ROLE {_NAME} SET log_min_messages = 'log'")
        if not await _one(connection, "SELECT count(*) FROM pg_database WHERE datname = %s"):
            await connection.execute(f"CREATE DATABASE {_NAME} OWNER {_NAME}")

    async def _supervise(self, binaries: Binaries) -> None:
        """Restart the server whenever it ends: at once the first time, then with growing delays."""
        loop = asyncio.get_running_loop()
        delay, since = 0.0, loop.time()
        while True:
            if self._process is not None:
                while not await exited(self._process, _LOG_CHECK):
                    try:
                        await asyncio.to_thread(server_log.bound, self.log)
                    except OSError as error:  # such as a full disk: no reason to stop supervising
                        logger.warning("%s cannot be shortened: %s", self.log, error)
                logger.error(
                    "The built-in PostgreSQL ended (status %s) and is being restarted.", self._process.returncode
                )
                if loop.time() - since > _STABLE:
                    delay = 0.0
            await asyncio.sleep(delay)
            delay = min(max(0.1, 2 * delay), _SLOWEST_RESTART)
            try:
                await self._serve(binaries)
            except Exception:
                # Whatever the cause: without another attempt the service would stay without its database.
                logger.exception("The built-in PostgreSQL could not be restarted; next attempt in %g s.", delay)
                await self._end_process()
                continue
            self.restarts += 1
            since = loop.time()
            logger.warning("The built-in PostgreSQL is running again.")

    async def _shut_down(self) -> None:
        if self._launched:
            await self._end_process()
            await asyncio.to_thread(end_servers, self.data)
            sockets.remove(self._sockets)
            self._launched = False

    async def _end_process(self) -> None:
        """End our server: by fast shutdown, then without a checkpoint, then by force."""
        process, self._process = self._process, None
        if process is None:
            return
        for number, patience in ((signal.SIGINT, 2.0), (signal.SIGQUIT, 0.5), (signal.SIGKILL, 0.5)):
            process.send_signal(number)
            if await exited(process, patience):
                return


def _discard(draft: Path) -> None:
    """Remove an unfinished database. Its initdb may have outlived the owner that started it."""
    deadline = time.monotonic() + _DISCARD_TIMEOUT
    while draft.is_dir():
        # Again in each round: a killed initdb may leave a shell that is about to become a server.
        kill_servers(draft)
        try:
            shutil.rmtree(draft)
        except FileNotFoundError:
            continue  # a process that is just ending removes its own files
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or time.monotonic() > deadline:
                raise


async def _one(connection: psycopg.AsyncConnection, query: str) -> int:
    row = await (await connection.execute(query, (_NAME,))).fetchone()
    return int(row[0]) if row else 0
