"""Requests that leave, over real sockets: what is refused, what is reached, and what a redirect takes along."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from openmemory.egress.clients import Egress, NoDocument, small_json
from openmemory.egress.policy import EgressRefused
from tests.egress.server import OK, Authority, Server, redirect, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def names(**addresses: str | list[str]) -> Callable[[str, int], Iterable[str]]:
    """A name server that knows these: `names(a="10.0.0.1")` for the name `a`."""

    def resolve(host: str, port: int) -> Iterable[str]:
        if host not in addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        found = addresses[host]
        return [found] if isinstance(found, str) else found

    return resolve


async def both(egress: Egress, url: str, *, trusted: Iterable[str] = (), **options: Any) -> Any:
    """What the client for the loop and the one for threads say; they must agree."""
    outcomes = []
    async with egress.async_client(trusted, **options) as client:
        try:
            outcomes.append((await client.get(url)).status_code)
        except httpx.RequestError as error:
            outcomes.append((type(error), str(error)))
    with egress.client(trusted, **options) as client:
        try:
            outcomes.append((await asyncio.to_thread(client.get, url)).status_code)
        except httpx.RequestError as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


async def refusal(egress: Egress, url: str, **options: Any) -> str:
    kind, message = await both(egress, url, **options)
    assert kind is EgressRefused
    return message


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("127.0.0.1", "is a loopback address"), ("[::1]", "is a loopback address"),
        ("10.1.2.3", "is a private address"),
        ("[fd00::1]", "is a private address"), ("169.254.169.254", "hand out credentials"),
        ("[fe80::1]", "hand out credentials"), ("[fd00:ec2::254]", "hand out credentials"),
        ("[::ffff:127.0.0.1]", "is a loopback address"), ("[64:ff9b::a9fe:a9fe]", "hand out credentials"),
        ("0.0.0.0", "is an unspecified address"), ("224.0.0.1", "is a multicast address"),
        ("2130706433", "leads to a loopback address"), ("0x7f.1", "leads to a loopback address"),
        ("017700000001", "leads to a loopback address"), ("127.1", "leads to a loopback address"),
        ("0xa9fea9fe", "hand out credentials"), ("localhost", "leads to a loopback address"),
        ("127.0.0.1.", "is a loopback address"), ("LOCALHOST.", "leads to a loopback address"),
    ],
)  # fmt: skip
async def test_what_is_not_public_is_refused_however_it_is_written(server: Server, host: str, words: str) -> None:
    message = await refusal(Egress(), f"http://user:secret@{host}:{server.port}/path?query=secret")
    assert words in message
    assert "egress.allow" in message
    assert "secret" not in message
    assert server.connections == 0


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.0.1", "::1", "fc00::1", "100.64.0.1", "169.254.169.254"])
async def test_a_name_that_leads_to_a_private_address_is_refused(address: str) -> None:
    egress = Egress(resolve=names(**{"innocent.example": address}))
    message = await refusal(egress, "https://innocent.example/")
    assert message.startswith("innocent.example: leads to a")
    assert address not in message, "what our name servers say is nobody's business"


async def test_one_private_address_among_public_ones_refuses_the_host() -> None:
    egress = Egress(resolve=names(**{"mixed.example": ["1.1.1.1", "10.0.0.1"]}))
    assert "a private address" in await refusal(egress, "https://mixed.example/")


@pytest.mark.parametrize("url", ["ftp://example.com/x", "file:///etc/passwd", "gopher://example.com"])
async def test_other_schemes_than_those_of_the_web_are_refused(url: str) -> None:
    async with Egress().async_client() as client:
        with pytest.raises((EgressRefused, httpx.UnsupportedProtocol)):
            await client.get(url)


async def test_what_the_list_allows_is_reached(server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}/"
    for entry in ("127.0.0.1", "127.0.0.0/8", f"127.0.0.1:{server.port}"):
        assert await both(Egress([entry]), url) == 200
    named = names(**{"ollama.internal": "127.0.0.1"})
    for entry in ("ollama.internal", f"OLLAMA.internal:{server.port}", "127.0.0.1"):
        assert await both(Egress([entry], resolve=named), f"http://ollama.internal:{server.port}/") == 200
    assert server.asked[-1].headers["host"] == f"ollama.internal:{server.port}"
    for entry in ("10.0.0.0/8", "127.0.0.1:1", "other.internal", f"ollama.internal:{server.port + 1}"):
        await refusal(Egress([entry], resolve=named), f"http://ollama.internal:{server.port}/")


async def test_a_trusted_address_is_trusted_with_its_scheme_host_and_port_alone(server: Server) -> None:
    egress = Egress(resolve=names(ollama="127.0.0.1", other="127.0.0.1"))
    url = f"http://ollama:{server.port}"
    assert await both(egress, f"{url}/api/embed", trusted=[f"{url}/v1"]) == 200
    await refusal(egress, f"http://other:{server.port}/", trusted=[url])
    await refusal(egress, f"http://127.0.0.1:{server.port}/", trusted=[url])
    await refusal(egress, f"http://ollama:{server.port + 1}/", trusted=[url])
    await refusal(egress, f"https://ollama:{server.port}/", trusted=[url])


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "fd00:ec2::254", "::ffff:169.254.169.254"])
async def test_where_clouds_hand_out_credentials_is_refused_even_if_it_is_trusted(address: str) -> None:
    literal = f"http://[{address}]:1/" if ":" in address else f"http://{address}:1/"
    assert "name its address in egress.allow" in await refusal(Egress(), literal, trusted=[literal])
    egress = Egress(["metadata"], resolve=names(metadata=address))
    assert "name its address" in await refusal(egress, "http://metadata:1/", trusted=["http://metadata:1/"])


async def test_where_clouds_hand_out_credentials_is_reached_if_the_list_names_the_address() -> None:
    egress = Egress(["169.254.169.254"])
    egress.policy.check(*_to("http://169.254.169.254/"), trusted=False)
    with pytest.raises(EgressRefused):
        egress.policy.check(*_to("http://169.254.169.253/"), trusted=True)


def _to(url: str) -> Any:
    from ipaddress import ip_address

    from openmemory.egress.policy import Origin

    origin = Origin.of(url)
    return origin, [ip_address(origin.host)]


async def test_the_address_that_was_checked_is_the_one_that_is_reached(server: Server) -> None:
    """A name server that answers something else the second time is never asked a second time."""
    answers = ["127.0.0.1", "127.0.0.2"]
    lookups = []

    def rebinding(host: str, port: int) -> list[str]:
        lookups.append(host)
        return [answers[min(len(lookups), len(answers)) - 1]]

    egress = Egress(["127.0.0.1"], resolve=rebinding)
    async with egress.async_client() as client:
        assert (await client.get(f"http://rebinding.example:{server.port}/")).status_code == 200
        assert lookups == ["rebinding.example"]
        with pytest.raises(EgressRefused):
            await client.get(f"http://rebinding.example:{server.port}/")
    assert server.paths == ["/"]


async def test_nothing_but_the_checked_address_is_looked_up_or_connected_to(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    real = socket.getaddrinfo

    def watched(host: Any, *args: Any, **options: Any) -> Any:
        asked.append(host)
        return real(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", watched)
    egress = Egress(["service.example"], resolve=names(**{"service.example": "127.0.0.1"}))
    assert await both(egress, f"http://service.example:{server.port}/") == 200
    assert set(asked) <= {"127.0.0.1"}


async def test_the_next_address_is_tried_if_one_does_not_answer(server: Server) -> None:
    egress = Egress(["127.0.0.0/8"], resolve=names(**{"two.example": ["127.9.9.9", "127.0.0.1"]}))
    assert await both(egress, f"http://two.example:{server.port}/") == 200


async def test_a_name_that_is_not_known_is_a_connection_error() -> None:
    kind, message = await both(Egress(resolve=names()), "https://nowhere.example/")
    assert kind is httpx.ConnectError
    assert message == "nowhere.example: the name cannot be looked up: Name or service not known"
    kind, message = await both(Egress(resolve=names(**{"empty.example": []})), "https://empty.example/")
    assert (kind, message) == (httpx.ConnectError, "empty.example: the name has no address")


async def test_a_name_server_that_hangs_costs_no_more_than_the_time_to_connect() -> None:
    released = threading.Event()

    def hang(host: str, port: int) -> list[str]:
        released.wait(30)
        return ["1.1.1.1"]

    async with Egress(resolve=hang).async_client(timeout=0.05) as client:
        with pytest.raises(httpx.ConnectTimeout, match=r"slow\.example"):
            await client.get("https://slow.example/")
    released.set()


async def test_a_redirect_to_a_private_address_is_refused(server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}/"
    with serving("::1") as private:
        for target in (f"http://[::1]:{private.port}/", f"http://localhost:{private.port}/", "http://169.254.169.254/"):
            server.answer = redirect(target)
            message = await refusal(Egress(), url, trusted=[url], redirects=True)
            assert "egress.allow" in message
        assert private.connections == 0


async def test_a_redirect_into_a_trusted_address_inherits_no_trust(server: Server) -> None:
    """Or whoever may name an address could reach what only the administrator's own requests may."""
    with serving() as private:
        trusted = f"http://127.0.0.1:{private.port}"
        server.answer = redirect(f"{trusted}/admin")
        egress = Egress(["public.example"], resolve=names(**{"public.example": "127.0.0.1"}))
        await refusal(egress, f"http://public.example:{server.port}/", trusted=[trusted], redirects=True)
        assert private.connections == 0
        assert await both(egress, f"{trusted}/", trusted=[trusted], redirects=True) == 200


async def test_redirects_within_a_trusted_address_are_followed_and_counted(server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}"
    server.answer = lambda asked: OK if asked.path == "/end" else redirect("/end")(asked)
    assert await both(Egress(), f"{url}/start", trusted=[url], redirects=True) == 200
    server.answer = redirect("/again")
    kind, _ = await both(Egress(), f"{url}/start", trusted=[url], redirects=True)
    assert kind is httpx.TooManyRedirects


async def test_credentials_do_not_follow_to_another_origin(server: Server) -> None:
    headers = {
        "Authorization": "Bearer secret", "api-key": "secret", "X-Api-Key": "secret", "x-goog-api-key": "secret",
        "Cookie": "session=secret", "Accept": "application/json",
    }  # fmt: skip
    with serving() as other:
        server.answer = redirect(f"http://127.0.0.1:{other.port}/there")
        async with Egress(["127.0.0.1"]).async_client(redirects=True) as client:
            answer = await client.get(f"http://user:secret@127.0.0.1:{server.port}/here", headers=headers)
        assert answer.status_code == 200
        assert server.asked[0].headers["x-api-key"] == "secret"
        assert "secret" not in str(other.asked[0].headers)
        assert other.asked[0].headers["accept"] == "application/json"
        assert other.asked[0].headers["host"] == f"127.0.0.1:{other.port}"


