"""The pairs of corrections: the file can be read, and its figures say what packs hold."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from benchmarks.corrections import Outcome, Pair, StoredPair, line, outcome, read
from openmemory.projects.pack_items import Material
from openmemory.projects.packing import pack
from openmemory.search.schemas import SearchResult
from tests.projects.test_packing import NOW, _made

PAIR = Pair("number", "which port?", "The port is 5434.", "The port is 5433.")
STORED = StoredPair(PAIR, UUID(int=1), UUID(int=2))


def held(*ids: int) -> Outcome:
    texts = {1: (PAIR.older, 1), 2: (PAIR.newer, 2)}
    memories: list[Any] = [
        _made(SearchResult, id=UUID(int=id_), memory=texts[id_][0], score=0.5, app_name="a", namespace="shop",
              kind="memory", created_at=NOW.replace(day=texts[id_][1]), updated_at=NOW.replace(day=texts[id_][1]))
        for id_ in ids
    ]  # fmt: skip
    return outcome(STORED, pack(Material("shop", "q", memories=memories), 500, secret=b"s"))


def test_the_file_has_forty_pairs_of_several_sorts_and_languages() -> None:
    pairs = read()
    assert len(pairs) >= 40
    assert {"number", "negation", "opposite", "name", "value", "fact", "change"} == {pair.sort for pair in pairs}
    assert sum(pair.newer_key is not None or pair.older_key is not None for pair in pairs) >= 4
    assert len({pair.question for pair in pairs}) == len(pairs)


def test_a_pack_with_the_older_side_alone_misleads() -> None:
    both, older, newer = held(1, 2), held(1), held(2)
    assert (both.misleads, both.named) == (False, True)
    assert (older.misleads, newer.misleads) == (True, False)
    assert line(300, [both, older, newer]) == (
        "     300 tokens: newer side 2 of 3, both 1, named 1, older side alone 1"
    )
