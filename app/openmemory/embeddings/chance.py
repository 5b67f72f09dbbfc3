"""Says how much nearer a text is to a question than chance makes it: a cosine in standard deviations.

Cosines do not compare between models: two texts without a common subject have .07 with the packaged one, .76 with
models of the e5 family. Nor do they between questions: those in another language are near to all texts in it. So a
question is compared with a background of texts that have nothing to do with it (test normalisation, Auckenthaler,
Carey and Lloyd-Thomas 2000).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from openmemory.embeddings.port import PACKAGED, Embedder, Vector, Vectors

_FILE = Path(__file__).with_name("background.txt")
VECTORS = Path(__file__).with_name("background.npy")
"""The vectors of the texts by the packaged model, times 127 and rounded, int8 of shape (texts, dimension)."""

LEAST_DEVIATION = 0.01
"""The least standard deviation that is believed. A model that gives all texts the same vector has none."""

SCALE = 4.0
"""The number of standard deviations that count as 1."""

NEAREST = 4.0
"""The greatest nearness. More says nothing: the texts are the same."""


class ChanceCosine(NamedTuple):
    """The mean and the standard deviation of a question's cosines with the background."""

    mean: float
    deviation: float

    def nearness(self, cosine: float) -> float:
        """The standard deviations of a cosine above the mean, divided by `SCALE`, at most `NEAREST`.

        >>> ChanceCosine(mean=0.1, deviation=0.1).nearness(0.5)
        1.0
        """
        return min((cosine - self.mean) / self.deviation / SCALE, NEAREST)


USUAL = ChanceCosine(0.065, 0.073)
"""That of a usual question with the packaged model."""


def texts() -> list[str]:
    """The background: one text of each of many subjects, in the languages of most memories."""
    return _FILE.read_text(encoding="utf-8").splitlines()


async def background(embedder: Embedder) -> Vectors:
    """The vectors of the background, shape (texts, dimension). Those of the packaged model come with it.

    Raises:
        EmbedderUnavailable: the model does not answer.
    """
    if embedder.model == PACKAGED:
        vectors = np.load(VECTORS, allow_pickle=False).astype(np.float32)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)
    return await embedded(embedder)


async def embedded(embedder: Embedder) -> Vectors:
    """The vectors of the background, made by the model.

    Raises:
        EmbedderUnavailable: the model does not answer.
    """
    return np.stack([one.chunks[0] for one in await embedder.documents(texts())])


def chance_cosine(question: Vector, vectors: Vectors) -> ChanceCosine:
    """The mean and the standard deviation of the cosines between a question and the background."""
    cosines = vectors @ question
    return ChanceCosine(float(cosines.mean()), max(float(cosines.std()), LEAST_DEVIATION))
