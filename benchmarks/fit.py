"""Fits the weights of a search (`openmemory.search.ranking.weights`) on judged collections, and measures them held out.

    python -m benchmarks.fit FOLDER … [--keep FOLDER] [--small 60]

Each FOLDER holds a collection in the layout of BEIR. Every question is asked where its answer is, and where none is: in
another namespace of the collection or, if there is none, with a question of the next folder. `--small` questions of
each collection are also asked in small stores of 2 to 40 texts, with and without an answer among them. What the search
knows of its candidates is kept in the folder of `--keep`, so that a second run fits at once.

The order is fitted by listwise softmax with a quadratic penalty, the scores by logistic regression on the first results
of all questions, without the features that compare candidates. Each collection weighs the same.
The figures are held out: of each of five folds, whole conversations, by the weights
of the other four. The error is the expected calibration error in ten bins of the first ten results.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from benchmarks import everyday
from benchmarks.collections import Collection, Document, Question, mean, measured, read
from benchmarks.evaluation import Asked, opened, patient
from benchmarks.service import temporary_folder
from openmemory.search import service
from openmemory.search.ranking import linear_model
from openmemory.search.ranking.features import (
    COMPARED,
    FEATURES,
    OWN,
    PLACE,
    Candidate,
    QuestionParts,
    Table,
    own_evidence,
)
from openmemory.search.ranking.linear_model import Ranked, levelled, table_of
from openmemory.search.ranking.weights import Weights, vector
from openmemory.search.schemas import SearchQuery
from openmemory.services import open_services

EVERYDAY = Path(__file__).with_name("everyday_sets")
"""Sets of everyday memories and questions, made for the fit. `benchmarks.everyday` measures on another one."""

IDENTIFIERS = Path(__file__).with_name("identifiers.json")
"""Another set, whose questions contain ids, numbers, names in code and symbols. It teaches what literal words are
worth: the model knows nothing of them."""

CHATS = 0.3
"""The weight of collections with threads in the fit of the order of texts that stand alone; that of others is 1. Only
they say what times and roles are worth. Texts that stand alone teach nothing of an order in threads."""

SCORES = {"everyday": 4.0, "identifiers": 0.3}
"""The weights of sets in the fit of the scores; that of any other collection is 1. What is shown of a small store is
decided by the scores, and few questions are about identifiers."""

FOLDS = 5
RESULTS = 10
BINS = 10
PENALTY = 1.0
SCORE_PENALTY = 20.0
BOUNDS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2)
SIZES = (2, 3, 5, 8, 12, 20, 30, 40)
QUESTION_LEVEL = ("base", "question")
"""Features that are the same for all candidates of a question: they change no order."""

EVIDENCE = {"meaning": "near", "words": "covered", "tokens": "said"}
"""Features of the evidence for a text, and of what of it is above a point. More must not count against a text, below
the point nor above it: one in the very words of a question is never behind another. If it would, the feature is left
out."""

ORDER_ONLY = ("length",)
"""Features that only order: everyday memories are all short, so what they say of a long text is no chance."""

BY_HAND = ("flagged", "recency")
"""Features of which no collection knows."""

Numbers = npt.NDArray[np.float64]
Model = Callable[["Sample"], Numbers]


@dataclass(slots=True)
class Sample:
    """The candidates of one question with their features, and their documents. Samples of one `fold` are left out
    together. `small`: the store held few memories. `near`: documents that are neither right nor wrong."""

    collection: str
    fold: str
    small: bool
    candidates: Sequence[Candidate]
    question: QuestionParts
    names: list[str]
    relevant: frozenset[str]
    near: frozenset[str] = frozenset()

    @property
    def threaded(self) -> bool:
        """True if a candidate is part of a thread."""
        return any(one.row is not None and one.row.thread for one in self.candidates)

    @property
    def judged(self) -> npt.NDArray[np.bool_]:
        """True for the candidates that are right or wrong."""
        return np.array([name not in self.near for name in self.names], dtype=np.bool_)

    @property
    def orders(self) -> bool:
        """True if there are right and wrong candidates to order."""
        return bool(self.right.any() and (self.judged & ~self.right).any())

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """True for the candidates that answer the question."""
        return np.array([name in self.relevant for name in self.names], dtype=np.bool_)


def by_vectors(sample: Sample) -> Sample:
    """The sample as a model without tokens would see it."""
    return replace(sample, candidates=[replace(one, late=None) for one in sample.candidates])


def by_words(sample: Sample) -> Sample:
    """The sample as text search alone would see it."""
    some = [
        (replace(one, cosine=None, late=None, waiting=True), name)
        for one, name in zip(sample.candidates, sample.names, strict=True)
        if one.words is not None or one.cosine is None
    ]
    return replace(sample, candidates=[one for one, _ in some], names=[name for _, name in some])


class Mode(NamedTuple):
    """One set of weights. `of` removes from a sample the evidence that they do not use. `unknown`: the features that
    have no weight."""

    of: Callable[[Sample], Sample]
    unknown: frozenset[str]


_NO_TOKENS = frozenset(("tokens", "said", *COMPARED))

MODES = {
    "TOKENS": Mode(lambda one: one, frozenset()),
    "VECTORS": Mode(by_vectors, _NO_TOKENS),
    "WORDS": Mode(by_words, _NO_TOKENS | {"question", "meaning", "near"}),
}


def small_stores(collection: Collection, count: int, seed: int = 1) -> Collection:
    """Small stores of this collection, a namespace each: every second one holds an answer to its question."""
    chance = random.Random(seed)
    by_space: dict[str, list[Document]] = {}
    for document in collection.documents:
        by_space.setdefault(document.namespace, []).append(document)
    documents, questions = list[Document](), list[Question]()
    for at, one in enumerate(chance.sample(collection.questions, min(count, len(collection.questions)))):
        for answered in (True, False):
            space = f"{one.namespace} small {at} {answered}"
            others = [each for each in by_space[one.namespace] if each.id not in one.relevant]
            size = chance.choice(SIZES)
            some = chance.sample(others, min(size - answered, len(others)))
            if answered:
                some.append(next(each for each in by_space[one.namespace] if each.id in one.relevant))
            documents += [replace(each, id=f"{at} {answered} {each.id}", namespace=space) for each in some]
            relevant = frozenset(f"{at} {answered} {id_}" for id_ in one.relevant)
            questions.append(replace(one, id=f"{one.id} {answered}", namespace=space, relevant=relevant))
    return Collection(f"{collection.name}-small", documents, questions)


async def gathered(asked: Asked, question: Question, text: str, space: str, *, small: bool) -> Sample | None:
    """Asks a question in a namespace. None: nothing was ranked, as for a question of nothing but a time."""
    seen: list[tuple[Sequence[Candidate], QuestionParts]] = []

    def kept(candidates: Sequence[Candidate], question: QuestionParts) -> list[Ranked]:
        seen.append((candidates, question))
        return linear_model.ranked(candidates, question)

    with patch.object(service, "ranked", kept):
        await asked.services.search.search(asked.caller, SearchQuery(text, limit=RESULTS, namespaces=(space,)))
    if not seen or not seen[-1][0]:
        return None
    candidates, parts = seen[-1]
    names = [asked.documents.get(one.id, "") for one in candidates]
    relevant = question.relevant if text == question.text and space == question.namespace else frozenset()
    fold = question.namespace.split(" small ")[0]
    return Sample(asked.collection.name.removesuffix("-small"), fold, small, candidates, parts, names, relevant)


async def samples_of(collection: Collection, others: Collection, data: Path, *, small: bool) -> list[Sample]:
    """Asks every question where its answer is, and where none is."""
    file = data / f"{collection.name}.evidence"
    if file.exists():
        kept: list[Sample] = pickle.loads(file.read_bytes())
        return kept
    spaces = sorted({one.namespace for one in collection.questions})
    found = []
    async with opened(collection, data) as asked:
        for at, one in enumerate(collection.questions):
            asks = [(one.text, one.namespace)]
            if not small:
                elsewhere = spaces[(spaces.index(one.namespace) + 1) % len(spaces)]
                strange = one.text if len(spaces) > 1 else others.questions[at % len(others.questions)].text
                asks.append((strange, elsewhere))
            for text, space in asks:
                found.append(await gathered(asked, one, text, space, small=small))
    some = [one for one in found if one is not None]
    by_space = Counter(one.fold for one in some)
    if len(by_space) == 1:
        some = [replace(one, fold=str(at % FOLDS)) for at, one in enumerate(some)]
    file.write_bytes(pickle.dumps(some))
    return some


async def everyday_samples(collection: str, sets: Mapping[str, everyday.Everyday], data: Path) -> list[Sample]:
    """Asks the questions of everyday sets, each set a user. A memory that is older than a right one counts as right: it
    is told apart elsewhere (`openmemory.dedup.replacement`)."""
    kept_in = data / f"{collection}.evidence"
    if kept_in.exists():
        kept: list[Sample] = pickle.loads(kept_in.read_bytes())
        return kept
    found = []
    async with open_services(patient(data / collection)) as services:
        await services.outbox_delivery.stop()
        for name, one in sets.items():
            caller = await services.directory.caller(name, None, owner=True)
            documents = await everyday.store(services, caller, one)
            asked = Asked(services, caller, Collection(collection, [], []), documents)
            for number, each in enumerate(one.questions):
                question = Question(str(number), each.text, "default", name, each.right | each.older)
                sample = await gathered(asked, question, each.text, "default", small=False)
                if sample is not None:
                    found.append(replace(sample, fold=name if len(sets) > 1 else str(number % FOLDS), near=each.also))
    kept_in.write_bytes(pickle.dumps(found))
    return found


def listwise(groups: Sequence[tuple[Table, npt.NDArray[np.bool_], float]], size: int) -> Numbers:
    """The weights that give the right candidates of each group the greatest share of a softmax with the wrong ones."""
    weights = np.zeros(size)
    best = loss(groups, weights)
    for _ in range(60):
        gradient, curvature = -PENALTY * weights, PENALTY * np.eye(size)
        for table, right, weight in groups:
            wrong, each = table[~right], table[right]
            said, own = wrong @ weights, each @ weights
            highest = max(said.max(), own.max())
            parts, mine = np.exp(said - highest), np.exp(own - highest)
            total = parts.sum() + mine
            average = (parts @ wrong + mine[:, None] * each) / total[:, None]
            gradient += weight * (each - average).sum(axis=0)
            squares = (wrong * parts[:, None]).T @ wrong
            curvature += weight * ((1 / total).sum() * squares + (each.T * (mine / total)) @ each - average.T @ average)
        step, share = np.linalg.solve(curvature, gradient), 1.0
        # Far from the best weights, the curvature is small and the step too long.
        step /= max(1.0, float(np.abs(step).max()))
        while share > 1e-3 and (now := loss(groups, weights + share * step)) >= best:
            share /= 2
        if share <= 1e-3 or best - now < 1e-6 * abs(best):
            break
        weights, best = weights + share * step, now
    return weights


def loss(groups: Sequence[tuple[Table, npt.NDArray[np.bool_], float]], weights: Numbers) -> float:
    """The negative logarithm of these shares, with the penalty."""
    found = PENALTY * float(weights @ weights) / 2
    for table, right, weight in groups:
        said = table @ weights
        own, wrong = said[right], said[~right]
        highest = said.max()
        total = np.exp(wrong - highest).sum() + np.exp(own - highest) + 1e-300
        found += weight * float((np.log(total) + highest - own).sum())
    return found


def logistic(table: Table, right: Numbers, each: Numbers) -> Numbers:
    """The weights of a logistic regression with a quadratic penalty, by Newton's method."""
    found = np.zeros(table.shape[1])
    penalty = SCORE_PENALTY * np.eye(len(found))
    for _ in range(50):
        said = chances(table @ found)
        curvature = (table.T * (each * said * (1 - said))) @ table + penalty
        step = np.linalg.solve(curvature, table.T @ (each * (right - said)) - penalty @ found)
        found = found + step
        if np.abs(step).max() < 1e-8:
            break
    return found


