from __future__ import annotations

import asyncio
import logging
import os
import pty
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

import openmemory
from openmemory.embedded.account import server_account
from openmemory.embedded.binaries import installed
from openmemory.embedded.folder import DataFolder
from openmemory.embedded.postgres import EmbeddedPostgres
from openmemory.embedded.processes import environment, servers_of
from openmemory.errors import SetupError

Run = Callable[..., "subprocess.Popen[str]"]
Until = Callable[..., Awaitable[None]]

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's parent-death signal")
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts the server as another account")

OWNER = """
import asyncio, sys, threading
from pathlib import Path
from openmemory.embedded.folder import DataFolder
from openmemory.embedded.postgres import EmbeddedPostgres

async def main():
    postgres = EmbeddedPostgres(DataFolder.claim(Path(sys.argv[1]), listen="http://127.0.0.1:1"))
    await postgres.start()
    print(postgres.pid, flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        await postgres.stop()

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[AsyncConnection]:
    engine = create_async_engine(url, poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


async def remember(postgres: EmbeddedPostgres, words: str) -> None:
    async with connected(postgres.url) as connection:
        await connection.execute(text("CREATE TABLE IF NOT EXISTS notes (words text)"))
        await connection.execute(text("INSERT INTO notes VALUES (:words)"), {"words": words})


async def remembered(postgres: EmbeddedPostgres) -> list[str]:
    async with connected(postgres.url) as connection:
        return list((await connection.execute(text("SELECT words FROM notes ORDER BY words"))).scalars())


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def sleeper(user: int | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"], user=user)


def orphan(folder: DataFolder) -> subprocess.Popen[bytes]:
    """A server of the data folder that nobody watches over."""
    account, sockets = server_account(), folder.path / "run"
    sockets.mkdir(mode=0o700)
    if account:
        os.chown(sockets, account.uid, account.gid)
    return subprocess.Popen(
        [
            *(installed().program("postgres"), "-D", folder.path / "postgres"),
            *("-c", "listen_addresses=", "-c", f"unix_socket_directories={sockets}"),
            *("-c", f"hba_file={folder.path}/pg_hba.conf", "-c", f"ident_file={folder.path}/pg_ident.conf"),
        ],
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
        stderr=subprocess.DEVNULL,
        env=environment(),
        cwd="/",
    )


async def test_a_first_start_serves_a_database_with_what_search_needs(folder: DataFolder) -> None:
    postgres = EmbeddedPostgres(folder)
    await postgres.start()
    assert re.fullmatch(r"18\.\d+", postgres.version)
    async with connected(postgres.url) as connection:
        for extension in ("pg_trgm", "btree_gin", "unaccent"):
            await connection.execute(text(f"CREATE EXTENSION {extension}"))
        row = (
            await connection.execute(
                text(
                    "SELECT 'ÄÖÜ' ILIKE 'äöü', cardinality(show_trgm('Привет')), unaccent('Hôtel'),"
                    " current_setting('server_encoding'), current_user, current_database()"
                )
            )
        ).one()
    await postgres.stop()
    assert tuple(row) == (True, 7, "Hotel", "UTF8", "openmemory", "openmemory")


async def test_durability_is_at_its_defaults(postgres: EmbeddedPostgres) -> None:
    names = ("fsync", "synchronous_commit", "full_page_writes", "data_checksums")
    async with connected(postgres.url) as connection:
        found = [(await connection.execute(text(f"SHOW {name}"))).scalar() for name in names]
    assert found == ["on"] * 4


async def test_only_the_private_socket_leads_to_it(postgres: EmbeddedPostgres) -> None:
    assert postgres.pid is not None
    server = psutil.Process(postgres.pid)
    assert server.net_connections("inet") == []
    socket = postgres.folder / "run" / ".s.PGSQL.5432"
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    assert stat.S_IMODE(postgres.data.stat().st_mode) == 0o700
    account = server_account()
    assert server.uids().effective == (account.uid if account else os.geteuid())
    assert server.gids().effective == (account.gid if account else os.getegid())


CONNECT = """
import os, sys
import psycopg
folder, user, uid, gid = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
os.setgroups([])
os.setresgid(gid, gid, gid)
os.setresuid(uid, uid, uid)
try:
    psycopg.connect(host=folder, user=user, dbname="postgres").close()
    print("connected")
