"""The providers' requests go where the settings say and nowhere else: mem0's embedders over real HTTP."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from openmemory.config.sections import EmbedderSettings
from openmemory.egress.clients import Egress
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.embeddings.providers import ProviderEmbedder
from openmemory.errors import SetupError
from tests.egress.server import Answer, Asked, Server, redirect, serving

OLLAMA = importlib.util.find_spec("ollama") is not None
AZURE = importlib.util.find_spec("azure") is not None and importlib.util.find_spec("azure.identity") is not None
TOGETHER = importlib.util.find_spec("together") is not None


def embed(asked: Asked) -> Answer:
    """Answers as OpenAI and Ollama do."""
    body: dict[str, Any] = {}
    if asked.path.partition("?")[0].endswith("/embeddings"):
        texts = json.loads(asked.body)["input"]
        texts = [texts] if isinstance(texts, str) else texts
        data = [{"object": "embedding", "index": place, "embedding": [3.0, 4.0]} for place, _ in enumerate(texts)]
        body = {"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}
    elif asked.path == "/api/tags":
        body = {"models": [{"model": "m:latest", "name": "m:latest"}]}
    elif asked.path == "/api/embed":
        texts = json.loads(asked.body)["input"]
        body = {"model": "m", "embeddings": [[3.0, 4.0] for _ in ([texts] if isinstance(texts, str) else texts)]}
    return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        server.answer = embed
        yield server


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., Any]:
    """Opens an embedder with these settings: `opened(provider="openai", base_url=...)`."""

    @asynccontextmanager
    async def open_one(egress: Egress | None = None, **settings: Any) -> AsyncIterator[ProviderEmbedder]:
        given = {"model": "m", "api_key": "sk-secret-key", "timeout": 60} | settings
        embedder = ProviderEmbedder(EmbedderSettings.model_validate(given), tmp_path, egress)
        try:
            yield embedder
        finally:
            await embedder.close()

    return open_one


EACH = [
    "openai",
    "lmstudio",
    pytest.param("ollama", marks=pytest.mark.skipif(not OLLAMA, reason="ollama is not installed")),
    pytest.param("azure_openai", marks=pytest.mark.skipif(not AZURE, reason="azure.identity is not installed")),
]


def address(provider: str, server: Server) -> str:
    return f"http://127.0.0.1:{server.port}" + ("/v1" if provider in ("openai", "lmstudio") else "")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-02-01")
    monkeypatch.setenv("MEM0_DIR", "")


@pytest.mark.parametrize("provider", EACH)
async def test_the_configured_address_is_reached_over_one_connection(
    provider: str, server: Server, opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        async with opened(provider=provider, base_url=address(provider, server)) as embedder:
            for _ in range(3):
                assert (await embedder.query("tea")).vector.tolist() == pytest.approx([0.6, 0.8])
            assert [one.chunks.shape for one in await embedder.documents(["milk", "sugar"])] == [(1, 2), (1, 2)]
        assert proxy.connections == 0
    # Ollama: one connection asks for the model, one each is for queries and documents.
    assert server.connections == (3 if provider == "ollama" else 1)


@pytest.mark.parametrize("provider", EACH)
async def test_a_redirect_leads_no_text_anywhere_else(
    provider: str, server: Server, opened: Callable[..., Any]
) -> None:
    with serving("::1") as private:
        server.answer = lambda asked: (
            embed(asked) if asked.method == "GET" else redirect(f"http://[::1]:{private.port}/", 307)(asked)
        )
        async with opened(provider=provider, base_url=address(provider, server)) as embedder:
            with pytest.raises(
                EmbedderUnavailable, match=r"EgressRefused: .*redirects a request with a body"
            ) as failure:
                await embedder.query("tea")
        assert private.connections == 0
        assert "sk-secret-key" not in str(failure.value)


async def test_a_redirect_of_the_same_server_is_followed(server: Server, opened: Callable[..., Any]) -> None:
    server.answer = lambda asked: (
        embed(asked) if asked.path.startswith("/v2") else redirect("/v2/embeddings", 307)(asked)
    )
    async with opened(provider="openai", base_url=address("openai", server)) as embedder:
        assert (await embedder.query("tea")).vector.shape == (2,)


async def test_a_name_that_leads_to_credentials_of_the_cloud_is_refused(opened: Callable[..., Any]) -> None:
    egress = Egress(resolve=lambda *_: ["169.254.169.254"])
    async with opened(egress, provider="openai", base_url="http://models.example/v1") as embedder:
        with pytest.raises(EmbedderUnavailable, match=r"models\.example: leads to a link-local or metadata address"):
            await embedder.query("tea")


async def test_the_address_that_the_environment_names_is_trusted_too(
    server: Server, opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", address("openai", server))
    async with opened(provider="openai") as embedder:
        assert (await embedder.query("tea")).vector.shape == (2,)


@pytest.mark.parametrize(
    ("base_url", "words"),
    [
        ("http://169.254.169.254/v1", "is a link-local or metadata address"),
        ("http://[fd00:ec2::254]/v1", "is a link-local or metadata address"),
        ("169.254.169.254:80", "is a link-local or metadata address"),
        ("ftp://models.example/v1", "must begin with http:// or https://"),
        ("http://", "a URL without host"),
        ("http://[::1", "not a valid URL"),
    ],
)
def test_an_address_that_must_not_be_reached_stops_the_start(base_url: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"embedder\.base_url: ") as failure:
        ProviderEmbedder(EmbedderSettings(provider="openai", base_url=base_url), tmp_path)
    assert words in failure.value.message


def test_the_list_of_the_settings_allows_it(tmp_path: Path) -> None:
    settings = EmbedderSettings(provider="openai", base_url="http://169.254.169.254/v1")
    assert ProviderEmbedder(settings, tmp_path, Egress(["169.254.169.254"])).model == "openai/text-embedding-3-small"


@pytest.mark.parametrize("base_url", ["localhost:11434", "http://ollama:11434", "https://10.0.0.5/ollama"])
def test_addresses_as_they_are_written_for_ollama_are_taken(base_url: str, tmp_path: Path) -> None:
    assert ProviderEmbedder(EmbedderSettings(provider="ollama", base_url=base_url), tmp_path)


@pytest.mark.skipif(not TOGETHER, reason="together is not installed")
async def test_together_goes_through_the_policy(opened: Callable[..., Any]) -> None:
    egress = Egress(resolve=lambda *_: ["169.254.169.254"])
    async with opened(egress, provider="together") as embedder:
        with pytest.raises(EmbedderUnavailable, match=r"api\.together\.(xyz|ai): leads to a link-local"):
            await embedder.query("tea")
