from __future__ import annotations

import asyncio
import socket

import pytest

from openmemory.doors.server.sockets import PortInUse, listen, url_of
from openmemory.errors import SetupError
from tests.listening import one_socket


def test_an_unknown_host_is_refused_by_name() -> None:
    with pytest.raises(SetupError, match=r"host: 'no\.such\.host\.invalid' cannot be resolved"):
        listen("no.such.host.invalid", 0)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(SetupError, match=r"'192\.0\.2\.1' must be an address of this machine"):
        listen("192.0.2.1", 0)


def test_port_zero_takes_a_free_port_and_the_url_names_it() -> None:
    with one_socket() as opened:
        assert url_of("127.0.0.1", [opened]) == f"http://127.0.0.1:{opened.getsockname()[1]}"


def test_a_connection_before_the_service_is_ready_waits_instead_of_being_refused() -> None:
    with one_socket() as opened, socket.create_connection(opened.getsockname(), timeout=5):
        opened.setblocking(True)
        opened.accept()[0].close()


async def test_what_is_sent_in_two_parts_does_not_wait_for_an_acknowledgement() -> None:
    opened = one_socket()
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        accepted.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(answer, sock=opened):
        with socket.create_connection(opened.getsockname(), timeout=5):
            assert await asyncio.wait_for(accepted, 5)


def test_a_taken_port_is_told_as_such() -> None:
    with one_socket() as first:
        port = first.getsockname()[1]
        with pytest.raises(PortInUse, match=f"port {port} of 127.0.0.1 is taken"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_port_that_is_taken_on_one_loopback_address_is_not_used_on_the_other(host: str) -> None:
    if len(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)) == 1 and host == "localhost":
        pytest.skip("localhost has one address here")
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortInUse, match=f"port {port} of {host} is taken"):
            listen(host, port)


def test_loopback_is_reached_over_both_versions_of_ip() -> None:
    opened = listen("127.0.0.1", 0)
    try:
        port = opened[0].getsockname()[1]
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, port), timeout=5).close()
    finally:
        for each in opened:
            each.close()


def test_all_addresses_of_a_host_get_the_same_port() -> None:
    opened = listen("localhost", 0)
    try:
        assert len({each.getsockname()[1] for each in opened}) == 1
    finally:
        for each in opened:
            each.close()


@pytest.mark.parametrize(
    ("host", "begins"),
    [("0.0.0.0", "http://127.0.0.1:"), ("::", "http://[::1]:"), ("localhost", "http://localhost:")],
)
def test_the_url_is_one_that_clients_on_this_machine_can_use(host: str, begins: str) -> None:
    with one_socket() as opened:
        assert url_of(host, [opened]).startswith(begins)