except psycopg.OperationalError as error:
    print(error)
"""


@root_only
@pytest.mark.parametrize("role", ["postgres", "openmemory"])
async def test_other_processes_of_the_servers_account_cannot_connect(
    postgres: EmbeddedPostgres, run_python: Run, role: str
) -> None:
    account = server_account()
    assert account is not None
    said, _ = await asyncio.to_thread(
        run_python(CONNECT, postgres.folder / "run", role, account.uid, account.gid).communicate
    )
    assert f'Peer authentication failed for user "{role}"' in said


async def test_a_database_that_trusted_everybody_trusts_its_owner_alone_after_the_next_start(
    furnished: DataFolder,
) -> None:
    rules = furnished.path / "postgres" / "pg_hba.conf"
    rules.write_text("local all all trust\n")
    postgres = EmbeddedPostgres(furnished)
    await postgres.start()
    try:
        async with connected(postgres.url) as connection:
            query = "SELECT type, auth_method, options FROM pg_hba_file_rules"
            async with await psycopg.AsyncConnection.connect(
                host=str(furnished.path / "run"), user="postgres", dbname="postgres"
            ) as superuser:
                found = await (await superuser.execute(query)).fetchall()
            assert (
                await connection.execute(text("SELECT system_user"))
            ).scalar() == f"peer:{pwd.getpwuid(os.geteuid()).pw_name}"
        assert found == [("local", "peer", ["map=openmemory"])]
    finally:
        await postgres.stop()


async def test_our_role_cannot_run_programs(postgres: EmbeddedPostgres) -> None:
    async with connected(postgres.url) as connection:
        with pytest.raises(Exception, match="permission denied to COPY to or from an external program"):
            await connection.execute(text("COPY (SELECT 1) TO PROGRAM 'true'"))


async def test_what_people_wrote_does_not_reach_the_log(postgres: EmbeddedPostgres) -> None:
    await remember(postgres, "harmless")
    async with await psycopg.AsyncConnection.connect(
        host=str(postgres.folder / "run"), user="openmemory", dbname="openmemory", autocommit=True
    ) as connection:
        await connection.execute("CREATE UNIQUE INDEX ON notes (words)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            await connection.execute("INSERT INTO notes VALUES ('a secret'), ('a secret')")
    assert "secret" not in postgres.log.read_text()


async def test_rows_survive_a_restart_and_stop_leaves_nothing_behind(furnished: DataFolder) -> None:
    postgres = EmbeddedPostgres(furnished)
    await postgres.start()
    await remember(postgres, "first")
    await postgres.stop()
    await postgres.stop()
    assert postgres.pid is None
    assert servers_of(postgres.data) == []
    assert sorted(path.name for path in furnished.path.iterdir()) == [
        "openmemory.lock",
        "pg_hba.conf",
        "pg_ident.conf",
        "postgres",
        "postgres.log",
        "service.json",
    ]
    await postgres.start()
    assert await remembered(postgres) == ["first"]
    await postgres.stop()


async def test_an_open_connection_does_not_hold_up_the_stop(furnished: DataFolder) -> None:
    postgres = EmbeddedPostgres(furnished)
    await postgres.start()
    busy = await psycopg.AsyncConnection.connect(
        host=str(furnished.path / "run"), user="openmemory", dbname="openmemory", autocommit=True
    )
    running = asyncio.create_task(busy.execute("SELECT pg_sleep(3600)"))
    await asyncio.sleep(0)
    await postgres.stop()
    with pytest.raises(psycopg.OperationalError):
        await running
    await busy.close()


@pytest.mark.slow
async def test_a_frozen_server_is_stopped_in_time(furnished: DataFolder) -> None:
    postgres = EmbeddedPostgres(furnished)
    await postgres.start()
    assert postgres.pid is not None
    os.kill(postgres.pid, signal.SIGSTOP)
    await postgres.stop()
    assert servers_of(postgres.data) == []
    await postgres.start()
    await postgres.stop()


async def test_a_killed_server_is_started_again_with_every_committed_row(
    postgres: EmbeddedPostgres, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    for round_ in (1, 2):
        await remember(postgres, f"row {round_}")
        before = postgres.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        await until(lambda wanted=round_: postgres.restarts == wanted)
        assert postgres.pid not in {None, before}
        assert await remembered(postgres) == [f"row {number}" for number in range(1, round_ + 1)]
    assert caplog.messages.count("The built-in PostgreSQL ended (status -9) and is being restarted.") == 2


async def test_restarts_that_fail_are_tried_again(
    postgres: EmbeddedPostgres, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    await remember(postgres, "kept")
    away = postgres.data.rename(postgres.data.with_name("away"))
    assert postgres.pid is not None
    os.kill(postgres.pid, signal.SIGKILL)
    await until(lambda: sum(record.levelno == logging.ERROR for record in caplog.records) >= 3)
    assert postgres.pid is None
    away.rename(postgres.data)
    await until(lambda: postgres.restarts == 1)
    assert await remembered(postgres) == ["kept"]


async def test_a_stopped_server_is_not_started_again(furnished: DataFolder) -> None:
    of_others = asyncio.all_tasks()
    postgres = EmbeddedPostgres(furnished)
    await postgres.start()
    assert postgres.pid is not None
    os.kill(postgres.pid, signal.SIGKILL)
    await postgres.stop()
    assert postgres.restarts == 0
    assert [t for t in asyncio.all_tasks() - of_others if t.get_name() == "embedded-postgres"] == []
    assert servers_of(postgres.data) == []


@linux_only
async def test_a_killed_owner_leaves_no_server_running(place: Path, run_python: Run, until: Until) -> None:
    owner = run_python(OWNER, place / "data")
    assert owner.stdout is not None
    server = int(owner.stdout.readline())
    owner.send_signal(signal.SIGKILL)
    await until(lambda: gone(server))
    log = (place / "data" / "postgres.log").read_text()
    assert "received fast shutdown request" in log


async def test_the_next_owner_takes_over_right_after_a_kill(place: Path, run_python: Run) -> None:
    owner = run_python(OWNER, place / "data")
    assert owner.stdout is not None
    before = int(owner.stdout.readline())
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    folder = DataFolder.claim(place / "data", listen="")
    postgres = EmbeddedPostgres(folder)
    try:
        await postgres.start()
        assert postgres.pid != before
        assert gone(before)
        await remember(postgres, "after")
    finally:
        await postgres.stop()
        folder.release()


async def test_an_orphaned_server_is_replaced_without_loss(
    furnished: DataFolder, caplog: pytest.LogCaptureFixture, until: Until
) -> None:
    postgres = EmbeddedPostgres(furnished)
    await postgres.start()
    await remember(postgres, "kept")
    await postgres.stop()
    former = orphan(furnished)
    try:
        await until((furnished.path / "run" / ".s.PGSQL.5432").exists)
        await until(lambda: "ready" in (postgres.data / "postmaster.pid").read_text())
        await remember(postgres, "written to the orphan")
        await postgres.start()
        assert former.poll() == 0
        assert await remembered(postgres) == ["kept", "written to the orphan"]
        assert "Stopped a PostgreSQL that an earlier service left running" in caplog.text
    finally:
        await postgres.stop()
        former.kill()
        former.wait()


async def test_a_stale_pid_file_that_names_a_live_stranger_is_no_obstacle(furnished: DataFolder) -> None:
    postgres = EmbeddedPostgres(furnished)
    await postgres.start()
    noted = (postgres.data / "postmaster.pid").read_text().splitlines()
    await postgres.stop()
    account = server_account()
    # Of the server's own account: PostgreSQL itself would refuse to start beside it.
    stranger = sleeper(user=account.uid if account else None)
    try:
        (postgres.data / "postmaster.pid").write_text("\n".join([str(stranger.pid), *noted[1:]]) + "\n")
        await postgres.start()
        assert stranger.poll() is None
    finally:
        await postgres.stop()
        stranger.kill()
        stranger.wait()


async def test_an_interrupted_first_start_is_begun_anew(place: Path, run_python: Run, until: Until) -> None:
    owner = run_python(OWNER, place / "data")
    await until(lambda: list(place.glob("data/postgres.new-*/base")))
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert not (place / "data" / "postgres").exists()
    folder = DataFolder.claim(place / "data", listen="")
    (folder.path / "postgres.new-left" / "base").mkdir(parents=True)
    postgres = EmbeddedPostgres(folder)
    try:
        await postgres.start()
        await remember(postgres, "fresh")
        assert not (folder.path / "postgres.new-left").exists()
    finally:
        await postgres.stop()
        folder.release()


async def test_a_start_that_is_cancelled_leaves_nothing_running(folder: DataFolder, until: Until) -> None:
    postgres = EmbeddedPostgres(folder)
    starting = asyncio.create_task(postgres.start())
    await until(lambda: list(folder.path.glob("postgres.new-*/base")))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert servers_of(postgres.data) == []
    assert list(folder.path.glob("postgres*")) == [postgres.log]
    await postgres.start()
    await postgres.stop()


async def test_a_database_that_was_never_finished_is_finished(postgres: EmbeddedPostgres) -> None:
    async with await psycopg.AsyncConnection.connect(
        host=str(postgres.folder / "run"), user="postgres", dbname="postgres", autocommit=True
    ) as connection:
        await connection.execute("DROP DATABASE openmemory")
        await connection.execute("DROP ROLE openmemory")
    await postgres.stop()
    await postgres.start()
    await remember(postgres, "there")


async def test_a_deep_data_folder_works_and_its_socket_folder_goes_with_the_server(place: Path) -> None:
    folder = DataFolder.claim(place / ("deep" * 20) / ("er, 'quoted\" and späced" * 2), listen="")
    postgres = EmbeddedPostgres(folder)
    try:
        await postgres.start()
        await remember(postgres, "deep")
        sockets = postgres._sockets
        assert not sockets.is_relative_to(folder.path)
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        await postgres.stop()
        assert not sockets.exists()
    finally:
        await postgres.stop()
        folder.release()


async def test_data_of_another_major_version_is_refused_untouched(folder: DataFolder) -> None:
    data = folder.path / "postgres"
    data.mkdir()
    (data / "PG_VERSION").write_text("17\n")
    with pytest.raises(SetupError) as refused:
        await EmbeddedPostgres(folder).start()
    assert "written by PostgreSQL 17, but this OpenMemory brings PostgreSQL 18" in str(refused.value)
    assert "openmemory export" in str(refused.value)
    assert "openmemory import" in str(refused.value)
    assert [path.name for path in data.iterdir()] == ["PG_VERSION"]


async def test_a_folder_of_something_else_is_refused_untouched(folder: DataFolder) -> None:
    (folder.path / "postgres").mkdir()
    (folder.path / "postgres" / "thesis.txt").write_text("")
    with pytest.raises(SetupError, match="holds no PostgreSQL data"):
        await EmbeddedPostgres(folder).start()
    assert (folder.path / "postgres" / "thesis.txt").exists()


async def test_a_server_that_does_not_start_is_explained_by_its_log(furnished: DataFolder) -> None:
    postgres = EmbeddedPostgres(furnished)
    await postgres.start()
    await postgres.stop()
    with (postgres.data / "postgresql.conf").open("a") as file:
        file.write("no_such_setting = 1\n")
    with pytest.raises(SetupError, match=r"does not start.*no_such_setting"):
        await postgres.start()
    assert servers_of(postgres.data) == []
    assert not (furnished.path / "run").exists()


async def test_a_failing_first_start_is_explained_and_leaves_no_half_database(folder: DataFolder, place: Path) -> None:
    broken = place / "programs"
    original = installed()
    for package in ("embedded_postgres", "embedded_postgres.libs"):
        if (original.root / package).is_dir():
            shutil.copytree(original.root / package, broken / package)
    (broken / "embedded_postgres/pginstall/share/postgresql/postgres.bki").unlink(missing_ok=True)
    (broken / "embedded_postgres/pginstall/share/postgres.bki").unlink(missing_ok=True)
    postgres = EmbeddedPostgres(folder, binaries=type(original)(broken, original.version))
    with pytest.raises(SetupError, match=r"could not make its database.*postgres\.bki"):
        await postgres.start()
    assert list(folder.path.glob("postgres*")) == [postgres.log]


async def test_starting_twice_is_a_mistake(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(RuntimeError, match="already started"):
        await postgres.start()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_ctrl_c_in_the_terminal_reaches_the_service_and_not_the_server(place: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["PYTHONPATH"] = str(Path(openmemory.__file__).parents[1])
        os.execv(sys.executable, [sys.executable, "-c", OWNER, str(place / "data")])
    with os.fdopen(terminal, "rb+", buffering=0) as screen:
        server = psutil.Process(int(screen.readline()))
        assert os.getsid(server.pid) == server.pid
        screen.write(b"\x03")
        shown = b""
        while b"interrupted" not in shown:
            shown += screen.readline()
        os.waitpid(pid, 0)
    assert gone(server.pid)
    log = (place / "data" / "postgres.log").read_text()
    # Once: by our stop, not also by the terminal.
    assert log.count("received fast shutdown request") == 1
    assert log.rstrip().endswith("database system is shut down")


@root_only
async def test_root_is_told_which_folder_keeps_the_server_out(place: Path) -> None:
    (place / "closed").mkdir(mode=0o700)
    folder = DataFolder.claim(place / "closed" / "data", listen="")
    try:
        with pytest.raises(SetupError, match=rf"may not enter {place}/closed; allow it \(chmod o\+x {place}/closed\)"):
            await EmbeddedPostgres(folder).start()
    finally:
        folder.release()


@root_only
async def test_data_restored_by_root_is_handed_to_the_server(furnished: DataFolder) -> None:
    postgres = EmbeddedPostgres(furnished)
    await postgres.start()
    await remember(postgres, "restored")
    await postgres.stop()
    for path in (postgres.data, *postgres.data.rglob("*")):
        os.chown(path, 0, 0)
    await postgres.start()
    assert await remembered(postgres) == ["restored"]
    await postgres.stop()


@root_only
async def test_data_of_another_user_is_not_taken_from_them(folder: DataFolder) -> None:
    data = folder.path / "postgres"
    data.mkdir()
    (data / "PG_VERSION").write_text("18\n")
    os.chown(data, 12345, 12345)
    with pytest.raises(SetupError, match="belongs to user id 12345; start OpenMemory as that user"):
        await EmbeddedPostgres(folder).start()
    assert data.stat().st_uid == 12345


ORDINARY = """
import asyncio, os, sys
from pathlib import Path
import psutil
from openmemory.embedded.folder import DataFolder
from openmemory.embedded.postgres import EmbeddedPostgres

