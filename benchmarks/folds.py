"""What of a figure is chance: its spread over folds, and intervals of differences."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Sequence

from benchmarks.collections import Question, interval, mean

FOLDS = 5


def folds(questions: Sequence[Question], seed: int = 1) -> list[list[int]]:
    """The places of the questions by fold: one for each namespace (conversation), else `FOLDS` by chance."""
    by_namespace: dict[str, list[int]] = defaultdict(list)
    for place, question in enumerate(questions):
        by_namespace[question.namespace].append(place)
    if len(by_namespace) > 1:
        return [by_namespace[name] for name in sorted(by_namespace)]
    places = list(range(len(questions)))
    random.Random(seed).shuffle(places)
    return [places[at::FOLDS] for at in range(FOLDS) if places[at::FOLDS]]


def spread(values: Sequence[float], split: Sequence[Sequence[int]]) -> tuple[list[float], float]:
    """The mean of each fold, and the standard deviation of these."""
    means = [mean([values[place] for place in fold]) for fold in split]
    return means, statistics.stdev(means) if len(means) > 1 else 0.0


def difference(one: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """How much more the first has on average, question by question, and the interval of that."""
    each = [a - b for a, b in zip(one, other, strict=True)]
    return (mean(each), *interval(each))
