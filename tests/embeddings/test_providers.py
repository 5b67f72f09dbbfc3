"""mem0's embedders over real HTTP: a small OpenAI-compatible server on loopback that can misbehave."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmemory.config.sections import EmbedderSettings
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.embeddings.providers import CONCURRENT_QUERIES, DOCUMENT_BATCH, PROVIDERS, ProviderEmbedder
from openmemory.errors import SetupError

KEY = "sk-very-secret-0123456789"


def vector_of(text: str, size: int) -> list[float]:
    """A vector that tells texts apart, deliberately not of unit length."""
    return [float(1 + (len(text) * (place + 3) + sum(text.encode())) % 17) for place in range(size)]


class EmbeddingServer:
    """Answers /v1/embeddings as OpenAI does. `answer`, if set, replaces the status and body of what would be said."""

    def __init__(self) -> None:
        self.size = 12
        self.requests: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.answer: Callable[[dict[str, Any]], tuple[int, bytes]] | None = None
        self.released = threading.Event()
        self.released.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(request)
                outer.keys.add(self.headers["Authorization"])
                outer.released.wait(30)
                status, body = (outer.answer or outer.embed)(request)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Keep the test's output clean."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """Clients that give up are what some of these tests are about."""

        self.http = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def embed(self, request: dict[str, Any]) -> tuple[int, bytes]:
        size = request.get("dimensions", self.size)
        return self.say([vector_of(text, size) for text in request["input"]])

    @staticmethod
    def say(vectors: list[Any]) -> tuple[int, bytes]:
        data = [{"object": "embedding", "index": row, "embedding": vector} for row, vector in enumerate(vectors)]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return 200, json.dumps({"object": "list", "data": data, "model": "m", "usage": usage}).encode()

    def stop(self) -> None:
        self.released.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    server = EmbeddingServer()
    yield server
    server.stop()


@pytest.fixture
def settings(server: EmbeddingServer) -> EmbedderSettings:
    return EmbedderSettings(provider="openai", model="m", api_key=KEY, base_url=server.url, timeout=60)


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    """What `ProviderEmbedder` sets for the whole process is taken back."""
    before = os.environ.get("MEM0_DIR")
    yield
    if before is None:
        os.environ.pop("MEM0_DIR", None)
    else:
        os.environ["MEM0_DIR"] = before


@pytest.fixture
async def embedder(settings: EmbedderSettings, tmp_path: Path) -> AsyncIterator[ProviderEmbedder]:
    embedder = ProviderEmbedder(settings, tmp_path)
    yield embedder
    await embedder.close()


async def test_the_dimension_is_asked_of_the_model(embedder: ProviderEmbedder, server: EmbeddingServer) -> None:
    server.size = 37
    assert await embedder.dimension() == 37
    assert await embedder.dimension() == 37
    assert len(server.requests) == 1
    assert "dimensions" not in server.requests[0], "servers that cannot shorten vectors refuse this parameter"


async def test_the_configured_dimensions_and_key_are_sent(
    settings: EmbedderSettings, server: EmbeddingServer, tmp_path: Path
) -> None:
    embedder = ProviderEmbedder(settings.model_copy(update={"dimensions": 5}), tmp_path)
    assert await embedder.dimension() == 5
    assert server.requests[0]["dimensions"] == 5
    assert server.requests[0]["model"] == "m"
    assert server.keys == {f"Bearer {KEY}"}
    assert embedder.model == "openai/m@5"
    await embedder.close()


async def test_openais_own_key_is_not_sent_to_another_server(
    settings: EmbedderSettings, server: EmbeddingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai-own")
    embedder = ProviderEmbedder(EmbedderSettings(provider="openai", base_url=server.url), tmp_path)
    await embedder.query("tea")
    assert server.keys == {"Bearer none"}
    await embedder.close()


async def test_vectors_are_normalised_and_in_the_order_of_the_texts(
    embedder: ProviderEmbedder, server: EmbeddingServer
) -> None:
    texts = [f"text {'x' * (number % 7)}{number}" for number in range(DOCUMENT_BATCH * 2 + 3)]
    vectors = np.concatenate([one.chunks for one in await embedder.documents(texts)])
    expected = np.array([vector_of(text, 12) for text in texts])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert [len(request["input"]) for request in server.requests] == [DOCUMENT_BATCH, DOCUMENT_BATCH, 3]
    np.testing.assert_allclose((await embedder.query(texts[5])).vector, expected[5], atol=1e-6)


async def test_no_texts_give_no_rows(embedder: ProviderEmbedder) -> None:
    assert await embedder.documents([]) == []


def broken(body: bytes, status: int = 200) -> Callable[[dict[str, Any]], tuple[int, bytes]]:
    return lambda _: (status, body)


def said(*vectors: Any) -> Callable[[dict[str, Any]], tuple[int, bytes]]:
    return lambda _: EmbeddingServer.say(list(vectors))


BAD = {
    "server_error": broken(b'{"error": {"message": "out of memory"}}', 500),
    "server_error_quoting_the_key": broken(json.dumps({"error": {"message": f"bad {KEY}"}}).encode(), 500),
    "refused_key_quoted_in_part": broken(
        json.dumps({"error": {"message": f"Incorrect API key provided: {KEY[:12]}***{KEY[-4:]}"}}).encode(), 401
    ),
    "too_many_requests": broken(b'{"error": {"message": "slow down"}}', 429),
    "no_json": broken(b"<html>gateway</html>"),
    "empty_body": broken(b""),
    "other_json": broken(b'{"hello": 1}'),
    "null_data": broken(b'{"data": null}'),
    "no_vectors": said(),
    "strings": said(["a"] * 12),
    "nested": said([[1.0] * 12]),
    "no_numbers": said([]),
    "zero": said([0.0] * 12),
    "not_a_number": said([float("nan")] * 12),
    "infinite": said([float("inf")] + [1.0] * 11),
    "other_dimension": said([1.0] * 11),
}


@pytest.mark.parametrize("bad", BAD)
async def test_whatever_the_provider_does_is_unavailable_and_passes(
    bad: str, embedder: ProviderEmbedder, server: EmbeddingServer
) -> None:
    await embedder.query("before")
    server.answer = BAD[bad]
    for call in (embedder.query("tea"), embedder.documents(["tea"])):
        with pytest.raises(EmbedderUnavailable, match="embedder openai") as failure:
            await call
        told = "".join(traceback.format_exception(failure.value)) + str(failure.value.__context__)
        assert KEY not in told
        assert KEY[:12] not in told
        assert KEY[-4:] not in str(failure.value)
    server.answer = None
    assert (await embedder.query("after")).vector.shape == (12,)


async def test_an_error_tells_what_happened(embedder: ProviderEmbedder, server: EmbeddingServer) -> None:
    server.answer = BAD["server_error_quoting_the_key"]
    with pytest.raises(EmbedderUnavailable, match=r"InternalServerError: .*500.*bad \*\*\*"):
        await embedder.query("tea")
    server.answer = BAD["refused_key_quoted_in_part"]
    with pytest.raises(EmbedderUnavailable, match=r"the key was refused \(401\)"):
        await embedder.query("tea")
    server.answer = None
    await embedder.query("tea")
    server.answer = BAD["other_dimension"]
    with pytest.raises(EmbedderUnavailable, match="answered 11 dimensions; it had 12 before"):
        await embedder.query("tea")


async def test_a_failed_call_is_not_repeated_behind_the_callers_back(
    embedder: ProviderEmbedder, server: EmbeddingServer
) -> None:
    server.answer = BAD["server_error"]
    with pytest.raises(EmbedderUnavailable):
        await embedder.query("tea")
    assert len(server.requests) == 1


async def test_too_few_vectors_are_refused(embedder: ProviderEmbedder, server: EmbeddingServer) -> None:
    server.answer = said([1.0] * 12)
    with pytest.raises(EmbedderUnavailable):
        await embedder.documents(["one", "two"])


async def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path, settings: EmbedderSettings) -> None:
    gone = EmbeddingServer()
    gone.stop()
    embedder = ProviderEmbedder(settings.model_copy(update={"base_url": gone.url}), tmp_path)
    with pytest.raises(EmbedderUnavailable, match="Connection error"):
        await embedder.dimension()
    await embedder.close()


async def test_a_hung_server_costs_the_deadline_and_recovers(
    settings: EmbedderSettings, server: EmbeddingServer, tmp_path: Path
) -> None:
    embedder = ProviderEmbedder(settings, tmp_path)
    await embedder.dimension()  # imports mem0, which takes longer than the deadline below
    impatient = ProviderEmbedder(settings.model_copy(update={"timeout": 0.2}), tmp_path)
    server.released.clear()
    # More than may be under way at once: those that wait for a place have the same deadline.
    calls = [impatient.query(f"q{number}") for number in range(CONCURRENT_QUERIES + 4)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {str(result) for result in results} <= {
        "embedder openai: no answer within 0.2 s",
        "embedder openai: APITimeoutError: Request timed out.",
    }
    assert all(isinstance(result, EmbedderUnavailable) for result in results)
    server.released.set()
    async with asyncio.timeout(20):
        while True:  # the places of the given-up calls come back
            try:
                assert (await impatient.query("again")).vector.shape == (12,)
                break
            except EmbedderUnavailable:
                continue
    await impatient.close()
    await embedder.close()


@pytest.mark.slow
def test_a_process_that_stops_while_mem0_is_imported_ends_cleanly(server: EmbeddingServer, tmp_path: Path) -> None:
    code = f"""