async def cycle(path):
    folder = DataFolder.claim(path, listen="")
    postgres = EmbeddedPostgres(folder)
    for _ in range(2):
        await postgres.start()
        owner, group = psutil.Process(postgres.pid).uids().effective, psutil.Process(postgres.pid).gids().effective
        await postgres.stop()
    folder.release()
    return owner, group

base = Path(sys.argv[1])
# The interpreter itself may be out of that user's reach: this loads all it needs before the change.
asyncio.run(cycle(base / "as-root"))
os.setgroups([])
os.setgid(65533)
os.setuid(65533)
print(*asyncio.run(cycle(base / "as-user" / "data")), flush=True)
"""


@pytest.mark.slow
@root_only
def test_an_ordinary_user_runs_the_server_as_themself(place: Path, run_python: Run) -> None:
    # An account with a name is needed: initdb looks it up.
    nobody = server_account()
    assert nobody is not None
    if subprocess.run([installed().program("initdb"), "--version"], user=nobody.uid, check=False).returncode != 0:
        pytest.skip("the installed programs are out of an ordinary user's reach")
    home = place / "as-user"
    home.mkdir(mode=0o700)
    os.chown(home, nobody.uid, -1)
    user = run_python(ORDINARY.replace("65533", str(nobody.uid)), place)
    told, complaint = user.communicate(timeout=60)
    assert told == f"{nobody.uid} {nobody.uid}\n", complaint
    assert all(path.stat().st_uid == nobody.uid for path in home.rglob("*"))