def chances(logits: Numbers) -> Numbers:
    """The chance of each logit."""
    found: Numbers = 1 / (1 + np.exp(-np.clip(logits, -30, 30)))
    return found


def calibration_error(said: Numbers, right: Numbers) -> float:
    """The mean distance between what is said and the share of right results, over bins, weighted by their sizes."""
    bins = np.minimum((said * BINS).astype(int), BINS - 1)
    return float(sum(abs((said[bins == each] - right[bins == each]).sum()) for each in range(BINS)) / len(said))


def against(weights: Numbers, names: Sequence[str]) -> set[str]:
    """The named features by which more evidence would count against a text."""
    return {
        name
        for whole, hinge in EVIDENCE.items()
        for name, worth in ((whole, weights[PLACE[whole]]), (hinge, weights[PLACE[whole]] + weights[PLACE[hinge]]))
        if name in names and worth < 0
    }


def ordered(
    samples: Sequence[Sample], tables: Sequence[Table], names: Sequence[str], *, threaded: bool | None = None
) -> Numbers:
    """The weights of the named features that order the right ones first. `threaded`: for lists with threads (True), for
    texts that stand alone (False), or for both alike (None)."""
    if threaded:
        some = [at for at, one in enumerate(samples) if one.threaded]
        samples, tables = [samples[at] for at in some], [tables[at] for at in some]
    columns = [PLACE[name] for name in names if name not in QUESTION_LEVEL + BY_HAND]
    answerable = Counter(one.collection for one in samples if one.orders)
    spread = np.concatenate(tables)[:, columns].std(axis=0)
    spread[spread < 1e-6] = np.inf
    groups = [
        (
            table[one.judged][:, columns] / spread,
            one.right[one.judged],
            (CHATS if threaded is False and one.threaded else 1) * 1_000 / answerable[one.collection] / one.right.sum(),
        )
        for one, table in zip(samples, tables, strict=True)
        if one.orders
    ]
    weights = np.zeros(len(PLACE))
    weights[columns] = listwise(groups, len(columns)) / spread
    if falling := against(weights, names):
        return ordered(samples, tables, [name for name in names if name not in falling], threaded=threaded)
    return weights


def scored(
    samples: Sequence[Sample], tables: Sequence[Table], orders: Sequence[Numbers], names: Sequence[str]
) -> Numbers:
    """The weights of the named features that say how many of the first results are right, in the order of each
    sample."""
    columns = [PLACE[name] for name in names if name not in (*BY_HAND, *COMPARED, *ORDER_ONLY)]
    rows, right, each = [], [], []
    kinds = Counter((one.collection, one.small, bool(one.relevant)) for one in samples)
    for one, table, order in zip(samples, tables, orders, strict=True):
        best = np.argsort(-(table @ order), kind="stable")
        best = best[one.judged[best]][:RESULTS]
        rows.append(table[best][:, columns])
        right.append(one.right[best])
        each.append(
            np.full(
                len(best),
                SCORES.get(one.collection, 1.0) * 1_000 / kinds[one.collection, one.small, bool(one.relevant)],
            )
        )
    weights = np.zeros(len(PLACE))
    weights[columns] = logistic(np.concatenate(rows), np.concatenate(right).astype(float), np.concatenate(each))
    if falling := against(weights, names):
        return scored(samples, tables, orders, [name for name in names if name not in falling])
    return weights


class Fit(NamedTuple):
    """The weights of a text alone, and the tables with the evidence of its neighbours by these weights."""

    alone: Numbers
    tables: list[Table]
    features: Sequence[str]

    def weights(self, samples: Sequence[Sample], without: AbstractSet[int] = frozenset()) -> Weights:
        """The weights, fitted without the samples in these places."""
        places = [at for at in range(len(samples)) if at not in without]
        some, tables = [samples[at] for at in places], [self.tables[at] for at in places]
        order = ordered(some, tables, self.features, threaded=False)
        threads = ordered(some, tables, self.features, threaded=True)
        orders = [threads if one.threaded else order for one in some]
        return Weights(self.alone, order, threads, scored(some, tables, orders, self.features))


def tabled(samples: Sequence[Sample], unknown: AbstractSet[str]) -> Fit:
    """Fits the few weights of a text alone, and computes all features by them."""
    own = [name for name in OWN if name not in unknown]
    nothing = Weights(*[vector({})] * 4)
    tables = [_table(one, nothing) for one in samples]
    alone = scored(samples, tables, [ordered(samples, tables, own)] * len(samples), own)
    tables = [_table(one, nothing._replace(alone=alone)) for one in samples]
    return Fit(alone, tables, [name for name in FEATURES if name not in unknown])


def _table(sample: Sample, weights: Weights) -> Table:
    return table_of(sample.candidates, sample.question, weights)


def estimates(samples: Sequence[Sample]) -> str:
    """Fits what estimates a nearness and a MaxSim that are not known. Returns both as they stand in
    `openmemory.search.ranking.features`."""
    columns = [PLACE[name] for name in ("meaning", "words", "tokens")]
    sizes = Counter[str]()
    parts, listed, names = [], list[bool](), list[str]()
    for sample in samples:
        compared = [place for place, one in enumerate(sample.candidates) if one.late is not None]
        parts.append(own_evidence(sample.candidates, sample.question)[np.ix_(compared, columns)])
        listed += [sample.candidates[place].cosine is not None for place in compared]
        names += [sample.collection] * len(compared)
        sizes[sample.collection] += len(compared)
    meaning, words, tokens = np.concatenate(parts).T
    constant = np.ones(len(names))
    # Each collection weighs the same.
    root = np.sqrt([1_000 / sizes[name] for name in names])

    def fitted(wanted: Numbers, *known: Numbers, among: npt.NDArray[np.bool_]) -> str:
        table = np.stack([constant, *known], axis=1) * root[:, None]
        found = np.linalg.lstsq(table[among], (wanted * root)[among], rcond=None)[0]
        return f"({', '.join(f'{value:.3g}' for value in found)})"

    near = fitted(meaning, words, among=np.array(listed))
    return f"NEARNESS = {near}\nMAXSIM = {fitted(tokens, meaning, words, among=constant > 0)}"


def held_out(samples: Sequence[Sample], fit: Fit) -> list[tuple[Numbers, Numbers]]:
    """The order of each sample's candidates and their chances in it, by weights that were fitted without its fold."""
    number: dict[tuple[str, str], int] = {}
    for name in sorted({(one.collection, one.fold) for one in samples}):
        number[name] = sum(other[0] == name[0] for other in number) % FOLDS
    found: dict[int, tuple[Numbers, Numbers]] = {}
    for fold in range(FOLDS):
        left = {at for at, one in enumerate(samples) if number[one.collection, one.fold] == fold}
        weights = fit.weights(samples, left)
        for at in left:
            own = weights.in_threads() if samples[at].threaded else weights
            order = np.argsort(-(fit.tables[at] @ own.order), kind="stable")
            found[at] = order, chances(levelled((fit.tables[at] @ weights.score)[order]))
    return [found[at] for at in range(len(samples))]


def report(samples: Sequence[Sample], found: Sequence[tuple[Numbers, Numbers]]) -> None:
    """Prints the figures of each collection."""
    for name in dict.fromkeys(one.collection for one in samples):
        figures: list[Mapping[str, float]] = []
        said: dict[bool, list[Numbers]] = {False: [], True: []}
        right: dict[bool, list[Numbers]] = {False: [], True: []}
        for one, (order, each) in zip(samples, found, strict=True):
            if one.collection != name:
                continue
            if one.relevant and not one.small:
                figures.append(measured([one.names[at] for at in order[:20]], one.relevant))
            said[one.small].append(each[:RESULTS])
            right[one.small].append(one.right[order[:RESULTS]].astype(float))
        shown = "  ".join(
            f"{key} {mean([each[key] for each in figures]):.3f}"
            for key in ("recall@5", "recall@10", "nDCG@10", "hit@5")
        )
        parts = {kind: (np.concatenate(said[kind]), np.concatenate(right[kind])) for kind in said if said[kind]}
        errors = "  ".join(
            f"{'small' if kind else 'large'} {calibration_error(*both):.3f}" for kind, both in parts.items()
        )
        print(f"  {name:20} {shown}  error: {errors}", flush=True)