import asyncio
from pathlib import Path
from openmemory.config.sections import EmbedderSettings
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.embeddings.providers import ProviderEmbedder
async def main():
    settings = EmbedderSettings(provider="openai", model="m", base_url={server.url!r}, timeout=0.05)
    embedder = ProviderEmbedder(settings, Path({str(tmp_path)!r}))
    try:
        await embedder.query("tea")
    except EmbedderUnavailable as error:
        print(error)
    await embedder.close()
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "embedder openai: no answer within 0.05 s\n"


async def test_after_close_every_call_says_unavailable(embedder: ProviderEmbedder) -> None:
    await embedder.query("tea")
    await embedder.close()
    await embedder.close()
    with pytest.raises(EmbedderUnavailable, match="embedder openai: closed"):
        await embedder.query("tea")


async def test_a_lone_surrogate_is_sent_as_a_replacement(embedder: ProviderEmbedder, server: EmbeddingServer) -> None:
    await embedder.query("tea \ud800")
    assert server.requests[-1]["input"] == ["tea ?"]


async def test_the_key_is_not_logged(
    embedder: ProviderEmbedder, server: EmbeddingServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = BAD["server_error_quoting_the_key"]
    with caplog.at_level(logging.INFO), pytest.raises(EmbedderUnavailable):
        await embedder.query("tea")
    assert KEY not in caplog.text


@pytest.mark.slow
def test_no_other_socket_is_opened_and_nothing_is_written_elsewhere(server: EmbeddingServer, tmp_path: Path) -> None:
    home, data = tmp_path / "home", tmp_path / "data"
    home.mkdir()
    data.mkdir()
    code = f"""
import asyncio, json, sys
from pathlib import Path
contacts = []
def watch(event, args):
    if event == "socket.connect":
        contacts.append(list(args[1]) if isinstance(args[1], tuple) else args[1])
    elif event == "socket.getaddrinfo":
        contacts.append([args[0], args[1]])
sys.addaudithook(watch)
from openmemory.config.sections import EmbedderSettings
from openmemory.embeddings.providers import ProviderEmbedder
async def main():
    embedder = ProviderEmbedder(
        EmbedderSettings(provider="openai", model="m", api_key={KEY!r}, base_url={server.url!r}), Path({str(data)!r})
    )
    assert "mem0" not in sys.modules
    try:
        await embedder.dimension()
        await embedder.query("tea")
        await embedder.documents(["milk", "sugar"])
    finally:
        await embedder.close()
asyncio.run(main())
from mem0.memory import telemetry
assert telemetry.MEM0_TELEMETRY is False and telemetry.client_telemetry.posthog is None
print(json.dumps(contacts))
"""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MEM0_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environ, "HOME": str(home), "MEM0_TELEMETRY": "True"},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    contacts = json.loads(done.stdout)
    assert contacts, "the watcher saw the call to the provider"
    assert {tuple(contact) for contact in contacts} == {("127.0.0.1", server.http.server_port)}
    assert len(server.requests) == 3
    assert list(home.iterdir()) == []
    assert (data / "mem0").is_dir()