@pytest.mark.parametrize("status", [307, 308])
async def test_what_is_sent_is_not_passed_on_to_another_origin(server: Server, status: int) -> None:
    with serving() as other:
        server.answer = redirect(f"http://127.0.0.1:{other.port}/there", status)
        async with Egress(["127.0.0.1"]).async_client(redirects=True) as client:
            with pytest.raises(EgressRefused, match="redirects a request with a body"):
                await client.post(f"http://127.0.0.1:{server.port}/here", json={"text": "a memory"})
        assert other.connections == 0


async def test_proxies_of_the_environment_are_not_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        url = f"http://127.0.0.1:{server.port}/"
        assert await both(Egress(), url, trusted=[url]) == 200
        assert (proxy.connections, server.paths) == (0, ["/", "/"])


async def test_the_certificate_must_be_that_of_the_name(authority: Authority) -> None:
    resolve = names(**{"memory.example": "127.0.0.1", "other.example": "127.0.0.1"})
    egress = Egress(["127.0.0.1"], resolve=resolve, tls=authority.client)
    with serving(tls=authority.server("memory.example")) as server:
        assert await both(egress, f"https://memory.example:{server.port}/") == 200
        assert server.asked[0].headers["host"] == f"memory.example:{server.port}"
        kind, message = await both(egress, f"https://other.example:{server.port}/")
        assert kind is httpx.ConnectError
        assert "certificate is not valid for 'other.example'" in message
        assert len(server.asked) == 2


