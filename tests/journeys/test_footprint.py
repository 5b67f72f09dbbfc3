"""What the service leaves on the machine, and whom it speaks to."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.sse import sse_client

from tests.journeys import system_calls
from tests.journeys.service import START, Isolated, until
from tests.llm.server import LlmServer, says
from tests.required import required

pytestmark = pytest.mark.journey

_STOP = 20.0
"""Seconds to end in on a busy machine, or slowed down by strace."""

_A_WHILE = 20.0
"""Seconds within which onnxruntime asks for its vendor's server, if it is let."""


@pytest.fixture
def home(folder: Path) -> Path:
    """An empty folder, the home of whoever starts the service."""
    made = folder.with_name("home")
    made.mkdir()
    return made


@pytest.fixture
def serve(folder: Path, home: Path) -> Iterator[Callable[..., Isolated]]:
    """Starts isolated services on a data folder that is not there yet; ends them after the test."""
    started: list[Isolated] = []

    def start(*arguments: str, **more: Any) -> Isolated:
        started.append(Isolated("--data-dir", str(folder), "--port", "0", *arguments, home=home, **more))
        return started[-1]

    yield start
    for service in started:
        service.close()


Serve = Callable[..., Isolated]


def post(url: str, path: str, **body: Any) -> Any:
    """The answer to a request for alice."""
    answer = httpx.post(f"{url}/api/v1/{path}", json={"user_id": "alice", **body}, timeout=60)
    assert answer.is_success, answer.text
    return answer


def found_by_meaning(url: str) -> bool:
    """Says if the model is loaded and has found a memory that shares no word with the question."""
    answer = post(url, "memories/search", query="Where does she live?").json()
    return bool(answer["results"]) and answer["search_method"] == "hybrid"


def synchronised(url: str) -> bool:
    """Says if a sync ran; another one may be running."""
    answer = httpx.post(f"{url}/api/v1/sync", timeout=60)
    assert answer.status_code in (200, 409), answer.text
    return answer.is_success


def remember_and_find(url: str) -> None:
    """Use what needs no language model: add, capture, search, sync, export."""
    post(url, "memories", text="Her home is in Porto.", infer=False)
    assert "no language model" in post(url, "memories", text="I am allergic to peanuts.").text
    until(lambda: found_by_meaning(url), 60)
    until(lambda: synchronised(url), 60)
    assert post(url, "backup/export").content


@pytest.mark.slow
def test_nothing_appears_outside_the_data_folder(serve: Serve, home: Path) -> None:
    service = serve()
    remember_and_find(service.ready())
    service.process.send_signal(signal.SIGTERM)
    assert service.ended(_STOP) == 0, service.err
    assert [str(path.relative_to(home)) for path in home.rglob("*")] == []


_READ_ONLY = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
cut -d " " -f 2 /proc/self/mounts | while read -r place; do
    case $place in /proc* | /sys* | /dev* | "$1") ;; *) mount -o remount,ro,bind "$place" ;; esac