@pytest.mark.slow
def test_the_providers_and_models_are_those_that_mem0_has(tmp_path: Path) -> None:
    code = (
        "import json; from pathlib import Path\n"
        "from openmemory.embeddings.providers import configure_mem0\n"
        f"configure_mem0(Path({str(tmp_path)!r}))\n"
        "from mem0.utils.factory import EmbedderFactory\n"
        "print(json.dumps(sorted(EmbedderFactory.provider_to_class)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    # langchain wants a Python object for a model, which no settings file can name.
    assert json.loads(done.stdout) == sorted([*PROVIDERS, "langchain"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (EmbedderSettings(provider="azure_openai"), "embedder.model: azure_openai has no default model"),
        (EmbedderSettings(provider="gemini", base_url="http://x"), "embedder.base_url: gemini has a fixed address"),
        (EmbedderSettings(provider="langchain"), "embedder.provider: 'langchain' is unknown"),
    ],
    ids=lambda value: getattr(value, "provider", None),
)
def test_settings_that_cannot_work_stop_the_start(settings: EmbedderSettings, words: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=words):
        ProviderEmbedder(settings, tmp_path)


def test_the_default_model_is_part_of_the_name(tmp_path: Path) -> None:
    assert ProviderEmbedder(EmbedderSettings(provider="openai"), tmp_path).model == "openai/text-embedding-3-small"


@pytest.mark.skipif(importlib.util.find_spec("together") is not None, reason="the library is installed here")
async def test_a_provider_whose_library_is_missing_says_so(tmp_path: Path) -> None:
    embedder = ProviderEmbedder(EmbedderSettings(provider="together", api_key=KEY), tmp_path)
    with pytest.raises(EmbedderUnavailable, match=r"embedder together: (ImportError|ModuleNotFoundError): .*together"):
        await embedder.query("tea")
    await embedder.close()
