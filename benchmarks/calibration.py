"""Fits the map from ranking values to chances (`openmemory.search.calibration`), and measures its error.

    python -m benchmarks.calibration --fit FOLDER … --check FOLDER … [--keep FOLDER]

Each FOLDER holds a collection in the layout of BEIR. Every question is asked twice: where its answer is, and where no
answer is, in another namespace of the collection or, if there is none, with a question of the next folder. Each of the
first ten results counts, by its ranking value, the evidence of its search, and whether it is judged relevant. Each
collection weighs the same. The error is the expected calibration error in ten bins of equal width: of all results, and
of the first ones. Beside the error of the chances stands that of the ranking values.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from benchmarks.collections import Collection, read
from benchmarks.evaluation import opened
from benchmarks.service import temporary_folder
from openmemory.search import calibration, service
from openmemory.search.calibration import Calibration
from openmemory.search.schemas import Method, SearchQuery

RESULTS = 10
BINS = 10

Numbers = npt.NDArray[np.float64]


class Sample(NamedTuple):
    """The results of all questions: the evidence, one row for each result (1, ranking, coverage, cosine), whether each
    is relevant, and whether it is the first of its question."""

    evidence: Numbers
    relevant: Numbers
    first: npt.NDArray[np.bool_]


async def sampled(collection: Collection, others: Collection, data: Path) -> Sample:
    """Asks every question where its answer is, and where none is."""
    spaces = sorted({one.namespace for one in collection.questions})
    rows: list[tuple[float, ...]] = []
    made: list[Calibration] = []

    def kept(*arguments: object) -> Calibration:
        made.append(found := calibration.calibration(*arguments))  # type: ignore[arg-type]
        return found

    async with opened(collection, data) as asked:
        for at, one in enumerate(collection.questions):
            elsewhere = spaces[(spaces.index(one.namespace) + 1) % len(spaces)]
            strange = one.text if len(spaces) > 1 else others.questions[at % len(others.questions)].text
            for text, namespace, relevant in ((one.text, one.namespace, one.relevant), (strange, elsewhere, ())):
                query = SearchQuery(text, limit=RESULTS, namespaces=(namespace,), everything=True)
                with patch.object(service, "calibration", kept):
                    answer = await asked.services.search.search(asked.caller, query)
                if answer.search_method is not Method.HYBRID:
                    continue
                evidence = made[-1]
                for place, result in enumerate(answer.results):
                    assert result.parts is not None  # it is no overview
                    is_relevant = asked.documents[result.id] in relevant
                    values = (1.0, result.parts.ranking, evidence.coverage, evidence.cosine or 0.0)
                    rows.append((*values, float(is_relevant), float(place == 0)))
    table = np.array(rows)
    return Sample(table[:, :4], table[:, 4], table[:, 5] > 0)


def fitted(samples: Sequence[Sample], columns: Sequence[int]) -> Numbers:
    """The weights of a logistic regression on these columns, by Newton's method."""
    evidence = np.concatenate([one.evidence[:, columns] for one in samples])
    relevant = np.concatenate([one.relevant for one in samples])
    weight = np.concatenate([np.full(len(one.relevant), 1e4 / len(one.relevant)) for one in samples])
    found = np.zeros(len(columns))
    for _ in range(50):
        chance = chances(evidence, found)
        curvature = (evidence.T * (weight * chance * (1 - chance))) @ evidence + 1e-6 * np.eye(len(columns))
        found = found + np.linalg.solve(curvature, evidence.T @ (weight * (relevant - chance)))
    return found


def chances(evidence: Numbers, weights: Numbers) -> Numbers:
    """The chance of each row."""
    found: Numbers = 1 / (1 + np.exp(-(evidence @ weights)))
    return found


def calibration_error(said: Numbers, relevant: Numbers) -> float:
    """The mean distance between what is said and the share of relevant results, over bins, weighted by their sizes."""
    bins = np.minimum((said * BINS).astype(int), BINS - 1)
    parts = [(bins == each) for each in range(BINS)]
    return float(sum(abs((said[part] - relevant[part]).sum()) for part in parts) / len(said))


def report(name: str, sample: Sample, said: Numbers) -> None:
    """Prints the errors of a collection."""
    ranking, first = sample.evidence[:, 1], sample.first
    print(
        f"  {name:22} all {calibration_error(said, sample.relevant):.3f}"
        f" (ranking {calibration_error(ranking, sample.relevant):.3f}),"
        f" first {calibration_error(said[first], sample.relevant[first]):.3f}"
        f" (ranking {calibration_error(ranking[first], sample.relevant[first]):.3f})"
    )


async def run(fit: Sequence[Path], check: Sequence[Path], data: Path) -> None:
    """Fits on some collections and prints the errors on all."""
    collections = [read(folder) for folder in (*fit, *check)]
    samples = {}
    for at, one in enumerate(collections):
        samples[one.name] = await sampled(one, collections[(at + 1) % len(collections)], data)
    for title, columns in (("with cosines", [0, 1, 2, 3]), ("words alone", [0, 1, 2])):
        weights = fitted([samples[one.name] for one in collections[: len(fit)]], columns)
        print(f"{title}: " + ", ".join(f"{each:.2f}" for each in weights))
        for at, one in enumerate(collections):
            sample = samples[one.name]
            report(
                f"{one.name}{' (fitted)' if at < len(fit) else ''}",
                sample,
                chances(sample.evidence[:, columns], weights),
            )


def main() -> None:
    """Fit and check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", nargs="+", type=Path, required=True, help="collections to fit on")
    parser.add_argument("--check", nargs="+", type=Path, required=True, help="collections to measure on")
    parser.add_argument("--keep", type=Path, help="where stored collections are kept")
    given = parser.parse_args()
    with temporary_folder("calibration") as temporary:
        asyncio.run(run(given.fit, given.check, given.keep or temporary))


if __name__ == "__main__":
    main()