async def test_a_certificate_of_an_address_is_checked_against_the_address(authority: Authority) -> None:
    egress = Egress(["127.0.0.1"], tls=authority.client)
    with serving(tls=authority.server("127.0.0.1")) as server:
        assert await both(egress, f"https://127.0.0.1:{server.port}/") == 200
    with serving(tls=authority.server("127.0.0.2")) as server:
        kind, _ = await both(egress, f"https://127.0.0.1:{server.port}/")
        assert kind is httpx.ConnectError


async def test_an_authority_that_is_not_known_is_refused_unless_the_environment_names_it(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resolve = names(**{"memory.example": "127.0.0.1"})
    with serving(tls=authority.server("memory.example")) as server:
        url = f"https://memory.example:{server.port}/"
        kind, message = await both(Egress(["127.0.0.1"], resolve=resolve), url)
        assert kind is httpx.ConnectError
        assert "CERTIFICATE_VERIFY_FAILED" in message
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        assert await both(Egress(["127.0.0.1"], resolve=resolve), url) == 200


async def test_a_connection_under_one_name_is_not_used_for_another_at_the_same_address(authority: Authority) -> None:
    """Else a server that proved to be the one would be believed to be the other."""
    resolve = names(**{"one.example": "127.0.0.1", "two.example": "127.0.0.1"})
    with serving(tls=authority.server("one.example")) as server:
        url = f"https://one.example:{server.port}/"
        egress = Egress(["127.0.0.1"], resolve=resolve, tls=authority.client)
        for trusted in ([], [url], [url, f"https://two.example:{server.port}"]):
            async with egress.async_client(trusted) as client:
                assert (await client.get(url)).status_code == 200
                with pytest.raises(httpx.ConnectError, match=r"two\.example"):
                    await client.get(f"https://two.example:{server.port}/")


async def test_the_connection_to_a_trusted_address_is_kept(server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}/"
    async with Egress().async_client([url]) as client:
        for _ in range(3):
            await client.get(url)
    assert (server.connections, len(server.asked)) == (1, 3)
    async with Egress(["127.0.0.1"]).async_client() as client:
        for _ in range(3):
            await client.get(url)
    assert server.connections == 4


async def test_a_small_document_is_read(server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}/"
    async with Egress().async_client([url]) as client:
        assert await small_json(client, url) == {"ok": True}
    assert server.asked[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((404, {}, b"{}"), "answered 404"),
        ((200, {}, b"<html>"), "must be JSON"),
        ((200, {}, b"[" * 100_000), "must be JSON"),
        ((200, {}, b"[1]"), "must be a JSON object"),
        ((200, {}, b'{"a": "' + b"x" * 2_000 + b'"}'), "larger than 1,000 bytes"),
        ((200, {"Content-Encoding": "gzip"}, gzip.compress(b"{}")), "compressed"),
        ((200, {"Content-Length": "2000000000"}, b'{"a": "' + b"x" * 2_000), "larger than 1,000 bytes"),
        ((302, {"Location": "/x"}, b""), "answered 302"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_anything_else_is_no_document(server: Server, answer: Any, words: str) -> None:
    server.answer = lambda _: answer
    url = f"http://127.0.0.1:{server.port}/?secret"
    async with Egress().async_client([url]) as client:
        limit = 1_000_000 if b"[" * 9 in answer[2] else 1_000
        with pytest.raises((NoDocument, httpx.HTTPStatusError), match=words) as failure:
            await small_json(client, url, limit=limit)
    assert "secret" not in str(failure.value)


async def test_a_document_that_trickles_in_is_given_up() -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        try:
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            writer.close()

    async with await asyncio.start_server(trickle, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
        async with Egress().async_client([url], timeout=5) as client:
            with pytest.raises(httpx.ReadTimeout, match=r"no whole answer within 0\.1 s"):
                await small_json(client, url, seconds=0.1)