def report_bounds(samples: Sequence[Sample], found: Sequence[tuple[Numbers, Numbers]]) -> None:
    """Prints what a least score of results would show of the everyday sets."""
    for bound in BOUNDS:
        right, wrong, empty = [], [], []
        for one, (order, each) in zip(samples, found, strict=True):
            if one.collection != "everyday":
                continue
            shown = [one.names[at] for at, score in zip(order, each, strict=True) if score >= bound][:RESULTS]
            wrong.append(float(len(set(shown) - one.relevant - one.near)))
            if one.relevant:
                right.append(float(bool(one.relevant & set(shown[:2]))))
            else:
                empty.append(float(not shown))
        if wrong:
            print(
                f"  everyday, scores of at least {bound:.3f}: right one first or second {mean(right):.3f}, "
                f"wrong ones {mean(wrong):.2f}, unanswerable ones empty {mean(empty):.3f}"
            )


def printed(name: str, weights: Weights) -> str:
    """The weights as they stand in `openmemory.search.ranking.weights`."""
    parts = [
        "{"
        + ", ".join(f'"{each}": {value:.3g}' for each, value in zip(FEATURES, one, strict=True) if abs(value) >= 0.005)
        + "}"
        for one in weights
    ]
    lines = "".join(f"    {part},\n" for part in parts)
    return f"{name} = _weights(\n{lines})"


def run(samples: Sequence[Sample], modes: Sequence[str] = tuple(MODES)) -> None:
    """Fits and measures each kind of evidence."""
    print(estimates(samples))
    for name in modes:
        mode = MODES[name]
        some = [one for each in samples if (one := mode.of(each)).candidates]
        print(f"{name}, held out:")
        fit = tabled(some, mode.unknown)
        found = held_out(some, fit)
        report(some, found)
        report_bounds(some, found)
        print(printed(name, fit.weights(some)), flush=True)


async def all_samples(
    folders: Sequence[Path], sets: Mapping[str, everyday.Everyday], data: Path, small: int
) -> list[Sample]:
    """The samples of all collections and sets."""
    collections = [read(folder) for folder in folders]
    found = await everyday_samples("everyday", sets, data)
    found += await everyday_samples("identifiers", {"identifiers": everyday.read(IDENTIFIERS)}, data)
    for at, one in enumerate(collections):
        found += await samples_of(one, collections[(at + 1) % len(collections)], data, small=False)
        if small:
            found += await samples_of(small_stores(one, small), one, data, small=True)
    return found


def main() -> None:
    """Fit, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--keep", type=Path, help="where stored collections and their evidence are kept")
    parser.add_argument("--small", type=int, default=60, help="questions of each collection that small stores get")
    given = parser.parse_args()
    with temporary_folder("fit") as temporary:
        sets = {file.stem: everyday.read(file) for file in sorted(EVERYDAY.glob("*.json"))}
        run(asyncio.run(all_samples(given.folders, sets, given.keep or temporary, given.small)))


if __name__ == "__main__":
    main()
