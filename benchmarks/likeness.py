"""Which texts that are near to each other are held to say the same: precision and recall by threshold.

    python -m benchmarks.likeness [FILE] [--wrong]

FILE holds a pair a line: `{"old", "new", "same", "sort"}`; left out: the pairs of the tests, which we have labelled.
The packaged model tells how near they are. `words` are the guards of `openmemory.dedup.paraphrases` alone, `cosine`
the threshold alone, `both` what the service does. `plain` is the threshold with guards that need no grammar: equal
numbers, names and identifiers, and a negation in both or neither (decision 53). The guards were written looking at
every second pair; `unseen` are the others.
`--wrong` lists what is taken for the same at the service's threshold and is not, and what is missed, of the pairs seen.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from openmemory.dedup.paraphrases import MIN_SIMILARITY, ComparedText, compare
from openmemory.embeddings.local import LocalEmbedder
from openmemory.embeddings.port import PACKAGED

PAIRS = Path(__file__).parent.parent / "tests" / "capture" / "likeness.jsonl"
NEGATIONS = {"not", "no", "never", "nobody", "nothing", "none", "without", "neither", "nor", "cannot"}
THRESHOLDS = [0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95]


class Pair(NamedTuple):
    """Two texts, whether they say the same, how near they are and what the words say against it."""

    old: str
    new: str
    same: bool
    sort: str
    cosine: float
    because: str | None
    alike: bool


class Score(NamedTuple):
    """`found` pairs are held to say the same."""

    precision: float
    recall: float
    found: int


async def measured(lines: list[dict[str, Any]]) -> list[Pair]:
    """The pairs with what the packaged model and the words say of them."""
    embedder = LocalEmbedder()
    try:
        made = await embedder.documents([line[side] for side in ("old", "new") for line in lines])
    finally:
        await embedder.close()
    firsts = np.stack([one.chunks[0] for one in made])
    cosines = (firsts[: len(lines)] * firsts[len(lines) :]).sum(axis=1)
    pairs = []
    for line, cosine in zip(lines, cosines, strict=True):
        relation, because = compare(line["old"], line["new"])
        against = None if relation is not None else because
        alike = _alike(ComparedText(line["old"]), ComparedText(line["new"]))
        pairs.append(Pair(line["old"], line["new"], line["same"], line["sort"], float(cosine), against, alike))
    return pairs


def _alike(old: ComparedText, new: ComparedText) -> bool:
    """True if the numbers, names, identifiers and negations are the same."""
    features = [
        (each.numbers, each.identifiers, frozenset(each.names[0]), any(map(_negates, each.words)))
        for each in (old, new)
    ]
    return features[0] == features[1]


def _negates(word: str) -> bool:
    return word in NEGATIONS or word.endswith("n't")


def score(pairs: list[Pair], threshold: float, *, words: bool = True, plain: bool = False) -> Score:
    """How many of those that are held to say the same do, and how many of those that do are found."""
    found = [
        pair
        for pair in pairs
        if pair.cosine >= threshold and (pair.alike if plain else not (words and pair.because is not None))
    ]
    right = sum(pair.same for pair in found)
    same = sum(pair.same for pair in pairs)
    return Score(right / len(found) if found else 1.0, right / same if same else 1.0, len(found))


def read(file: Path = PAIRS) -> list[dict[str, Any]]:
    """The pairs of a file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def unseen(pairs: list[Pair]) -> list[Pair]:
    """Every second pair, which nobody looked at when the guards were written, without those that were thought up to
    deceive them."""
    return [pair for pair in pairs if pair.sort != "order"][1::2]


def _show(name: str, pairs: list[Pair]) -> None:
    print(f"\n{name}: {len(pairs)} pairs, {sum(pair.same for pair in pairs)} of which say the same")
    print("threshold   cosine: precision recall    both: precision recall    plain: precision recall")
    for threshold in THRESHOLDS:
        alone, both = score(pairs, threshold, words=False), score(pairs, threshold)
        plain = score(pairs, threshold, plain=True)
        print(f"     {threshold:.2f}         {alone.precision:.3f}   {alone.recall:.3f}         ", end="")
        print(f"{both.precision:.3f}   {both.recall:.3f}           {plain.precision:.3f}   {plain.recall:.3f}")
    words = score(pairs, -1.0)
    print(f"    words alone: precision {words.precision:.3f}, recall {words.recall:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=PAIRS)
    parser.add_argument("--wrong", action="store_true", help="list the pairs that are judged wrongly")
    arguments = parser.parse_args()
    lines = read(arguments.file)
    started = time.perf_counter()
    pairs = asyncio.run(measured(lines))
    spent = time.perf_counter() - started
    _show("all", pairs)
    _show("unseen", unseen(pairs))
    started = time.perf_counter()
    for pair in pairs:
        compare(pair.old, pair.new)
    each = (time.perf_counter() - started) / len(pairs)
    print(f"\n{len(pairs)} pairs embedded in {spent:.1f} s; words compared in {each * 1e6:.0f} µs a pair")
    least = MIN_SIMILARITY[PACKAGED]
    print(f"\nby sort, at {least}:")
    held = [pair for pair in pairs if pair.cosine >= least and pair.because is None]
    counts, of = Counter(pair.sort for pair in held), Counter(pair.sort for pair in pairs)
    for sort, count in of.items():
        print(f"  {sort:<12} {counts[sort]:>4} of {count} held to say the same")
    if arguments.wrong:
        hidden = set(unseen(pairs))
        for pair in pairs:
            if pair not in hidden and (pair in held) != pair.same:
                print(f"{pair.sort} {pair.cosine:.3f} {pair.because or '-'}: {pair.old} | {pair.new}")


if __name__ == "__main__":
    main()
