"""How well searches find what is relevant, on judged collections: the arms alone, fused by ranks, and ours.

    make eval ARGS="FOLDER … [--keep FOLDER] [--ablate] [--folds] [--worst 10] [--fragments] [--lengths]
                          [--messages]"

Each FOLDER holds a collection in the layout of BEIR (see `benchmarks.collections`). Its documents are stored as
memories of one user, in the namespaces and threads that it tells, in the embedded stores, and embedded by the packaged
model; every question is asked by the same code that serves a search, in its namespace. The weights of a search were
fitted on some of these collections; `benchmarks.fit` prints figures that are held out. Beside ours stand the two arms
as they answer the whole question, and both fused by reciprocal ranks of equal weight (k = 60). `--ablate` takes out
one ingredient at a time (see `benchmarks.ablations`) and tells what that changes, with intervals of the differences,
question by question. `--folds` tells what of the figures is chance (see `benchmarks.folds`), `--worst` shows questions
whose answers stand lowest, with the texts. `--fragments` evaluates each collection a second time, with its documents
cut at sentence ends. `--lengths` mixes long and short documents: with every second thread as one document, and with
the threads of other namespaces added. `--messages` stores the documents as messages of conversations and searches
these, which needs a collection with threads.
`--keep` names a folder in which the stored collections are kept for another run. Intervals are bootstrapped over the
questions, 95 %, with a fixed seed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from benchmarks import folds
from benchmarks.ablations import ABLATIONS
from benchmarks.collections import (
    MEASURES,
    Collection,
    Document,
    Question,
    among_long,
    fragments,
    half_joined,
    interval,
    mean,
    measured,
    misses,
    read,
)
from benchmarks.service import temporary_folder
from openmemory.config.settings import Settings
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.index.port import Filter
from openmemory.memories.schemas import MemoryCreate
from openmemory.search import statistics
from openmemory.search.candidates.lexical import LexicalSearch
from openmemory.search.candidates.query_analysis import analysed
from openmemory.search.corpus import MEMORIES, PASSAGES, Corpus
from openmemory.search.schemas import Method, PassageAnswer, SearchAnswer, SearchQuery
from openmemory.search.service import LONG_QUERY_NOTE
from openmemory.search.sql.lexical_filter import LexicalFilter
from openmemory.services import Services, open_services
from openmemory.sources.schemas import NewMessage, NewMessages

USER = "evaluation"
DEPTH = 50
"""Hits of each arm that reciprocal ranks are taken of, as many as ours asks for."""
ANSWERS = 20
"""Results of a question: no measure looks at more."""
RANK_CONSTANT = 60
BEHIND = 5
"""Places by which a first answer may stand lower than in the better arm before it counts as lost."""
SHOWN = "hit@5", "recall@10", "nDCG@10"
"""The measures that the table for docs has columns for."""
WAYS = {"BM25": "words (BM25)", "model": "the model", "equal RRF": "both, by reciprocal ranks", "ours": "**a search**"}
USUAL = LONG_QUERY_NOTE, "Nothing is dated"
"""Beginnings of notes on answers that nothing is missing from."""
_BATCH = 500
_LONGEST_NAME = 30

Answers = dict[str, list[str]]
"""Documents by question, best first."""


@dataclass(slots=True)
class Asked:
    """A stored collection that can be asked."""

    services: Services
    caller: Caller
    collection: Collection
    documents: dict[UUID, str]
    corpus: Corpus = MEMORIES

    async def arms(self, question: Question) -> tuple[list[UUID], list[UUID]]:
        """What either arm finds alone: by words, and by meaning of the whole question."""
        where = LexicalFilter(self.caller.user_id, namespaces=(question.namespace,), kind=self.corpus.kind)
        space = self.services.spaces.serving
        vector = (await space.query(question.text)).vector
        async with self.services.database.statement() as tx:
            analysis = await analysed(tx, question.text, where)
            within = Filter(self.corpus.kind.tenant(self.caller.user_id), namespaces=(question.namespace,))
            near = await space.search(vector, within, DEPTH)
            said = await space.search_words(analysis.vector, within, DEPTH)
            search = LexicalSearch(question.text, analysis, where, DEPTH, enough=ANSWERS)
            words = await search.completed(tx, search.of_index(said))
        return [hit.id for hit in words], [hit.id for hit in near]

    async def ours(self, question: Question) -> list[UUID]:
        """What a search answers."""
        # Recall is measured on ranked lists, whose tails a search does not show.
        query = SearchQuery(question.text, limit=ANSWERS, namespaces=(question.namespace,), everything=True)
        search = self.services.search
        answer: SearchAnswer | PassageAnswer = await (
            search.search(self.caller, query) if self.corpus is MEMORIES else search.passages(self.caller, query)
        )
        if answer.search_method is Method.LEXICAL or not (answer.note or LONG_QUERY_NOTE).startswith(USUAL):
            raise RuntimeError(f"this would measure something else: {answer.note}")
        return [result.id for result in answer.results]

    async def all_of_ours(self) -> Answers:
        """What a search answers to every question."""
        return {one.id: self.named(await self.ours(one)) for one in self.collection.questions}

    def named(self, ids: Sequence[UUID]) -> list[str]:
        """The documents of these memories."""
        return [self.documents[id_] for id_ in ids[:ANSWERS]]


def by_ranks(*lists: Sequence[UUID]) -> list[UUID]:
    """Reciprocal rank fusion of equal weights (Cormack, Clarke and Büttcher 2009)."""
    scores: dict[UUID, float] = defaultdict(float)
    for found in lists:
        for rank, id_ in enumerate(found, 1):
            scores[id_] += 1 / (RANK_CONSTANT + rank)
    return sorted(scores, key=lambda id_: -scores[id_])


async def store(services: Services, caller: Caller, documents: Sequence[Document]) -> dict[UUID, str]:
    """The documents as memories: their names by id. Texts that are the same in a namespace are one memory."""
    names: dict[UUID, str] = {}
    for at in range(0, len(documents), _BATCH):
        some = documents[at : at + _BATCH]
        news = [
            MemoryCreate(one.text, namespace=one.namespace, thread_id=one.thread, created_at=one.written)
            for one in some
        ]
        for added, one in zip(await services.memories.add_many(caller, news), some, strict=True):
            names.setdefault(added.id, one.id)
    await services.outbox_delivery.drain()
    async with services.database.transaction() as tx:
        for user in await statistics.stale_users(tx):
            await statistics.refresh(tx, user)
    return names


async def store_messages(services: Services, caller: Caller, documents: Sequence[Document]) -> dict[UUID, str]:
    """The documents as messages of their threads: their names by id. A name before a colon is the speaker."""
    names: dict[UUID, str] = {}
    threads: dict[tuple[str, str], list[Document]] = defaultdict(list)
    for one in documents:
        threads[one.namespace, one.thread or one.id].append(one)
    for (namespace, thread), turns in threads.items():
        for at in range(0, len(turns), _BATCH):
            some = turns[at : at + _BATCH]
            messages: list[NewMessage | Invalid] = []
            for one in some:
                speaker, colon, said = one.text.partition(": ")
                named = bool(colon) and len(speaker) <= _LONGEST_NAME
                content, role = (said, speaker) if named else (one.text, "user")
                messages.append(NewMessage(content, role, one.id, one.written))
            results = await services.conversations.add(caller, NewMessages(thread, messages, namespace))
            for result, one in zip(results, some, strict=True):
                if isinstance(result, Invalid):
                    raise result
                names[result.id] = one.id
    await services.outbox_delivery.drain()
    return names


async def answered(asked: Asked, *, ablate: bool) -> dict[str, Answers]:
    """The answers to all questions, by way of finding them."""
    found: dict[str, Answers] = {"BM25": {}, "model": {}, "equal RRF": {}, "ours": {}}
    for question in asked.collection.questions:
        words, dense = await asked.arms(question)
        found["BM25"][question.id] = asked.named(words)
        found["model"][question.id] = asked.named(dense)
        found["equal RRF"][question.id] = asked.named(by_ranks(words, dense))
        found["ours"][question.id] = asked.named(await asked.ours(question))
    for name, without in ABLATIONS.items() if ablate else ():
        with without():
            found[name] = await asked.all_of_ours()
    return found


def report_folds(questions: Sequence[Question], ours: Answers) -> None:
    """Print how the figures differ between folds."""
    split = folds.folds(questions)
    print(f"  {len(split)} folds: each of them, and the deviation")
    for measure in ("recall@10", "hit@5", "nDCG@10"):
        means, deviation = folds.spread([measured(ours[one.id], one.relevant)[measure] for one in questions], split)
        print(f"    {measure:10} {' '.join(f'{value:.3f}' for value in means)}  ± {deviation:.3f}")
    sys.stdout.flush()


def _cell(values: Sequence[float]) -> str:
    low, high = interval(values)
    return f"{mean(values):.3f} [{low:.3f}, {high:.3f}]"


def _difference(one: Sequence[Mapping[str, float]], other: Sequence[Mapping[str, float]], measure: str) -> str:
    more, low, high = folds.difference([each[measure] for each in one], [each[measure] for each in other])
    return f"{more:+.3f} [{low:+.3f},{high:+.3f}]"


def _falls_behind(found: Mapping[str, Answers], name: str, question: Question) -> bool:
    """True if the first relevant document stands more than `BEHIND` places lower than where the better arm has it."""
    better = min(misses(found[arm][question.id], question.relevant) for arm in ("BM25", "model"))
    return misses(found[name][question.id], question.relevant) > better + BEHIND


def table(collections: Sequence[tuple[Collection, dict[str, Answers]]]) -> str:
    """All collections as one Markdown table, for docs: each way of finding, with intervals."""
    lines = [f"| collection | found by | {' | '.join(SHOWN)} |", f"|---|---|{'---|' * len(SHOWN)}"]
    for collection, found in collections:
        name = f"{collection.name}: {len(collection.documents):,} documents, {len(collection.questions):,} questions"
        for way, shown in WAYS.items():
            figures = [measured(found[way][one.id], one.relevant) for one in collection.questions]
            cells = [_cell([each[measure] for each in figures]) for measure in SHOWN]
            lines.append(f"| {name} | {shown} | {' | '.join(cells)} |")
            name = ""
    return "\n".join(lines)


def report(collection: Collection, found: dict[str, Answers], worst: int) -> None:
    """Print the table of a collection."""
    print(f"\n{collection.name}: {len(collection.documents):,} documents, {len(collection.questions):,} questions")
    print(f"  {'':19}" + "".join(f"{name:>23}" for name in MEASURES))
    scores = {
        name: [measured(answers[one.id], one.relevant) for one in collection.questions]
        for name, answers in found.items()
    }
    for name, figures in scores.items():
        if name in ABLATIONS:
            cells = [_difference(figures, scores["ours"], measure) for measure in MEASURES]
        else:
            cells = [_cell([each[measure] for each in figures]) for measure in MEASURES]
        print(f"  {name:19}" + "".join(f"{cell:>23}" for cell in cells))
    for name in ("equal RRF", "ours"):
        far = mean([float(_falls_behind(found, name, one)) for one in collection.questions])
        print(f"  {name}: {far:.1%} of the first answers stand more than {BEHIND} places below the better arm's")
    by_category: dict[str, list[int]] = defaultdict(list)
    for number, question in enumerate(collection.questions):
        by_category[question.category].append(number)
    if len(by_category) > 1:
        for category, numbers in sorted(by_category.items()):
            print(f"  {category}: {len(numbers)} questions")
            for name, each in scores.items():
                cells = [_cell([each[n][measure] for n in numbers]) for measure in MEASURES]
                print(f"    {name:17}" + "".join(f"{cell:>23}" for cell in cells))
    order = sorted(range(len(collection.questions)), key=lambda n: scores["ours"][n]["nDCG@10"])
    texts: dict[str, str] = defaultdict(str)
    for document in collection.documents:
        texts[document.id] += f"{document.text} "
    for number in order[:worst]:
        question = collection.questions[number]
        print(f"\n  {question.id} | {question.category} | {question.text}")
        for id_ in sorted(question.relevant):
            answers = found["ours"][question.id]
            place = answers.index(id_) + 1 if id_ in answers else f"not among {ANSWERS}"
            print(f"    wanted ({place}): {id_} {texts[id_][:160]!r}")
        for id_ in found["ours"][question.id][:3]:
            print(f"    found: {id_} {texts[id_][:160]!r}")
    sys.stdout.flush()


def patient(folder: Path, *, longest: int = 0) -> Settings:
    """Settings for stores in a folder, for texts of up to `longest` characters.

    A machine that is busy must not turn a search by meaning into one by words. Texts are stored as they are, although
    some of a collection may look like secrets.
    """
    return Settings.model_validate(
        {
            "data_dir": str(folder),
            "port": 0,
            "limits": {"text": max(16_000, longest)},
            "rates": {"saves": 0, "searches": 0, "requests": 0},
            "embedder": {"timeout": 60},
            "qdrant": {"timeout": 60},
            "capture": {"secrets": "store"},
        }
    )


@asynccontextmanager
async def opened(collection: Collection, data: Path, corpus: Corpus = MEMORIES) -> AsyncIterator[Asked]:
    """A collection, stored if it is not stored yet."""
    longest = max(len(document.text) for document in collection.documents)
    async with open_services(patient(data / collection.name, longest=longest)) as services:
        await services.outbox_delivery.stop()
        caller = await services.directory.caller(USER, "evaluation", owner=True)
        await services.lexical_backfill.run()
        as_stored = store if corpus is MEMORIES else store_messages
        documents = await as_stored(services, caller, collection.documents)
        # One that was kept by an older version has no tokens yet.
        await services.vector_backfill.run()
        yield Asked(services, caller, collection, documents, corpus)


async def evaluate(
    collection: Collection, data: Path, corpus: Corpus = MEMORIES, *, ablate: bool, cross: bool, worst: int
) -> dict[str, Answers]:
    """Asks all questions of a collection, prints its figures, and returns the answers by way of finding them."""
    async with opened(collection, data, corpus) as asked:
        found = await answered(asked, ablate=ablate)
        report(collection, found, worst)
        if cross:
            report_folds(collection.questions, found["ours"])
    return found


def main() -> None:
    """Evaluate every collection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--keep", type=Path, help="where stored collections are kept")
    parser.add_argument("--ablate", action="store_true", help="take out one ingredient at a time, too")
    parser.add_argument("--folds", action="store_true", help="how figures differ by fold")
    parser.add_argument("--worst", type=int, default=0, help="how many of the worst answers to show")
    parser.add_argument("--fragments", action="store_true", help="evaluate documents cut at sentence ends, too")
    parser.add_argument("--lengths", action="store_true", help="evaluate with long documents among the short, too")
    parser.add_argument("--messages", action="store_true", help="store documents as messages, and search these")
    given = parser.parse_args()
    corpus = PASSAGES if given.messages else MEMORIES
    variants = [*((fragments,) if given.fragments else ()), *((half_joined, among_long) if given.lengths else ())]
    with temporary_folder("evaluation") as temporary:
        data = given.keep or temporary
        all_of_them = []
        for folder in given.folders:
            whole = read(folder)
            for one in (whole, *(variant(whole) for variant in variants)):
                made = evaluate(one, data, corpus, ablate=given.ablate, cross=given.folds, worst=given.worst)
                all_of_them.append((one, asyncio.run(made)))
        print(f"\n{table(all_of_them)}")


if __name__ == "__main__":
    main()
