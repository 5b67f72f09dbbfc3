"""How often the categories that the service assigns are right, on a labelled set, and what they cost.

A labelled memory has the category that is expected first and then those that are right too; one with none should be
left without. `precision`: of what is assigned, what is right; `without`: the share of memories that get none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from openmemory.categories import classifier
from openmemory.categories.classifier import CategoryVectors
from openmemory.categories.taxonomy import SUBJECTS
from openmemory.config.sections import CategorySettings
from openmemory.embeddings.local import LocalEmbedder
from openmemory.embeddings.port import Embedder

LABELLED = Path(__file__).parents[1] / "tests" / "categories" / "categories.jsonl"


class Case(NamedTuple):
    """A memory, and the categories that are right."""

    text: str
    right: tuple[str, ...]


class Figures(NamedTuple):
    """`accuracy`: of the memories with a category, those whose best guess is right, whatever its confidence."""

    accuracy: float
    precision: float
    without: float
    silent: float
    """Of the memories about nothing, those that are left without."""
    each: float
    """Categories per memory that has some."""


class Measured(NamedTuple):
    """The labelled memories as the model sees them; `seconds`: of the decisions alone, for all of them."""

    known: CategoryVectors
    sure: classifier.Matrix
    seconds: float


def cases(path: Path = LABELLED) -> list[Case]:
    """The labelled memories."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Case(row["text"], tuple(row["categories"])) for row in rows]


async def measure(embedder: Embedder, labelled: Sequence[Case]) -> Measured:
    """Ask the model for the categories' vectors and the memories', and how sure each category is of each."""
    phrases = await embedder.documents([phrase for subject in SUBJECTS for phrase in subject.phrases])
    known = classifier.build_vectors(SUBJECTS, np.stack([classifier.of_chunks(each.chunks) for each in phrases]))
    texts = await embedder.documents([case.text for case in labelled])
    vectors = np.stack([classifier.of_chunks(each.chunks) for each in texts])
    begun = time.perf_counter()
    sure = classifier.confidences(vectors, [case.text for case in labelled], known)
    for row in sure:
        classifier.choose(row, known, threshold=0.5, most=2)
    return Measured(known, sure.astype(np.float32), time.perf_counter() - begun)


def figures(measured: Measured, labelled: Sequence[Case], settings: CategorySettings) -> Figures:
    """What comes of it with these settings."""
    known, sure = measured.known, measured.sure
    best = [known.subjects[int(row.argmax())].name in case.right for row, case in zip(sure, labelled, strict=True)]
    chosen = [
        [each.name for each in classifier.choose(row, known, threshold=settings.threshold, most=settings.most)]
        for row in sure
    ]
    judged = [name in case.right for case, names in zip(labelled, chosen, strict=True) for name in names]
    about = [bool(case.right) for case in labelled]
    empty = [not names for names, case in zip(chosen, labelled, strict=True) if not case.right]
    filed = [len(names) for names in chosen if names]
    return Figures(
        accuracy=sum(np.array(best)[about]) / max(1, sum(about)),
        precision=sum(judged) / max(1, len(judged)),
        without=sum(not names for names, is_about in zip(chosen, about, strict=True) if is_about) / max(1, sum(about)),
        silent=sum(empty) / max(1, len(empty)),
        each=sum(filed) / max(1, len(filed)),
    )


async def main() -> None:
    """Print the figures at several thresholds, and what is mistaken for what."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labelled", type=Path, default=LABELLED, help="JSON Lines with text and categories")
    parser.add_argument(
        "--mistakes", action="store_true", help="list what is assigned wrongly at the default threshold"
    )
    arguments = parser.parse_args()
    labelled = cases(arguments.labelled)
    embedder = LocalEmbedder()
    try:
        begun = time.perf_counter()
        measured = await measure(embedder, labelled)
        seconds = time.perf_counter() - begun
    finally:
        await embedder.close()
    print(f"{len(labelled)} memories, {len(SUBJECTS)} categories; model and embeddings {seconds:.1f} s once;")
    print(f"deciding takes {1000 * measured.seconds / len(labelled):.3f} ms per memory")
    default = CategorySettings()
    print("threshold  most  top-1  precision  without  nothing left alone  categories each")
    for most in (1, 2):
        for threshold in sorted({0.3, 0.4, 0.5, 0.6, 0.7, 0.8, default.threshold}):
            settings = CategorySettings(threshold=threshold, most=most)
            of = figures(measured, labelled, settings)
            print(
                f"{threshold:9.2f}{most:6}{of.accuracy:7.3f}{of.precision:11.3f}{of.without:9.3f}{of.silent:20.3f}"
                f"{of.each:17.2f}{'  (default)' if settings == default else ''}"
            )
    if arguments.mistakes:
        for case, row in zip(labelled, measured.sure, strict=True):
            names = classifier.choose(row, measured.known, threshold=default.threshold, most=default.most)
            if wrong := [f"{each.name} {each.confidence:.2f}" for each in names if each.name not in case.right]:
                print(f"{', '.join(wrong)}; right: {', '.join(case.right) or 'none'}; {case.text}")
    missed = Counter(
        (case.right[0], measured.known.subjects[int(row.argmax())].name)
        for case, row in zip(labelled, measured.sure, strict=True)
        if case.right and measured.known.subjects[int(row.argmax())].name not in case.right
    )
    print("most often mistaken:", "; ".join(f"{a} for {b} {n}" for (a, b), n in missed.most_common(8)))


if __name__ == "__main__":
    asyncio.run(main())
