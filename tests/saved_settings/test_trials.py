"""Models that are tried before they are saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openmemory.config.settings import Settings
from openmemory.egress.clients import Egress
from openmemory.errors import Forbidden, Invalid
from openmemory.identity.principal import LOCAL, Principal, Scope
from openmemory.llm.providers import Llms
from openmemory.saved_settings.embedders import Embedders
from openmemory.saved_settings.schemas import ConfigPatch
from openmemory.saved_settings.service import Configuration
from openmemory.saved_settings.trials import Trials
from openmemory.services import Services
from tests.llm.server import Answer, LlmServer, says

KEY = "test-key-0123456789"


@pytest.fixture
def server() -> Iterator[LlmServer]:
    made = LlmServer(lambda _: says({"ok": True}))
    yield made
    made.close()


def trials(services: Services, folder: Path, *allowed: str, environ: dict[str, str] | None = None) -> Trials:
    egress = Egress(allowed)
    configuration = Configuration(services.database, Settings(), egress, environ or {})
    embedders = Embedders(services.database, configuration.baseline, folder, egress, environ or {})
    return Trials(configuration, embedders, Llms(folder, egress))


def sent(server: LlmServer, **config: Any) -> ConfigPatch:
    whole = {"model": "m", "api_key": KEY, "openai_base_url": server.url} | config
    return ConfigPatch.model_validate({"mem0": {"llm": {"provider": "openai", "config": whole}}})


async def test_a_model_is_asked_once_and_nothing_is_saved(
    services: Services, server: LlmServer, tmp_path: Path
) -> None:
    tried = trials(services, tmp_path, f"127.0.0.1:{server.port}")
    result = await tried.run(LOCAL, sent(server))
    assert result.llm is not None
    assert (result.llm.ok, result.llm.model, result.llm.detail) == (True, "openai/m", None)
    assert result.embedder is None
    assert server.keys == [KEY]
    assert (await services.configuration.effective()).llm is None


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(f"bad key {KEY}", status=401), "the key was refused (401)"),
        (Answer("I am fine, thanks."), "it answers, but with no JSON"),
        (Answer("no", status=500), "no"),
    ],
)
async def test_what_is_wrong_with_it_is_told(
    services: Services, server: LlmServer, tmp_path: Path, answer: Answer, words: str
) -> None:
    server.script = lambda _: answer
    result = await trials(services, tmp_path, f"127.0.0.1:{server.port}").run(LOCAL, sent(server))
    assert result.llm is not None
    assert not result.llm.ok
    assert words in str(result.llm.detail)
    assert KEY not in str(result)


async def test_a_private_address_that_nobody_allowed_is_refused_before_anything_is_sent(
    services: Services, server: LlmServer, tmp_path: Path
) -> None:
    with pytest.raises(Invalid, match="openai_base_url"):
        await trials(services, tmp_path).run(LOCAL, sent(server))
    assert server.asked == []


async def test_a_variable_that_is_missing_is_told(services: Services, server: LlmServer, tmp_path: Path) -> None:
    tried = trials(services, tmp_path)
    body = {"mem0": {"llm": {"provider": "openai", "config": {"model": "m", "api_key": "env:OPENAI_API_KEY"}}}}
    result = await tried.run(LOCAL, ConfigPatch.model_validate(body))
    assert result.llm is not None
    assert "no environment variable OPENAI_API_KEY" in str(result.llm.detail)


async def test_without_a_model_to_try_those_in_force_are(services: Services, tmp_path: Path) -> None:
    result = await trials(services, tmp_path).run(LOCAL, ConfigPatch())
    assert result.llm is None
    assert result.embedder is not None
    assert result.embedder.ok


async def test_only_administrators_try_models(services: Services, server: LlmServer, tmp_path: Path) -> None:
    stranger = Principal("key:x", "x", scopes=frozenset({Scope.READ, Scope.WRITE}))
    with pytest.raises(Forbidden):
        await trials(services, tmp_path).run(stranger, sent(server))
