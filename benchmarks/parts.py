"""Where the time of a search goes: each part alone, in one process on the same data."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from benchmarks.seed import USER
from openmemory.access.rule_cache import RuleCache
from openmemory.config.settings import Settings
from openmemory.index.port import Filter
from openmemory.search.answers.readback import readback
from openmemory.search.candidates.lexical import LexicalHit, LexicalSearch
from openmemory.search.candidates.query_analysis import QueryAnalysis, analysed
from openmemory.search.candidates.retrieval import CANDIDATES
from openmemory.search.context import SearchResources, search_context
from openmemory.search.ranking.features import QuestionParts
from openmemory.search.ranking.linear_model import candidates, ranked
from openmemory.search.schemas import Method, SearchQuery
from openmemory.search.sql.lexical_filter import LexicalFilter
from openmemory.services import open_services

COUNT = 100


async def parts(folder: Path, inputs: Iterator[str]) -> None:
    """Print p50 and p95 of each part, in milliseconds."""
    async with open_services(Settings(data_dir=str(folder), port=0)) as services:
        caller = await services.directory.caller(USER, "bench")
        search, index = services.search, services.index
        means = SearchResources(services.database, services.spaces, services.settings, RuleCache())
        queries = [SearchQuery(next(inputs)) for _ in range(COUNT)]
        vectors = [(await services.embedder.query(query.text)).vector for query in queries]
        contexts = [search_context(means, caller, query) for query in queries]
        where = Filter(caller.user_id)

        async def analyse(at: int) -> QueryAnalysis:
            async with services.database.statement() as tx:
                return await analysed(tx, queries[at].text, LexicalFilter(caller.user_id))

        analyses = [await analyse(at) for at in range(COUNT)]

        async def from_postgresql(at: int) -> list[LexicalHit]:
            search = LexicalSearch(queries[at].text, analyses[at], LexicalFilter(caller.user_id), CANDIDATES, 10)
            async with services.database.statement() as tx:
                return await search.hits(tx)

        words = [await from_postgresql(at) for at in range(COUNT)]
        dense = [await index.search(vector, where, CANDIDATES) for vector in vectors]
        found = [
            ranked(candidates(near, said), QuestionParts(query.text))
            for near, said, query in zip(dense, words, queries, strict=True)
        ]

        async def read(at: int) -> None:
            candidates = [(hit.id, hit.score) for hit in found[at]]
            await readback(contexts[at], candidates, limit=10, method=Method.HYBRID)

        async def ranking(at: int) -> None:
            ranked(candidates(dense[at], words[at]), QuestionParts(queries[at].text))

        fresh = [SearchQuery(next(inputs)) for _ in range(COUNT)]
        work: dict[str, Callable[[int], Awaitable[object]]] = {
            "embedding": lambda at: services.embedder.query(fresh[at].text),
            "analysis SQL": analyse,
            "index by meaning": lambda at: index.search(vectors[at], where, CANDIDATES),
            "index by words": lambda at: index.search_words(analyses[at].vector, where, CANDIDATES),
            "words from SQL": from_postgresql,
            "ranking": ranking,
            "read-back SQL": read,
            "search whole": lambda at: search.search(caller, SearchQuery(fresh[at].text + " again")),
        }
        for name, part in work.items():
            milliseconds = []
            for at in range(COUNT):
                started = time.perf_counter()
                await part(at)
                milliseconds.append((time.perf_counter() - started) * 1e3)
            p95 = statistics.quantiles(milliseconds, n=20)[18]
            print(f"  {name:18} p50 {statistics.median(milliseconds):7.2f}  p95 {p95:7.2f} ms", flush=True)
