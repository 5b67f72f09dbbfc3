"""Which memories are held to replace earlier ones: measured on pairs that we labelled, by folds.

    python -m benchmarks.replaced [--fit] [--wrong]

`replaced.tsv` holds a pair a line. The kinds: `replaced` (the older text no longer holds), `added` (the newer text adds
to it), `similar` (both are about like things), `person` (another person's) and `number` (another room, version,
ticket). `crossed` are older and newer texts of different pairs. `stored` are the pairs
that a store of everyday memories (`everyday_sets`) compares: the nearest ones of each memory. Every pair is judged by
weights that were fitted without it and without pairs of the same older text, or of the same store, and so are the
thresholds. The `unseen` pairs were written when most of the features and word lists were done.
`--fit` prints the weights of `openmemory.dedup.replacement_weights`, fitted to all pairs. `--wrong` lists what is
judged wrongly.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.everyday import Everyday
from benchmarks.everyday import read as read_everyday
from openmemory.dedup.change_words import COPULAS, DETERMINERS, HOLDS_ONCE, USER
from openmemory.dedup.comparison import NEAREST
from openmemory.dedup.replacement import features
from openmemory.embeddings.chance import chance_cosine, texts
from openmemory.embeddings.local import LocalEmbedder
from openmemory.embeddings.port import Vectors

FILE = Path(__file__).with_suffix(".tsv")
SETS = Path(__file__).with_name("everyday_sets")
FOLDS = 10
OTHERS = {"crossed": (-1.0, 0.25), "stored": (-2.0, 1.0)}
"""The label and the weight of pairs that were not written as pairs, of which nothing replaces anything."""
CROSSED = 3
"""The number of crossed pairs for each older text."""
L2 = 0.01
"""The strength of the regularisation."""
BOTH_HOLD = 0.005
"""The share of the other pairs that may be marked, by which the threshold of marks is chosen within the folds."""
SIDE_BY_SIDE = 0.015
"""The share of the pairs of a store that may be shown side by side, by which the lower threshold is chosen: three of
the 200 that are compared among 40 memories."""

Floats = npt.NDArray[np.float64]


class Pair(NamedTuple):
    """Two texts and what we say about them."""

    part: str
    kind: str
    language: str
    older: str
    newer: str

    @property
    def label(self) -> float:
        """The label for `fitted`."""
        return OTHERS[self.kind][0] if self.kind in OTHERS else float(self.replaced)

    @property
    def replaced(self) -> bool:
        """True if the older text no longer holds."""
        return self.kind in ("replaced", "in a store")

    @property
    def group(self) -> str:
        """The group of the pair: its store, or its older text. A fit leaves all pairs of a group out together."""
        return self.part if self.kind in ("stored", "in a store") else self.older.casefold()


def crossed(pairs: Sequence[Pair]) -> list[Pair]:
    """Older texts with newer ones of other pairs, of the same language and without a common subject: both hold. A store
    of few memories has many of these."""
    rng = np.random.default_rng(3)
    replaced = [pair for pair in pairs if pair.replaced]
    found = []
    for pair in replaced:
        old = features_of(pair.older)
        others = [
            other
            for other in replaced
            if other.language == pair.language and not old & (features_of(other.newer) | features_of(other.older))
        ]
        for place in rng.permutation(len(others))[:CROSSED]:
            found.append(Pair(pair.part, "crossed", pair.language, pair.older, others[place].newer))
    return found


def features_of(text: str) -> set[str]:
    """The words of a text that say what it is about, and the groups of predicates that hold once."""
    words = {word.strip(".,;:!?").casefold() for word in text.split()} - DETERMINERS - COPULAS - USER
    return words | {f"group {place}" for place, group in enumerate(HOLDS_ONCE) if group & words}


class Model(NamedTuple):
    """The weights, the last of which is the bias, and the two thresholds."""

    weights: Floats
    unsure: float
    replaces: float


def read(file: Path = FILE) -> list[Pair]:
    """The pairs of a file."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [Pair(*line.split("\t")) for line in lines if line and not line.startswith("#")]


async def nearnesses(pairs: Sequence[Pair]) -> Floats:
    """The nearness of each pair by the packaged model, against what chance gives the newer text."""
    vectors = await embedded([text for pair in pairs for text in (pair.older, pair.newer)])
    others = await embedded(texts())
    found = zip(vectors[::2], vectors[1::2], strict=True)
    return np.array([chance_cosine(newer, others).nearness(float(older @ newer)) for older, newer in found])


async def embedded(some: Sequence[str]) -> Vectors:
    """The vectors of short texts."""
    embedder = LocalEmbedder()
    try:
        return np.stack([one.chunks[0] for one in await embedder.documents(some)])
    finally:
        await embedder.close()


async def stored(sets: Mapping[str, Everyday]) -> list[Pair]:
    """The pairs that the stores of everyday memories compare. The older of two memories is the one that was written
    first. It is replaced if a question names it as what a right answer has replaced."""
    found = []
    every = iter(await embedded([one.text for everyday in sets.values() for one in everyday.memories]))
    for name, everyday in sets.items():
        vectors = np.stack([next(every) for _ in everyday.memories])
        cosines = vectors @ vectors.T
        np.fill_diagonal(cosines, -1.0)
        replaced = {(old, new) for one in everyday.questions for old in one.older for new in one.right - one.older}
        pairs = set()
        for place, row in enumerate(cosines):
            for near in np.argsort(-row)[:NEAREST].tolist():
                older, newer = sorted((place, near), key=lambda at: -everyday.memories[at].days)
                pairs.add((older, newer))
        for old, new in sorted(pairs):
            one, other = everyday.memories[old], everyday.memories[new]
            kind = "in a store" if (one.id, other.id) in replaced else "stored"
            found.append(Pair(name, kind, "", one.text, other.text))
    return found


def table(pairs: Sequence[Pair], near: Floats) -> tuple[list[str], Floats]:
    """The names of the features, and their values with a 1 for the bias. The values of pairs that cannot replace each
    other are 0."""
    rows = [features(pair.older, pair.newer, cosine) for pair, cosine in zip(pairs, near.tolist(), strict=True)]
    names = [*next(filter(None, rows))]
    return names, np.array([[*row.values(), 1.0] if row else [0.0] * (len(names) + 1) for row in rows])


def probabilities(values: Floats, weights: Floats) -> Floats:
    """The probability that the newer text of each pair replaces the older one."""
    return values.any(axis=1) / (1 + np.exp(-values @ weights))


def fitted(values: Floats, labels: Floats) -> Floats:
    """The weights of a logistic regression, by Newton's method. Both classes weigh the same. `labels`: 1 for replaced
    pairs, 0 for others, and those of `OTHERS`."""
    weights = np.zeros(values.shape[1])
    share = np.ones(len(labels))
    for label, weight in OTHERS.values():
        share[labels == label] = weight
    labels = np.where(labels == 1, 1.0, 0.0)
    share = np.where(labels == 1, 0.5 / labels.sum(), 0.5 * share / (share * (1 - labels)).sum())
    penalty = np.full(len(weights), L2 / 10)
    penalty[-1] = 0
    for _ in range(50):
        chance = 1 / (1 + np.exp(-values @ weights))
        slope = values.T @ (share * (chance - labels)) + penalty * weights
        curve = (values * (share * chance * (1 - chance))[:, None]).T @ values + np.diag(penalty + 1e-9)
        step = np.linalg.solve(curve, slope)
        weights -= step
        if np.abs(step).max() < 1e-8:
            break
    return weights


def folds(pairs: Sequence[Pair], count: int) -> npt.NDArray[np.int64]:
    """The fold of each pair. Pairs of one group are in one."""
    groups: dict[str, int] = {}
    for pair in pairs:
        groups.setdefault(pair.group, len(groups))
    order = np.random.default_rng(7).permutation(len(groups))
    return np.array([order[groups[pair.group]] % count for pair in pairs])


def judged(values: Floats, labels: Floats, of_fold: npt.NDArray[np.int64]) -> Floats:
    """The probability of each pair by weights that were fitted to the other folds."""
    chances = np.zeros(len(labels))
    for fold in np.unique(of_fold):
        test = of_fold == fold
        chances[test] = probabilities(values[test], fitted(values[~test], labels[~test]))
    return chances


def model(values: Floats, labels: Floats, of_fold: npt.NDArray[np.int64]) -> Model:
    """The weights fitted to these pairs, and thresholds that hold for those of them that they were not fitted to."""
    chances = judged(values, labels, of_fold)
    others, of_stores = (np.sort(chances[some])[::-1] for some in (labels != 1, labels == OTHERS["stored"][0]))
    replaces = float(others[int(BOTH_HOLD * len(others))])
    unsure = float(of_stores[int(SIDE_BY_SIDE * len(of_stores))])
    return Model(fitted(values, labels), unsure, min(max(replaces, unsure) + 0.01, 0.99))


def report(title: str, pairs: Sequence[Pair], chances: Floats, unsure: Floats, replaces: Floats) -> None:
    """Prints what is shown first and what is marked, by kind."""
    first, marked = chances >= unsure, chances >= replaces
    replaced = np.array([pair.replaced for pair in pairs])
    print(
        f"{title}: {len(pairs)} pairs; newer first {first[replaced].mean():.3f}, marked {marked[replaced].mean():.3f}; "
        f"marked though both hold {marked[~replaced].mean():.3f}, side by side {first[~replaced].mean():.3f}"
    )
    for name in ("kind", "language"):
        for value in dict.fromkeys(getattr(pair, name) for pair in pairs):
            some = np.array([getattr(pair, name) == value for pair in pairs])
            told = f"  {value:10} {some.sum():4} newer first {first[some].mean():.2f}  marked {marked[some].mean():.2f}"
            if name == "kind":
                print(told)
            elif (some & replaced).any() and (some & ~replaced).any():
                print(
                    f"  {value:10} {some.sum():4} newer first {first[some & replaced].mean():.2f}  "
                    f"marked though both hold {marked[some & ~replaced].mean():.2f}"
                )


def evaluated(pairs: Sequence[Pair], values: Floats) -> tuple[Floats, Floats, Floats]:
    """The probability of each pair and the thresholds for it, from the other folds only."""
    labels = np.array([pair.label for pair in pairs])
    of_fold = folds(pairs, FOLDS)
    chances, unsure, replaces = np.zeros(len(pairs)), np.zeros(len(pairs)), np.zeros(len(pairs))
    for fold in range(FOLDS):
        test = of_fold == fold
        inner = folds([pair for pair, left_out in zip(pairs, test, strict=True) if not left_out], FOLDS)
        made = model(values[~test], labels[~test], inner)
        chances[test] = probabilities(values[test], made.weights)
        unsure[test], replaces[test] = made.unsure, made.replaces
    return chances, unsure, replaces


def main() -> None:
    """Measures, and prints the weights if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="print the weights fitted to all pairs")
    parser.add_argument("--wrong", action="store_true", help="list what is judged wrongly")
    asked = parser.parse_args()
    pairs = read()
    pairs += crossed(pairs)
    pairs += asyncio.run(stored({file.stem: read_everyday(file) for file in sorted(SETS.glob("*.json"))}))
    near = asyncio.run(nearnesses(pairs))
    names, values = table(pairs, near)
    labels = np.array([pair.label for pair in pairs])
    chances, unsure, replaces = evaluated(pairs, values)
    report("by folds", pairs, chances, unsure, replaces)
    seen = np.array([pair.part != "unseen" for pair in pairs])
    of_seen = [pair for pair in pairs if pair.part != "unseen"]
    made = model(values[seen], labels[seen], folds(of_seen, FOLDS))
    apart = [pair for pair in pairs if pair.part == "unseen"]
    there = np.ones(len(apart))
    of_apart = probabilities(values[~seen], made.weights)
    report("unseen, fitted to the others", apart, of_apart, there * made.unsure, there * made.replaces)
    if asked.wrong:
        for place in np.argsort(chances):
            pair, chance = pairs[place], chances[place]
            if (pair.replaced and chance < unsure[place]) or (not pair.replaced and chance >= replaces[place]):
                print(f"{chance:.2f} {pair.kind:8} {near[place]:.2f} {pair.older} | {pair.newer}")
    if asked.fit:
        _print(names, model(values, labels, folds(pairs, FOLDS)), near[labels >= 0])


def _print(names: Sequence[str], made: Model, near: Floats) -> None:
    lines: list[Any] = [
        '"""The weights of `replacement`, as `python -m benchmarks.replaced --fit` prints them."""',
        "",
        "from __future__ import annotations",
        "",
        f"USUAL_NEARNESS = {near.mean():.2f}",
        '"""Stands for a nearness that is not known."""',
        "",
        f"UNSURE_FROM = {made.unsure:.2f}",
        '"""The probability from which both texts are shown side by side."""',
        "",
        f"REPLACES_FROM = {made.replaces:.2f}",
        '"""The probability from which the older text is marked."""',
        "",
        f"BIAS = {made.weights[-1]:.2f}",
        "WEIGHTS = {",
        *(f'    "{name}": {weight:.2f},' for name, weight in zip(names, made.weights, strict=False)),
        "}",
        '"""The weights of the features."""',
    ]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
