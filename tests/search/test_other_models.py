"""Searches with a multilingual model of a provider, whose cosines are all high, as those of the e5 family are."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from openmemory.config.settings import Settings
from openmemory.embeddings.chance import texts
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.search.schemas import Method, SearchQuery
from openmemory.services import Services, open_services
from tests.clusters import furnish
from tests.faults.embedding_server import EmbeddingServer

SHIFT = 1.78
"""The length of the direction that every vector contains. With it, unrelated texts have a cosine of .76."""

SAME = {
    "wohne": "live", "vivo": "live", "nüsse": "nuts", "nueces": "nuts", "allergisch": "allergic",
    "alérgica": "allergic",
    "hund": "dog", "perro": "dog", "heißt": "called", "llama": "called", "dónde": "where",
}  # fmt: skip
"""The words that the model knows to mean the same."""

MEMORIES = ("I live in Hamburg", "allergic to nuts", "our dog is called Bruno", "the tax return is done", "buy milk")


class MultilingualServer(EmbeddingServer):
    """Vectors of the meanings of a text's words, with a direction in common."""

    def vector(self, text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        words = [word for word in re.findall(r"\w+", text.casefold()) if len(word) > 2]
        seeds = [crc32(SAME.get(word, word).encode()) for word in words]
        total = sum((np.random.default_rng(seed).standard_normal(self.dimension) for seed in seeds), np.zeros(1))
        length = float(np.linalg.norm(total))
        both = (total / length if length else np.zeros(self.dimension)) + self.common
        unit: np.ndarray[Any, np.dtype[np.float32]] = (both / np.linalg.norm(both)).astype(np.float32)
        return unit

    @property
    def common(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The direction that every vector contains."""
        one = np.random.default_rng(3).standard_normal(self.dimension)
        return SHIFT * one / np.linalg.norm(one)


@pytest.fixture
def server() -> Iterator[MultilingualServer]:
    with closing(MultilingualServer(256)) as server:
        yield server


@pytest.fixture
async def multilingual(short_folder: Path, server: MultilingualServer) -> AsyncIterator[tuple[Services, Caller]]:
    """Services with that model, and a user with a few memories."""
    embedder = {"provider": "openai", "model": "m", "api_key": "k", "base_url": f"http://127.0.0.1:{server.port}/v1"}
    settings = {"data_dir": str(furnish(short_folder / "multilingual")), "port": 0, "embedder": embedder}
    async with open_services(Settings.model_validate(settings)) as services:
        caller = await services.directory.caller("ada", None, owner=True)
        await services.memories.add_many(caller, [MemoryCreate(text) for text in MEMORIES])
        await services.outbox_delivery.drain()
        yield services, caller


@pytest.mark.slow
async def test_the_right_one_is_found_in_any_language_and_nothing_else(
    multilingual: tuple[Services, Caller], server: MultilingualServer
) -> None:
    services, caller = multilingual
    for question, right in (
        ("where do I live?", MEMORIES[0]),
        ("wo wohne ich?", MEMORIES[0]),
        ("alérgica a nueces", MEMORIES[1]),
        ("wie heißt der Hund?", MEMORIES[2]),
    ):
        answer = await services.search.search(caller, SearchQuery(question))
        assert answer.search_method is Method.HYBRID
        assert answer.results[0].memory == right, question
        assert (answer.results[0].parts.cosine or 0) > 0.78, question
        assert len(answer.results) == 1 or answer.results[1].score < answer.results[0].score / 3, question
    assert sum(text in server.embedded for text in texts()) == len(texts()), "the background is embedded once"
    assert len([text for text in server.embedded if text == texts()[0]]) == 1


async def test_what_nothing_answers_finds_nothing(multilingual: tuple[Services, Caller]) -> None:
    services, caller = multilingual
    for question in ("quasar redshift", "wer gewann das Turnier?", "número del pasaporte"):
        answer = await services.search.search(caller, SearchQuery(question))
        assert [result.memory for result in answer.results] == [], question
