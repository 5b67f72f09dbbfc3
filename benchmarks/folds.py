"""What of a figure is chance: its spread over folds, and whether a weight that is fitted on other folds does better.

The constants of a search are fixed, so nothing is trained on a fold. What can be shown is how much a figure differs
between folds, and that the fixed weight is as good as one that is chosen, for each fold, by all the others.
"""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

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


def held_out(
    by_weight: Mapping[float, Sequence[float]], split: Sequence[Sequence[int]]
) -> tuple[list[float], list[float]]:
    """The value of each question by the weight that is best on the other folds, and these weights by fold."""
    found = [0.0] * sum(map(len, split))
    chosen = []
    for number, fold in enumerate(split):
        others = [place for other, places in enumerate(split) if other != number for place in places]
        weight = max(by_weight, key=lambda one: mean([by_weight[one][place] for place in others]))
        chosen.append(weight)
        for place in fold:
            found[place] = by_weight[weight][place]
    return found, chosen


def difference(one: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """How much more the first has on average, question by question, and the interval of that."""
    each = [a - b for a, b in zip(one, other, strict=True)]
    return (mean(each), *interval(each))
