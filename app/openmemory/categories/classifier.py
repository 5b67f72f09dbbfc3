"""Classifies memories by their vectors and words. Pure functions; no model is called here.

A category is defined by some phrases. The similarity of a memory to it depends on the nearest phrase and on the mean of
all phrases. The scale of cosines differs between models. A cosine is therefore measured in standard deviations above
the mean cosine between phrases of different categories, which is the usual value for unrelated texts. Indicative words
of a category add to the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmemory.categories.schemas import MAX_CHARACTERS
from openmemory.categories.taxonomy import Subject

Matrix = npt.NDArray[np.float32]

NEAREST = 0.5
"""The weight of the nearest phrase. The mean of all phrases has the rest."""

WORDS = 1.2
"""The bonus for a word of the category, in standard deviations."""

SHARPNESS = 1.3
"""The rate at which the confidence falls with the distance from the best category, per standard deviation."""

LEVEL = 1.6
"""The score in standard deviations at which one category alone is as likely as no category."""


class CategoryVectors(NamedTuple):
    """The vectors of categories for one model.

    `phrases`: unit vectors, shape (phrases, dimension), grouped by category; `starts`: the first phrase of each
    category; `middles`: mean vectors, shape (categories, dimension). `usual`, `spread`: mean and standard deviation of
    the cosines between unrelated phrases.
    """

    subjects: tuple[Subject, ...]
    phrases: Matrix
    starts: npt.NDArray[np.int64]
    middles: Matrix
    usual: float
    spread: float


class Choice(NamedTuple):
    """A category and its confidence, 0 to 1."""

    name: str
    confidence: float


def build_vectors(subjects: Sequence[Subject], vectors: Matrix) -> CategoryVectors:
    """Builds the category vectors. `vectors`: the phrases of all subjects, in order, shape (phrases, dimension).

    Raises:
        ValueError: there are fewer than two categories, or the numbers of vectors and phrases differ.
    """
    counts = [len(subject.phrases) for subject in subjects]
    if len(counts) < 2 or sum(counts) != len(vectors):
        raise ValueError(f"{len(counts)} categories with {sum(counts)} phrases, {len(vectors)} vectors")
    starts = np.cumsum([0, *counts[:-1]])
    of = np.repeat(np.arange(len(counts)), counts)
    middles = np.add.reduceat(vectors, starts)
    cosines = (vectors @ vectors.T)[of[:, None] != of[None, :]]
    spread = max(float(cosines.std()), 1e-6)
    return CategoryVectors(tuple(subjects), vectors, starts, _unit(middles), float(cosines.mean()), spread)


def of_chunks(chunks: Matrix) -> Matrix:
    """The normalized mean of the chunk vectors of a text, shape (dimension,)."""
    middle: Matrix = _unit(chunks.sum(axis=0, keepdims=True))[0]
    return middle


def confidences(vectors: Matrix, texts: Sequence[str], categories: CategoryVectors) -> npt.NDArray[np.float64]:
    """The confidence of each category for each text, shape (texts, categories).

    Each row sums to less than 1. The rest is the confidence that no category fits.
    """
    nearest = np.maximum.reduceat(vectors @ categories.phrases.T, categories.starts, axis=1)
    cosines = NEAREST * nearest + (1 - NEAREST) * (vectors @ categories.middles.T)
    spreads = (cosines.astype(np.float64) - categories.usual) / categories.spread
    spreads += WORDS * np.array([[_speaks(subject, text) for subject in categories.subjects] for text in texts])
    weights = np.exp(SHARPNESS * (spreads - LEVEL))
    confidence: npt.NDArray[np.float64] = weights / (1 + weights.sum(axis=1, keepdims=True))
    return confidence


def choose(row: npt.NDArray[np.float64], categories: CategoryVectors, *, threshold: float, most: int) -> list[Choice]:
    """The categories of one memory by falling confidence: at most `most`, none below `threshold`.

    The confidence of each further category is computed without the ones before, because a memory may have several.
    """
    choices: list[Choice] = []
    remaining = 1.0
    for place in np.argsort(-row)[:most]:
        confidence = float(row[place]) / remaining
        if confidence < threshold:
            break
        choices.append(Choice(categories.subjects[place].name, confidence))
        remaining -= float(row[place])
    return choices


def _speaks(subject: Subject, text: str) -> bool:
    return subject.words is not None and subject.words.search(text[:MAX_CHARACTERS]) is not None


def _unit(vectors: Matrix) -> Matrix:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Matrix = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit
