"""Which categories a memory belongs to, by its vector and its words. Pure; no model is asked here.

A category is told by some phrases. How near a memory is to it says the nearest of them as well as all together. Models
differ in what a cosine means, so that it counts in spreads above the mean of cosines between phrases of different
categories: what is usual between things that have nothing to do with each other. Words of a category add to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmemory.categories.taxonomy import Subject

Matrix = npt.NDArray[np.float32]

NEAREST = 0.5
"""How much the nearest phrase counts, as against the middle of all."""

WORDS = 1.2
"""What a word of the category adds, in spreads."""

SHARPNESS = 1.3
"""How fast the confidence falls with the distance from the best category, per spread."""

LEVEL = 1.6
"""Spreads at which a memory is as likely about nothing as about a category that it is alone near to."""

READ = 2_000
"""Characters of a text in which words are looked for."""


class Known(NamedTuple):
    """Categories as one model sees them.

    `phrases`: unit vectors, shape (phrases, dimension), category after category, of which `starts` has the first ones;
    `middles`: shape (categories, dimension). `usual`, `spread`: of cosines between unrelated phrases.
    """

    subjects: tuple[Subject, ...]
    phrases: Matrix
    starts: npt.NDArray[np.int64]
    middles: Matrix
    usual: float
    spread: float


class Choice(NamedTuple):
    """A category, and how sure it is, 0 to 1."""

    name: str
    confidence: float


def known(subjects: Sequence[Subject], vectors: Matrix) -> Known:
    """`vectors`: of the phrases of all subjects, in their order, shape (phrases, dimension).

    Raises:
        ValueError: there are fewer than two categories, or another number of vectors than of phrases.
    """
    counts = [len(subject.phrases) for subject in subjects]
    if len(counts) < 2 or sum(counts) != len(vectors):
        raise ValueError(f"{len(counts)} categories with {sum(counts)} phrases, {len(vectors)} vectors")
    starts = np.cumsum([0, *counts[:-1]])
    of = np.repeat(np.arange(len(counts)), counts)
    middles = np.add.reduceat(vectors, starts)
    cosines = (vectors @ vectors.T)[of[:, None] != of[None, :]]
    spread = max(float(cosines.std()), 1e-6)
    return Known(tuple(subjects), vectors, starts, _unit(middles), float(cosines.mean()), spread)


def of_windows(windows: Matrix) -> Matrix:
    """One vector, shape (dimension,), for a text of several: what it is about on the whole."""
    middle: Matrix = _unit(windows.sum(axis=0, keepdims=True))[0]
    return middle


def confidences(vectors: Matrix, texts: Sequence[str], known: Known) -> npt.NDArray[np.float64]:
    """How sure it is that each text is about each category, shape (texts, categories).

    Each row sums to less than 1; the rest is for what is about none of them.
    """
    nearest = np.maximum.reduceat(vectors @ known.phrases.T, known.starts, axis=1)
    cosines = NEAREST * nearest + (1 - NEAREST) * (vectors @ known.middles.T)
    spreads = (cosines.astype(np.float64) - known.usual) / known.spread
    spreads += WORDS * np.array([[_speaks(subject, text) for subject in known.subjects] for text in texts])
    weights = np.exp(SHARPNESS * (spreads - LEVEL))
    confidence: npt.NDArray[np.float64] = weights / (1 + weights.sum(axis=1, keepdims=True))
    return confidence


def choose(row: npt.NDArray[np.float64], known: Known, *, threshold: float, most: int) -> list[Choice]:
    """The categories of one memory, the surest first: at most `most`, none that is less sure than `threshold`.

    A second one is as sure as the first would be without it: what is about two things is not about neither.
    """
    chosen: list[Choice] = []
    left = 1.0
    for place in np.argsort(-row)[:most]:
        confidence = float(row[place]) / left
        if confidence < threshold:
            break
        chosen.append(Choice(known.subjects[place].name, confidence))
        left -= float(row[place])
    return chosen


def _speaks(subject: Subject, text: str) -> bool:
    return subject.words is not None and subject.words.search(text[:READ]) is not None


def _unit(vectors: Matrix) -> Matrix:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Matrix = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit
