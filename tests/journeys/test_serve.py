"""The life of the service as a process: starting, refusing to start, and stopping."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest

from tests import warm
from tests.clusters import furnish
from tests.journeys.service import START, Service, starting, until

pytestmark = pytest.mark.journey

_STOP = 5.0


@pytest.fixture
def serve(folder: Path) -> Iterator[Callable[..., Service]]:
    """Starts services on the folder, which has a database, and a free port; ends them after the test."""
    with starting(furnish(folder)) as start:
        yield start


@pytest.fixture
def serve_first(folder: Path) -> Iterator[Callable[..., Service]]:
    """The same on a folder that is not there yet."""
    with starting(folder) as start:
        yield start


Serve = Callable[..., Service]


def _add(url: str, text: str) -> str:
    answer = httpx.post(f"{url}/api/v1/memories", json={"user_id": "default_user", "text": text, "infer": False})
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["id"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "to_group"),
    [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGHUP, True)],
    ids=["ctrl-c", "sigint", "sigterm", "closed terminal"],
)
def test_a_signal_ends_everything_though_an_event_stream_is_open(
    serve: Serve, folder: Path, number: signal.Signals, to_group: bool
) -> None:
    service = serve()
    url = service.ready()
    family = service.family()
    with httpx.stream("GET", f"{url}/mcp/sse", timeout=30) as stream:
        assert stream.status_code == 200
        if to_group:
            os.killpg(service.process.pid, number)
        else:
            service.process.send_signal(number)
        assert service.ended(within=_STOP) == 0, service.err
    assert "Traceback" not in service.err
    assert psutil.wait_procs(family, 0)[1] == []
    assert not (folder / "service.json").exists()


def test_a_signal_while_the_stores_are_opened_ends_it_too(serve_first: Serve, folder: Path) -> None:
    service = serve_first()
    until((folder / "service.json").exists, START)
    family = service.family()
    service.process.send_signal(signal.SIGTERM)
    assert service.ended(within=2 * _STOP) == 0, service.err
    assert "Traceback" not in service.err
    assert psutil.wait_procs(family, 5)[1] == []


@pytest.mark.slow
def test_it_says_where_every_door_is(serve_first: Serve, folder: Path) -> None:
    service = serve_first()
    url = service.ready()
    for door in (
        "/api/v1\n", "/docs\n", "/mcp\n", "/mcp/sse\n", "/mcp/{client}/sse/{user}\n",
    ):  # fmt: skip
        assert f"{url}{door}" in service.out
    assert f"{folder} (PostgreSQL built in, Qdrant built in)" in service.out
    assert httpx.get(f"{url}/docs").status_code == 200
    assert httpx.get(f"{url}/health/live").status_code == 200


def test_what_was_acknowledged_survives_kill_minus_nine(serve: Serve) -> None:
    first = serve()
    url = first.ready()
    family = first.family()
    added = [_add(url, f"Fact number {number}") for number in range(20)]
    first.process.kill()
    first.ended(within=_STOP)
    second = serve()
    url = second.ready()
    kept = httpx.get(f"{url}/api/v1/memories", params={"user_id": "default_user", "size": 100}).json()
    assert {item["id"] for item in kept["items"]} == set(added)
    assert psutil.wait_procs(family, 10)[1] == []


@pytest.mark.slow
def test_a_second_service_is_told_who_owns_the_folder(serve: Serve, folder: Path) -> None:
    first = serve()
    url = first.ready()
    second = serve()
    assert second.ended(within=START) == 2
    [line] = second.err.splitlines()
    assert str(folder) in line
    assert f"process {first.process.pid}" in line
    assert url in line


@pytest.mark.slow
def test_a_taken_port_names_the_openmemory_that_has_it(serve: Serve, folder: Path) -> None:
    first = serve()
    url = first.ready()
    port = url.rpartition(":")[2]
    same_folder = serve("--port", port)
    assert same_folder.ended(within=START) == 2
    assert f"port {port} is taken by the service of {folder}: process {first.process.pid}" in same_folder.err
    other_folder = serve("--port", port, "--data-dir", str(folder.with_name("other")))
    assert other_folder.ended(within=START) == 2
    [line] = other_folder.err.splitlines()
    assert f"port {port} is taken by another OpenMemory" in line
    assert f"openmemory mcp --url {url}" in line
    assert "--port of `openmemory serve`, or with OPENMEMORY_PORT" in line
    assert not folder.with_name("other").exists()


@pytest.mark.slow
def test_a_port_taken_by_another_program_is_told_on_one_line(serve_first: Serve, folder: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        service = serve_first("--port", str(port))
        assert service.ended(within=START) == 2
    [line] = service.err.splitlines()
    assert f"port {port}" in line
    assert "is taken by" in line
    assert not folder.exists()


@pytest.mark.slow
def test_beyond_loopback_a_key_is_needed_and_the_command_that_is_told_makes_it(serve: Serve, folder: Path) -> None:
    service = serve("--host", "0.0.0.0")
    assert service.ended(within=START) == 2
    line = service.err.splitlines()[-1]
    assert f"openmemory keys create --admin NAME --data-dir {folder}" in line
    made = warm.run("keys", "create", "--admin", "root", "--data-dir", str(folder))
    key = made.stdout.strip()
    assert re.fullmatch("om_[a-z0-9]{8}_[A-Za-z0-9_-]{43}", key), made.stderr
    url = serve("--host", "0.0.0.0").ready()
    about = {"params": {"user_id": "default_user"}}
    assert httpx.get(f"{url}/api/v1/memories", **about).status_code == 401
    assert httpx.get(f"{url}/api/v1/memories", **about, headers={"X-API-Key": key}).status_code == 200
    # Who may read the data folder needs no key.
    assert warm.run("keys", "list", "--data-dir", str(folder)).stdout.startswith(key[:11])
    assert warm.run("keys", "revoke", key[:11], "--url", url, OPENMEMORY_API_KEY=key).returncode == 0
    assert httpx.get(f"{url}/api/v1/memories", **about, headers={"X-API-Key": key}).status_code == 401
    assert key not in (folder / "service.json").read_text()


@pytest.mark.slow
def test_with_a_key_it_listens_beyond_loopback_and_asks_for_it(serve: Serve) -> None:
    url = serve("--host", "0.0.0.0", OPENMEMORY_ACCESS_API_KEY="Vd7-kq2Xw9-pLr4mZt8n").ready()
    assert url.startswith("http://127.0.0.1:")
    about = {"params": {"user_id": "default_user"}}
    assert httpx.get(f"{url}/api/v1/memories", **about).status_code == 401
    key = {"Authorization": "Bearer Vd7-kq2Xw9-pLr4mZt8n"}
    assert httpx.get(f"{url}/api/v1/memories", **about, headers=key).status_code == 200
    refused = warm.run("list", "--url", url)
    assert refused.returncode == 2
    assert "set OPENMEMORY_API_KEY" in refused.stderr
    assert warm.run("list", "--url", url, OPENMEMORY_API_KEY="Vd7-kq2Xw9-pLr4mZt8n").returncode == 0


def test_with_a_key_that_can_be_guessed_it_does_not_start(serve_first: Serve) -> None:
    service = serve_first("--host", "0.0.0.0", OPENMEMORY_ACCESS_API_KEY="x")
    assert service.ended(within=START) == 2
    [line] = service.err.splitlines()
    assert line == (
        "openmemory: environment: OPENMEMORY_ACCESS_API_KEY: must have at least 20 characters; make one with"
        " `openssl rand -hex 32`"
    )


@pytest.mark.slow
def test_the_stop_command_ends_it(serve: Serve, folder: Path) -> None:
    service = serve()
    url = service.ready()
    told = warm.run("stop", "--data-dir", str(folder))
    assert told.stdout == f"Stopped process {service.process.pid}, which listened on {url}.\n"
    assert service.ended(within=_STOP) == 0
    assert warm.run("stop", "--data-dir", str(folder)).returncode == 1


def test_a_data_folder_that_cannot_be_written_is_told_on_one_line(serve_first: Serve, folder: Path) -> None:
    folder.write_text("this is a file")
    service = serve_first()
    assert service.ended(within=START) == 2
    [line] = service.err.splitlines()
    assert str(folder) in line
    folder.unlink()
    service = serve_first("--data-dir", "/proc/openmemory")
    assert service.ended(within=START) == 2
    [line] = service.err.splitlines()
    assert "/proc/openmemory" in line


@pytest.mark.slow
def test_folder_host_and_port_come_from_the_environment_too(folder: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = str(probe.getsockname()[1])
    service = Service(OPENMEMORY_DATA_DIR=str(furnish(folder)), OPENMEMORY_HOST="localhost", OPENMEMORY_PORT=port)
    try:
        assert service.ready() == f"http://localhost:{port}"
        assert str(folder) in service.out
    finally:
        service.close()


@pytest.mark.slow
def test_a_reader_of_the_output_that_goes_away_does_not_stop_it(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(
        [sys.executable, "-m", "openmemory", "serve", "--data-dir", str(furnish(folder)), "--port", "0"],
        stdout=writing,
        stderr=subprocess.DEVNULL,
        env=warm.clean_environment(),
    ) as process:
        os.close(writing)
        try:
            published = folder / "service.json"
            until(published.exists, START)
            url = re.search(r'"url": "([^"]+)"', published.read_text())
            assert url
            assert httpx.get(f"{url[1]}/health/live", timeout=START).status_code == 200
            process.terminate()
            assert process.wait(_STOP) == 0
        finally:
            process.kill()
