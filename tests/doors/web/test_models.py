"""Trying and choosing models at the page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from openmemory.config.settings import Settings
from openmemory.doors.server.application import create_app
from openmemory.egress.clients import Egress
from openmemory.identity.principal import LOCAL
from openmemory.llm.providers import Llms
from openmemory.saved_settings.embedders import Embedders
from openmemory.saved_settings.service import Configuration
from openmemory.saved_settings.trials import Trials
from openmemory.services import Services
from tests.doors.web.conftest import Visitor
from tests.llm.server import Answer, LlmServer, says

KEY = "test-key-0123456789"


@pytest.fixture
def server() -> Iterator[LlmServer]:
    made = LlmServer(lambda _: says({"ok": True}))
    yield made
    made.close()


@pytest.fixture
async def models(services: Services, server: LlmServer, tmp_path: Path, new_user: str) -> AsyncIterator[Visitor]:
    """A visitor of a service that may connect to the language model of the test."""
    egress = Egress((f"127.0.0.1:{server.port}",))
    configuration = Configuration(services.database, Settings(), egress, {})
    embedders = Embedders(services.database, configuration.baseline, tmp_path, egress, {})
    changed = replace(
        services,
        configuration=configuration,
        embedders=embedders,
        trials=Trials(configuration, embedders, Llms(tmp_path, egress)),
    )
    await services.directory.caller(new_user, None, owner=True)
    transport = httpx.ASGITransport(create_app(changed))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8765") as http:
        yield Visitor(http, new_user)
    await configuration.reset(LOCAL)


def fields(server: LlmServer, **changes: str) -> dict[str, str]:
    return {"part": "llm", "provider": "openai", "model": "m", "address": server.url, "api_key": KEY} | changes


async def test_a_model_is_tried_saved_and_given_up(models: Visitor, server: LlmServer) -> None:
    await models.get("settings/models")
    assert "none in use" in models.words
    await models.submit("settings/models/test", **fields(server))
    assert "openai/m answers" in models.words
    assert "none in use" in models.words
    assert server.keys == [KEY]
    assert f'value="{server.url}"' in models.shown
    assert KEY not in models.shown
    await models.submit("settings/models", **fields(server))
    assert "none in use" not in models.words
    assert "saved here" in models.words
    assert 'placeholder="unchanged"' in models.shown
    assert KEY not in models.shown
    await models.submit("settings/models/test", **fields(server, api_key=""))
    assert server.keys == [KEY, KEY]
    await models.submit("settings/models/reset", part="llm")
    assert "none in use" in models.words


async def test_what_is_wrong_with_a_model_is_told(models: Visitor, server: LlmServer) -> None:
    server.script = lambda _: Answer(f"bad key {KEY}", status=401)
    await models.get("settings/models")
    await models.submit("settings/models/test", **fields(server))
    assert "the key was refused (401)" in models.words
    assert KEY not in models.shown


async def test_a_key_stays_with_its_provider(models: Visitor, server: LlmServer) -> None:
    await models.get("settings/models")
    await models.submit("settings/models", **fields(server))
    await models.submit("settings/models/test", part="llm", provider="groq", model="m")
    assert "groq/m" in models.words
    assert server.keys == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"provider": "nobody"}, "must be a known provider"),
        ({"model": ""}, "model"),
        ({"temperature": "hot"}, "temperature"),
        ({"address": "http://192.168.7.7/"}, "openai_base_url"),
        ({"provider": "groq", "address": "http://x/"}, "address: must be left out: groq has a fixed one"),
        ({"part": "moon"}, "part: must be one of llm, embedder"),
    ],
)
async def test_a_wrong_model_is_refused_in_words(
    models: Visitor, server: LlmServer, changes: dict[str, str], words: str
) -> None:
    await models.get("settings/models")
    await models.submit("settings/models", status=422, **fields(server, **changes))
    assert words in models.words


async def test_the_embedder_in_use_answers_and_stays(models: Visitor) -> None:
    await models.get("settings/models")
    sent = {"part": "embedder", "provider": "local", "model": "all-MiniLM-L6-v2-int8"}
    await models.submit("settings/models/test", **sent)
    assert "local/all-MiniLM-L6-v2-int8 answers" in models.words
    await models.submit("settings/models", **sent)
    assert "from openmemory.toml or the environment" in models.words


async def test_instructions_are_saved_and_removed(models: Visitor) -> None:
    await models.get("settings/models")
    await models.submit("settings/models/instructions", instructions="Keep <decisions>.")
    assert "Keep &lt;decisions&gt;.</textarea>" in models.shown
    await models.submit("settings/models/instructions", instructions=" ")
    assert "Removed the instructions." in models.words
