"""The cache of query vectors, over the packaged model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from openmemory.embeddings.cache import AT_ONCE, EARLY, CachedEmbedder
from openmemory.embeddings.local import LocalEmbedder
from openmemory.embeddings.port import EmbedderUnavailable, QueryEmbedding, TextEmbedding


class Watched(LocalEmbedder):
    """The packaged model, noting what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def query(self, text: str) -> QueryEmbedding:
        self.asked.append(text)
        return await super().query(text)

    async def documents(self, texts: Sequence[str]) -> list[TextEmbedding]:
        self.asked.extend(texts)
        return await super().documents(texts)


@pytest.fixture(scope="module")
async def model() -> AsyncIterator[Watched]:
    model = Watched()
    yield model
    await model.close()


@pytest.fixture
def watched(model: Watched) -> Watched:
    model.asked.clear()
    return model


async def test_a_repeated_query_is_embedded_once(watched: Watched) -> None:
    cached = CachedEmbedder(watched)
    first = await cached.query("tea")
    assert await cached.query("tea") is first
    assert watched.asked == ["tea"]


async def test_identical_queries_at_once_are_embedded_once(watched: Watched) -> None:
    cached = CachedEmbedder(watched)
    vectors = await asyncio.gather(*(cached.query(text) for text in ("tea", "milk", "tea", "tea")))
    assert sorted(watched.asked) == ["milk", "tea"]
    assert vectors[0] is vectors[2] is vectors[3]
    assert vectors[0].vector @ vectors[1].vector < 0.99


async def test_the_least_recently_used_query_is_forgotten_first(watched: Watched) -> None:
    cached = CachedEmbedder(watched, size=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await cached.query(text)
    assert watched.asked == ["a", "b", "c", "b"]


async def test_nobody_can_change_a_vector_that_others_share(watched: Watched) -> None:
    made = await CachedEmbedder(watched).query("tea")
    assert made.tokens is not None
    for array in (made.vector, made.tokens):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


async def test_a_caller_that_gives_up_does_not_take_the_vector_from_the_others(watched: Watched) -> None:
    cached = CachedEmbedder(watched)
    hasty, patient = asyncio.create_task(cached.query("tea")), asyncio.create_task(cached.query("tea"))
    await asyncio.sleep(0)
    hasty.cancel()
    assert (await patient).vector.shape == (384,)
    with pytest.raises(asyncio.CancelledError):
        await hasty
    assert watched.asked == ["tea"]


async def test_what_all_callers_gave_up_is_given_up_and_made_anew_for_the_next() -> None:
    class Slow(Watched):
        given_up = 0

        async def query(self, text: str) -> QueryEmbedding:
            if not self.asked:
                self.asked.append(text)
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.given_up += 1
                    raise
            return await super().query(text)

    slow = Slow()
    cached = CachedEmbedder(slow)
    both = [asyncio.create_task(cached.query("tea")) for _ in range(2)]
    await asyncio.sleep(0)
    both[0].cancel()
    await asyncio.wait([both[0]])
    assert not slow.given_up
    both[1].cancel()
    await asyncio.sleep(0)
    # While that one ends another comes, and gets its vector.
    assert (await cached.query("tea")).vector.shape == (384,)
    assert slow.given_up == 1
    assert slow.asked == ["tea", "tea"]
    await slow.close()


async def test_documents_pass_the_cache_by(watched: Watched) -> None:
    cached = CachedEmbedder(watched)
    await cached.documents(["tea"])
    await cached.documents(["tea"])
    await cached.query("tea")
    assert watched.asked == ["tea", "tea", "tea"]
    assert await cached.dimension() == 384
    assert cached.model == "all-MiniLM-L6-v2-int8"


async def test_a_failure_reaches_every_caller_and_is_not_remembered() -> None:
    closed = Watched()
    await closed.close()
    cached = CachedEmbedder(closed)
    results = await asyncio.gather(cached.query("tea"), cached.query("tea"), return_exceptions=True)
    assert all(isinstance(result, EmbedderUnavailable) for result in results)
    with pytest.raises(EmbedderUnavailable):
        await cached.query("tea")
    assert closed.asked == ["tea", "tea"]


async def test_a_text_that_is_embedded_early_is_embedded_once(watched: Watched) -> None:
    cached = CachedEmbedder(watched)
    early = await cached.document("tea")
    running = asyncio.create_task(cached.document("milk"))
    await asyncio.sleep(0)
    made = await cached.documents(["water", "tea", "milk", "wine"])
    assert made[1] is early
    assert made[2] is await running
    assert sorted(watched.asked) == ["milk", "tea", "water", "wine"]
    plain = await watched.documents(["water", "tea", "milk", "wine"])
    for one, other in zip(made, plain, strict=True):
        assert one.chunks @ other.chunks.T > 0.999
    assert not early.chunks.flags.writeable

    watched.asked.clear()
    await cached.documents(["tea"])
    assert watched.asked == ["tea"], "an embedding is taken over once"


async def test_few_texts_are_kept_for_their_delivery(watched: Watched) -> None:
    cached = CachedEmbedder(watched)
    for number in range(EARLY + 1):
        await cached.document(f"tea {number}")
    watched.asked.clear()
    await cached.documents([f"tea {number}" for number in range(EARLY + 1)])
    assert watched.asked == ["tea 0"]


async def test_few_texts_are_embedded_early_at_once(watched: Watched) -> None:
    cached = CachedEmbedder(watched)
    running = [asyncio.create_task(cached.document(f"tea {number}")) for number in range(AT_ONCE)]
    await asyncio.sleep(0)
    assert cached.busy
    with pytest.raises(EmbedderUnavailable, match="busy"):
        await cached.document("milk")
    await asyncio.gather(*running)
    assert not cached.busy
    assert "milk" not in watched.asked


class Refusing(Watched):
    """The packaged model, which refuses the next `refuses` calls."""

    refuses = 0

    async def documents(self, texts: Sequence[str]) -> list[TextEmbedding]:
        if self.refuses:
            self.refuses -= 1
            raise EmbedderUnavailable("no")
        return await super().documents(texts)


async def test_an_early_embedding_that_fails_is_made_again() -> None:
    refusing = Refusing()
    cached = CachedEmbedder(refusing)
    refusing.refuses = 1
    with pytest.raises(EmbedderUnavailable, match="no"):
        await cached.document("tea")
    refusing.refuses = 1
    early = asyncio.create_task(cached.document("tea"))
    await asyncio.sleep(0)
    [made] = await cached.documents(["tea"])
    assert made.chunks.shape == (1, 384)
    with pytest.raises(EmbedderUnavailable, match="no"):
        await early
    await cached.close()


async def test_who_waits_for_an_early_embedding_is_told_that_the_model_closes() -> None:
    model = Watched()
    cached = CachedEmbedder(model)
    waiting = asyncio.create_task(cached.document("tea"))
    await asyncio.sleep(0)
    await cached.close()
    with pytest.raises(EmbedderUnavailable, match="closed"):
        await waiting
