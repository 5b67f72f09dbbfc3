"""What a search has found so far, and whether that can be the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from openmemory.content_policy.injection import LABEL
from openmemory.search.explanation import Round
from openmemory.search.fusion import Fused
from openmemory.search.lexical import LexicalHit


@dataclass(slots=True)
class Found:
    """What a search has read back so far: rows that the caller may read by id, and every id that was `tried`.

    `fused` are the scores by id. What is labelled is known, and lowered, only when it has been read back.
    """

    limit: int
    """How many are to be read."""
    logged: bool = False
    tried: set[UUID] = field(default_factory=set)
    rows: dict[UUID, Any] = field(default_factory=dict)
    fused: dict[UUID, Fused] = field(default_factory=dict)
    rounds: dict[UUID, Round] = field(default_factory=dict)
    """Which round the scores are from, where they are to be explained."""

    def ranked(self, hits: list[Fused], of: Round | None) -> None:
        """Take what a round ranked. Scores are relative to the lists of a round, so those of the last one hold."""
        self.fused |= {hit.id: hit for hit in hits}
        if of is not None:
            self.rounds |= dict.fromkeys((hit.id for hit in hits), of)

    def best(self) -> list[Fused]:
        """The best of what was read back, by the scores that they end up with, in order."""
        hits = [self.fused[id_].lowered() if LABEL in row.labels else self.fused[id_] for id_, row in self.rows.items()]
        return sorted(hits, key=lambda hit: -hit.score)[: self.limit]

    def lowered(self) -> list[Fused]:
        """Those of the best that were lowered."""
        if not any(LABEL in row.labels for row in self.rows.values()):
            return []
        return [hit for hit in self.best() if hit.penalty]

    def wanted(self, score: float) -> int:
        """How many more may be among the best, if none has a higher score than this before it is lowered."""
        return max(0, self.limit - len(self.rows)) + sum(hit.score < score for hit in self.lowered())

    @property
    def enough(self) -> bool:
        """Whether there are as many as were asked for."""
        return len(self.rows) >= self.limit

    def doubtful(self, words: list[LexicalHit], *, cut: bool) -> bool:
        """Whether lowered ones may be among the best only because they fill the lists; `cut`: more hold the words."""
        if not (lowered := self.lowered()):
            return False
        unlisted = 0.0
        if cut and (listed := [self.fused[hit.id] for hit in words if hit.id in self.fused]):
            # What is not listed was not compared token by token, which takes a part of the words' share.
            unlisted = min(hit.lexical / hit.scale for hit in listed) * max(hit.scale for hit in listed)
        return len(lowered) == self.limit or lowered[-1].score < unlisted
