"""How near chance makes a text: the same for all models and all languages."""

from __future__ import annotations

import numpy as np
import pytest

from openmemory.embeddings.chance import (
    LEAST_DEVIATION,
    SCALE,
    ChanceCosine,
    background,
    chance_cosine,
    embedded,
    texts,
)
from openmemory.embeddings.local import LocalEmbedder
from openmemory.embeddings.port import Vectors


def shifted(vectors: Vectors, by: float) -> Vectors:
    """The vectors of a model that gives all texts a direction in common, as those of the e5 family do."""
    common = np.zeros(vectors.shape[1] + 1, dtype=np.float32)
    common[-1] = by
    longer = np.concatenate([vectors, np.zeros((len(vectors), 1), dtype=np.float32)], axis=1) + common
    return longer / np.linalg.norm(longer, axis=1, keepdims=True)


def test_the_background_has_a_text_a_line() -> None:
    assert len(texts()) == len(set(texts())) == 96
    assert all(3 < len(text) < 200 for text in texts())


def test_nearness_counts_deviations_above_the_mean() -> None:
    assert ChanceCosine(0.76, 0.02).nearness(0.84) == pytest.approx(4 / SCALE)


def test_a_model_whose_cosines_are_all_high_gives_the_same_nearness() -> None:
    chance = np.random.default_rng(5)
    made = chance.standard_normal((98, 64)).astype(np.float32)
    made[97] = made[96] + 0.8 * made[97]
    unit = made / np.linalg.norm(made, axis=1, keepdims=True)
    found = []
    for vectors in (unit, shifted(unit, 1.78)):
        question, right = vectors[96], vectors[97]
        found.append(chance_cosine(question, vectors[:96]).nearness(float(question @ right)))
    assert found[0] == pytest.approx(found[1], rel=1e-3)
    assert found[0] > 1


def test_a_model_that_gives_all_texts_one_vector_says_nothing() -> None:
    same = np.ones((96, 4), dtype=np.float32) / 2
    found = chance_cosine(same[0], same)
    assert found.deviation == LEAST_DEVIATION
    assert found.nearness(1.0) == pytest.approx(0, abs=1e-4)


async def test_a_question_is_no_nearer_to_texts_for_being_in_their_language() -> None:
    """The packaged model knows English; to it, texts of another language are alike."""
    embedder = LocalEmbedder()
    try:
        vectors = await background(embedder)
        asked, text = "wie heißt mein Steuerberater?", "Meine Klavierlehrerin heißt Frau Osterkamp."
        [document] = await embedder.documents([text])
        question = (await embedder.query(asked)).vector
        cosine = float(document.chunks[0] @ question)
        assert chance_cosine(question, vectors).mean > 0.1
        assert chance_cosine(question, vectors).nearness(cosine) < ChanceCosine(0.065, 0.073).nearness(cosine)
    finally:
        await embedder.close()


async def test_the_vectors_that_come_with_the_packaged_model_are_its_own() -> None:
    """After a change of the texts or the model: `python tools/background.py`."""
    embedder = LocalEmbedder()
    try:
        kept, made = await background(embedder), await embedded(embedder)
    finally:
        await embedder.close()
    assert kept.shape == made.shape
    assert (kept * made).sum(axis=1).min() > 0.99
    question = made[0]
    assert chance_cosine(question, kept) == pytest.approx(chance_cosine(question, made), abs=0.002)