done
shift
exec "$@"
"""
"""Runs a command in a view of the system in which only one folder, the first argument, can be written."""


@pytest.mark.slow
def test_it_serves_where_only_the_data_folder_can_be_written(serve: Serve, folder: Path) -> None:
    view = ["unshare", "--mount", "sh", "-c", _READ_ONLY, "sh", str(folder)]
    folder.mkdir()
    required(*view, "sh", "-c", "! touch /tmp/x 2>/dev/null")
    service = serve(under=view)
    url = service.ready()
    remember_and_find(url)
    archive = post(url, "backup/export").content
    sent = {"data": {"user_id": "alice"}, "files": {"file": ("memories.zip", archive)}}
    answer = httpx.post(f"{url}/api/v1/backup/import", timeout=60, **sent)
    assert answer.is_success, answer.text
    service.process.send_signal(signal.SIGTERM)
    assert service.ended(_STOP) == 0, service.err


def test_a_user_id_without_a_name_is_told_on_one_line_what_to_do(serve: Serve) -> None:
    nameless = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]
    required(*nameless, "true")
    homeless = [*nameless, "env", "--unset=HOME"]
    for service, what, advice in (
        (serve(under=homeless), "The user id 54321 has no entry in /etc/passwd", "--user 10001"),
        (serve("--data-dir", "", under=homeless), "This account has no home folder", "OPENMEMORY_DATA_DIR"),
    ):
        assert service.ended(START) == 2
        [line] = service.err.splitlines()
        assert what in line
        assert advice in line


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "darwin", reason="the commands name the data folder of Linux")
def test_the_documented_commands_remove_all_that_was_installed(serve: Serve, home: Path, folder: Path) -> None:
    root, clone = Path(__file__).parents[2], folder.with_name("clone")
    shutil.copytree(
        root, clone, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "site", "node_modules")
    )
    (home / ".local" / "share").mkdir(parents=True)
    before = everything_in(home, clone)
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "openmemory").symlink_to(Path(sys.executable).with_name("openmemory"))

    service = serve("--data-dir", "")
    remember_and_find(service.ready())
    assert (home / ".local" / "share" / "openmemory" / "postgres").is_dir()
    page = (clone / "docs" / "operations" / "removing.md").read_text(encoding="utf-8")
    commands = page.partition("```sh\n")[2].partition("```")[0]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        ["bash", "-e", "-c", commands], cwd=clone, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert service.ended(_STOP) == 0, service.err
    assert everything_in(home, clone) == before


def everything_in(*folders: Path) -> set[Path]:
    """Every file and folder below some folders."""
    return {path for folder in folders for path in folder.rglob("*")}


@pytest.fixture
def model() -> Iterator[LlmServer]:
    """A language model on this machine."""
    made = LlmServer(lambda _: says({"operations": []}))
    yield made
    made.close()


async def _speak_mcp(url: str) -> None:
    servers: tuple[Any, ...] = (f"{url}/mcp/claude/http/alice", sse_client(f"{url}/mcp/claude/sse/alice"))
    for server in servers:
        async with Client(server, read_timeout_seconds=60) as client:
            assert not (await client.call_tool("add_memories", {"text": "Tea is better than coffee."})).is_error
            assert not (await client.call_tool("search_memory", {"query": "drinks"})).is_error


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_address_is_asked_for_but_those_in_the_settings_and_no_path_written_but_in_the_data_folder(
    serve: Serve, folder: Path, model: LlmServer
) -> None:
    required("strace", "-o", os.devnull, "true")
    file = folder.with_name("trace")
    service = serve(under=system_calls.tracing(file), OPENMEMORY_EGRESS_ALLOW="127.0.0.1")
    url = service.ready()
    began = time.monotonic()
    remember_and_find(url)
    assert httpx.get(f"{url}/docs").is_success
    asyncio.run(_speak_mcp(url))
    config = {"model": "m", "temperature": 0, "max_tokens": 99, "api_key": "key", "openai_base_url": model.url}
    configured = {"provider": "openai", "config": config}
    answer = httpx.put(f"{url}/api/v1/config/mem0/llm", json=configured, timeout=60)
    assert answer.is_success, answer.text
    post(url, "memories", text="I moved to Lisbon.")
    assert model.asked
    # What calls home does so after a while, to send much at once.
    until(lambda: found_by_meaning(url) and time.monotonic() > began + _A_WHILE, 2 * _A_WHILE)
    service.process.send_signal(signal.SIGTERM)
    assert service.ended(_STOP) == 0, service.err
    until(lambda: system_calls.ended(file, service.process.pid), _STOP)

    trace = system_calls.read(file)
    assert trace.families() <= {"INET", "UNIX", "NETLINK"}
    assert trace.addresses() == {("127.0.0.1", model.port)}
    # glibc asks the name service cache for accounts, too. Names of hosts it would look up with the help of resolv.conf.
    sockets = trace.sockets() - {"/var/run/nscd/socket"}
    assert {path for path in sockets if not Path(path).is_relative_to(folder)} == set()
    assert not trace.read("/etc/resolv.conf")
    assert folder / "local.key" in trace.written()
    written = {path for path in trace.written() if not path.is_relative_to(folder)}
    assert {path for path in written if not _harmless(path)} == set()
    assert {path for path in written if path.is_relative_to("/dev/shm") and path.exists()} == set()


def _harmless(path: Path) -> bool:
    """Says if it is a device without memory, or memory that PostgreSQL's processes share while they run."""
    return path == Path("/dev/null") or path.match("/dev/shm/PostgreSQL.*")
