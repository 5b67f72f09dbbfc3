"""Recall of the whole service on a judged corpus, beside a plain BM25 computed in the same run.

    python -m benchmarks.recall FOLDER

FOLDER holds `corpus.jsonl` ({_id, title, text, metadata{namespace, session}}), `queries.jsonl` ({_id, text,
metadata{namespace}}) and `qrels.tsv` (query-id, corpus-id, score). The corpus is imported with the command line
(namespace and thread from the metadata) into a fresh service; the questions are asked over MCP, each in its namespace.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import qdrant_edge
from mcp.client import Client

from benchmarks.service import idle, running_service

DEPTH = 10


def lines(file: Path) -> list[dict]:
    """A JSON Lines file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def judgements(file: Path) -> dict[str, set[str]]:
    """Relevant documents of each query."""
    relevant: dict[str, set[str]] = defaultdict(set)
    for line in file.read_text(encoding="utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        if int(grade) > 0:
            relevant[query].add(document)
    return relevant


class PlainBm25:
    """Robertson's BM25 (k1 = 1.2, b = 0.75) over stemmed English words without stop words."""

    def __init__(self, documents: Sequence[tuple[str, str]]) -> None:
        # With b = 0 an encoded weight is tf · (k + 1) / (tf + k): the count of the word can be read back from it.
        self._encoder = qdrant_edge.Bm25(qdrant_edge.Bm25Config(k=1.2, b=0.0, language="english"))
        self.ids = [id_ for id_, _ in documents]
        self.counts = [self._words(text) for _, text in documents]
        self.lengths = [sum(counts.values()) for counts in self.counts]
        self.mean = statistics.fmean(self.lengths)
        self.frequency = Counter(word for counts in self.counts for word in counts)

    def _words(self, text: str) -> Counter[int]:
        sparse = self._encoder.embed_document(text)
        return Counter({i: round(1.2 * v / (2.2 - v)) for i, v in zip(sparse.indices, sparse.values, strict=True)})

    def top(self, query: str) -> list[str]:
        """Ids of the best documents."""
        total = len(self.ids)
        idf = {
            word: math.log(1 + (total - self.frequency[word] + 0.5) / (self.frequency[word] + 0.5))
            for word in self._words(query)
            if word in self.frequency
        }
        scores = []
        for id_, counts, length in zip(self.ids, self.counts, self.lengths, strict=True):
            norm = 1.2 * (0.25 + 0.75 * length / self.mean)
            score = sum(
                weight * counts[word] * 2.2 / (counts[word] + norm) for word, weight in idf.items() if word in counts
            )
            if score:
                scores.append((-score, id_))
        return [id_ for _, id_ in sorted(scores)[:DEPTH]]


def figures(found: dict[str, list[str]], relevant: dict[str, set[str]]) -> dict[str, float]:
    """Mean recall@5, recall@10 and reciprocal rank (of the first ten) over all judged queries."""
    judged = [query for query in found if relevant[query]]

    def recall(at: int) -> float:
        return statistics.fmean(len(relevant[q] & set(found[q][:at])) / len(relevant[q]) for q in judged)

    def reciprocal(query: str) -> float:
        return next((1 / rank for rank, id_ in enumerate(found[query], 1) if id_ in relevant[query]), 0.0)

    return {"recall@5": recall(5), "recall@10": recall(10), "MRR": statistics.fmean(map(reciprocal, judged))}


async def ask(url: str, queries: list[dict]) -> tuple[dict[str, list[str]], list[float], Counter]:
    """Every question over MCP: found ids, milliseconds of each call, and how they were answered."""
    found: dict[str, list[str]] = {}
    milliseconds: list[float] = []
    methods: Counter = Counter()
    async with Client(f"{url}/mcp/recall/http/recall") as client:
        for query in queries:
            arguments = {"query": query["text"], "limit": DEPTH, "namespace": query["metadata"]["namespace"]}
            started = time.perf_counter()
            result = await client.call_tool("search_memory", arguments)
            milliseconds.append((time.perf_counter() - started) * 1e3)
            answer = json.loads(result.content[0].text)
            methods[answer["search_method"]] += 1
            found[query["_id"]] = [one["metadata"]["corpus_id"] for one in answer["results"]]
    return found, milliseconds, methods


def convert(corpus: list[dict], file: Path) -> None:
    """The corpus in the format of `openmemory import`."""
    with file.open("w", encoding="utf-8") as out:
        for document in corpus:
            metadata = document.get("metadata", {})
            text = f"{document['title']}\n{document['text']}" if document.get("title") else document["text"]
            line = {
                "text": text,
                "user": "recall",
                "app": "recall",
                "namespace": metadata.get("namespace", "scifact"),
                "thread_id": metadata.get("session"),
                "metadata": {"corpus_id": document["_id"]},
            }
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    corpus, queries = lines(folder / "corpus.jsonl"), lines(folder / "queries.jsonl")
    relevant = judgements(folder / "qrels.tsv")

    spaces: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for document in corpus:
        text = f"{document.get('title', '')} {document['text']}"
        spaces[document.get("metadata", {}).get("namespace", "scifact")].append((document["_id"], text))
    floors = {namespace: PlainBm25(documents) for namespace, documents in spaces.items()}
    floor = {query["_id"]: floors[query["metadata"]["namespace"]].top(query["text"]) for query in queries}

    with (
        tempfile.TemporaryDirectory(prefix="om-recall-") as temporary,
        running_service(Path(temporary) / "data") as url,
    ):
        file = Path(temporary) / "corpus.jsonl"
        convert(corpus, file)
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "app", "import", str(file), "--url", url], check=True)
        imported = time.perf_counter() - started
        asyncio.run(idle(url))
        embedded = time.perf_counter() - started
        found, milliseconds, methods = asyncio.run(ask(url, queries))

    print(f"{len(corpus)} documents, {len(queries)} questions")
    print(f"imported in {imported:.1f} s, searchable by meaning after {embedded:.1f} s")
    print(f"answered: {dict(methods)}; p50 {statistics.median(milliseconds):.1f} ms a question with the SDK's client")
    print(f"{'':16}{'recall@5':>10}{'recall@10':>10}{'MRR':>10}")
    for name, answers in (("plain BM25", floor), ("openmemory", found)):
        print(f"{name:16}" + "".join(f"{value:10.3f}" for value in figures(answers, relevant).values()))


if __name__ == "__main__":
    main()
