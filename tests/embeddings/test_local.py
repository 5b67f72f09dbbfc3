"""The packaged model, always the real one."""

from __future__ import annotations

import asyncio
import gc
import itertools
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmemory.embeddings import local
from openmemory.embeddings.chunks import MAX_CHUNKS
from openmemory.embeddings.local import (
    BATCH_TOKENS,
    MODEL,
    RUN_TOKENS,
    TOKENIZER,
    LocalEmbedder,
    PackagedFile,
    partition,
)
from openmemory.embeddings.port import EmbedderUnavailable

LONG = "The quarterly report lists revenue, costs and staff of every office in Europe. " * 40


def nobody_has_loaded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_models", WeakValueDictionary())
    local._tokenizer.cache_clear()


@pytest.fixture(scope="module")
async def embedder() -> AsyncIterator[LocalEmbedder]:
    embedder = LocalEmbedder()
    yield embedder
    await embedder.close()


@pytest.mark.parametrize(
    ("text", "related", "unrelated"),
    [
        ("Alice is allergic to peanuts", "What food must Alice avoid?", "The build server runs on Debian"),
        ("We deploy to production every Friday", "release schedule", "My cat sleeps on the sofa"),
        ("The user prefers dark mode", "favourite colour theme of the editor", "Flights to Lisbon are cheap in March"),
        ("Our database is PostgreSQL 18", "which SQL server do we use", "She plays the violin"),
    ],
)
async def test_related_texts_are_closer_than_unrelated_ones(
    embedder: LocalEmbedder, text: str, related: str, unrelated: str
) -> None:
    one, near, far = np.concatenate([made.chunks for made in await embedder.documents([text, related, unrelated])])
    assert one @ near > one @ far + 0.15


async def test_vectors_are_unit_float32_of_the_models_dimension(embedder: LocalEmbedder) -> None:
    made = await embedder.documents(["a", "", "x" * 5000, "naïve café 東京 🚀", LONG, "a\x00b"])
    found = [one.chunks for one in made]
    assert [len(one) for one in found] == [1, 1, 1, 1, 9, 1]
    vectors = np.concatenate(found)
    assert vectors.shape == (14, await embedder.dimension()) == (14, 384)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-5)


async def test_no_texts_give_no_rows(embedder: LocalEmbedder) -> None:
    assert await embedder.documents([]) == []


async def test_a_query_and_a_document_of_the_same_text_have_the_same_vector(embedder: LocalEmbedder) -> None:
    query = (await embedder.query("coffee without sugar")).vector
    assert query.shape == (384,)
    assert query @ (await embedder.documents(["coffee without sugar"]))[0].chunks[0] > 0.9999


@pytest.mark.slow
async def test_a_vector_does_not_depend_on_its_batch(embedder: LocalEmbedder) -> None:
    short = [
        f"note {number} about {topic}" for number, topic in enumerate(["tea", "a very long train ride", "SQL"] * 30)
    ]
    texts = [LONG, *short, LONG[:900], LONG[:90]]
    together = [one.chunks for one in await embedder.documents(texts)]
    for row in (1, 2, 3, 50, len(texts) - 1):
        assert together[row][0] @ (await embedder.query(texts[row])).vector > 0.998
    [alone] = await embedder.documents([LONG])
    assert (np.einsum("wd,wd->w", together[0], alone.chunks) > 0.998).all()


async def test_queries_at_once_are_answered_each_with_its_own_vector(embedder: LocalEmbedder) -> None:
    texts = [f"{word} " * length for word in ("tea", "Rome") for length in (1, 2, 9, 80)]
    alone = [await embedder.query(text) for text in texts]
    together = await asyncio.gather(*map(embedder.query, texts))
    assert all(one.vector @ other.vector > 0.998 for one, other in zip(alone, together, strict=True))


async def test_a_cancelled_query_does_not_disturb_the_others_of_its_batch(embedder: LocalEmbedder) -> None:
    first, second, third = (asyncio.create_task(embedder.query(text)) for text in ("one", "two", "three"))
    await asyncio.sleep(0)
    second.cancel()
    assert (await first).vector @ (await embedder.query("one")).vector > 0.998
    assert (await third).vector @ (await embedder.query("three")).vector > 0.998
    with pytest.raises(asyncio.CancelledError):
        await second


async def test_of_a_query_only_the_first_256_tokens_count(embedder: LocalEmbedder) -> None:
    head = "word " * 300
    whole = await embedder.query(head + "and a different end")
    assert (await embedder.query(head)).vector @ whole.vector > 0.9999


async def test_a_sentence_far_within_a_text_is_near_the_vector_of_its_window(embedder: LocalEmbedder) -> None:
    said = (
        "Grandmother keeps the spare key under the blue flowerpot beside the garden door. Whoever comes late takes"
        " the spare key from there, opens the house, and puts the spare key back under the flowerpot, so that the next"
        " one finds it. The neighbours know where the spare key is, and water the flowers when nobody is at home."
    )
    before, after = LONG[:4_000], LONG[:1_000]
    [(chunks, _)] = await embedder.documents([before + said + after])
    question = (await embedder.query("Where is the spare key?")).vector
    [(whole, _)] = await embedder.documents([said])
    assert len(chunks) == (await embedder.chunks([before + said + after]))[0] > 10
    best = int((chunks @ question).argmax())
    assert 0 < best < len(chunks) - 1
    assert chunks[best] @ question > chunks[0] @ question + 0.2
    assert chunks[best] @ whole[0] > chunks[0] @ whole[0] + 0.2


@pytest.mark.slow
async def test_texts_beyond_the_longest_windows_are_read_as_far_as_those_reach(embedder: LocalEmbedder) -> None:
    [(vectors, _)] = await embedder.documents([LONG * 12])
    assert vectors.shape == (MAX_CHUNKS, 384)


async def test_a_lone_surrogate_is_embedded_like_a_replacement(embedder: LocalEmbedder) -> None:
    replaced = await embedder.query("tea ? cup")
    assert (await embedder.query("tea \ud800 cup")).vector @ replaced.vector > 0.9999


async def test_a_query_does_not_wait_for_a_bulk_import(embedder: LocalEmbedder) -> None:
    await embedder.warm()
    bulk = asyncio.create_task(embedder.documents([LONG] * 60))
    await asyncio.sleep(0)
    for number in range(3):
        await embedder.query(f"question {number}")
    assert not bulk.done()
    bulk.cancel()
    await asyncio.wait([bulk])


async def test_a_cancelled_import_stops_and_leaves_the_embedder_usable(embedder: LocalEmbedder) -> None:
    bulk = asyncio.create_task(embedder.documents([LONG] * 5_000))
    await embedder.query("while it runs")
    bulk.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bulk
    # 5,000 such texts take minutes: the deadline of the test would end it if the thread went on with them.
    assert [one.chunks.shape for one in await embedder.documents(["next"])] == [(1, 384)]


async def test_the_model_is_loaded_once_by_calls_that_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    verified = PackagedFile.verified

    def counted(file: PackagedFile) -> Path:
        reads.append(file.name)
        return verified(file)

    monkeypatch.setattr(PackagedFile, "verified", counted)
    nobody_has_loaded_one(monkeypatch)
    embedder = LocalEmbedder()
    assert reads == []
    await asyncio.gather(embedder.query("a"), embedder.documents(["b"]), embedder.dimension(), embedder.warm())
    await embedder.close()
    assert sorted(reads) == sorted([MODEL.name, TOKENIZER.name])


async def test_after_close_every_call_says_unavailable_and_no_thread_is_left() -> None:
    others = set(threading.enumerate())
    embedder = LocalEmbedder()
    await embedder.query("a")
    await embedder.documents(["a"])
    own = [t for t in threading.enumerate() if t not in others and t.name.startswith("embed-")]
    assert {thread.name.rstrip("_0") for thread in own} == {"embed-query", "embed-documents"}
    await embedder.close()
    await embedder.close()
    assert not any(thread.is_alive() for thread in own)
    for call in (embedder.query("a"), embedder.documents(["a"]), embedder.dimension(), embedder.warm()):
        with pytest.raises(EmbedderUnavailable):
            await call


def data_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the packaged files, which is used instead of them."""
    copied = folder / "data"
    shutil.copytree(local.DATA, copied)
    monkeypatch.setattr(local, "DATA", copied)
    nobody_has_loaded_one(monkeypatch)
    return copied


async def test_one_model_serves_all_of_a_process_and_goes_with_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody_has_loaded_one(monkeypatch)
    first, second, other = LocalEmbedder(), LocalEmbedder(), LocalEmbedder(tokenwise=False)
    for embedder in (first, second, other):
        await embedder.warm()
    assert len(local._models) == 2, "one that tells of tokens, one that does not"
    await first.close()
    assert (await second.query("a")).vector.shape == (384,)
    await second.close()
    await other.close()
    gc.collect()
    assert not local._models


@pytest.mark.parametrize("name", [MODEL.name, TOKENIZER.name])
async def test_a_file_with_one_flipped_bit_is_refused_by_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = data_of(tmp_path, monkeypatch) / name
    whole = file.read_bytes()
    damaged = bytearray(whole)
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    embedder = LocalEmbedder()
    with pytest.raises(EmbedderUnavailable, match=rf"{name}: damaged; reinstall openmemory-server"):
        await embedder.query("a")
    file.write_bytes(whole)
    assert (await embedder.query("a")).vector.shape == (384,), "a mended installation is picked up without a restart"
    await embedder.close()


@pytest.mark.parametrize("name", [MODEL.name, f"{MODEL.name}.sha256", TOKENIZER.name])
async def test_a_missing_file_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data_of(tmp_path, monkeypatch) / name).unlink()
    embedder = LocalEmbedder()
    for call in (embedder.documents(["a"]), embedder.query("a"), embedder.dimension()):
        with pytest.raises(EmbedderUnavailable, match=f"{name}: cannot be read: No such file"):
            await call
    await embedder.close()


@given(st.lists(st.integers(2, 256), max_size=60).map(sorted))
def test_runs_cover_every_row_once_and_keep_to_the_budget(lengths: list[int]) -> None:
    runs = partition(lengths)
    assert [row for run in runs for row in range(run.start, run.stop)] == list(range(len(lengths)))
    assert all((run.stop - run.start) * lengths[run.stop - 1] <= BATCH_TOKENS for run in runs)


def cost(lengths: list[int], runs: list[slice]) -> int:
    return sum((run.stop - run.start) * lengths[run.stop - 1] + RUN_TOKENS for run in runs)


@given(st.lists(st.integers(2, 120), min_size=1, max_size=9).map(sorted))
def test_no_other_cut_is_cheaper(lengths: list[int]) -> None:
    size = len(lengths)
    possible = []
    for cuts in itertools.product([False, True], repeat=size - 1):
        edges = [0, *(place for place, cut in enumerate(cuts, 1) if cut), size]
        runs = [slice(start, stop) for start, stop in itertools.pairwise(edges)]
        if all((run.stop - run.start) * lengths[run.stop - 1] <= BATCH_TOKENS for run in runs):
            possible.append(cost(lengths, runs))
    assert cost(lengths, partition(lengths)) == min(possible)
