"""The state of a running search, and the checks that decide whether it is complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from openmemory.content_policy.injection import LABEL
from openmemory.search.explanation import SearchRound
from openmemory.search.fusion import Fused
from openmemory.search.lexical import LexicalHit


@dataclass(slots=True)
class ReadRows:
    """The rows that the caller may read, by id, and every id that was `tried`.

    `fused` contains the scores by id. Flagged memories are known, and ranked lower, only after they were read back.
    """

    limit: int
    """The number of rows to read."""
    logged: bool = False
    tried: set[UUID] = field(default_factory=set)
    rows: dict[UUID, Any] = field(default_factory=dict)
    fused: dict[UUID, Fused] = field(default_factory=dict)
    rounds: dict[UUID, SearchRound] = field(default_factory=dict)
    """The round of each score, if scores are to be explained."""

    def ranked(self, hits: list[Fused], of: SearchRound | None) -> None:
        """Adds the hits of a round. Scores are relative to the lists of a round, so those of the last round replace
        earlier ones."""
        self.fused |= {hit.id: hit for hit in hits}
        if of is not None:
            self.rounds |= dict.fromkeys((hit.id for hit in hits), of)

    def best(self) -> list[Fused]:
        """The best of the rows that were read back, in the order of their final scores."""
        hits = [self.fused[id_].lowered() if LABEL in row.labels else self.fused[id_] for id_, row in self.rows.items()]
        return sorted(hits, key=lambda hit: -hit.score)[: self.limit]

    def lowered(self) -> list[Fused]:
        """Those of the best hits that were ranked lower."""
        if not any(LABEL in row.labels for row in self.rows.values()):
            return []
        return [hit for hit in self.best() if hit.penalty]

    def wanted(self, score: float) -> int:
        """The number of further hits that may be among the best, if none of them scores above `score` before a
        penalty."""
        return max(0, self.limit - len(self.rows)) + sum(hit.score < score for hit in self.lowered())

    @property
    def enough(self) -> bool:
        """Returns True if the requested number of rows was read."""
        return len(self.rows) >= self.limit

    def doubtful(self, words: list[LexicalHit], *, cut: bool) -> bool:
        """Returns True if flagged hits may be among the best only because they fill the lists. `cut`: more memories
        match the words."""
        if not (lowered := self.lowered()):
            return False
        unlisted = 0.0
        if cut and (listed := [self.fused[hit.id] for hit in words if hit.id in self.fused]):
            # Unlisted memories were not compared token by token, which takes a part of the words' share.
            unlisted = min(hit.lexical / hit.scale for hit in listed) * max(hit.scale for hit in listed)
        return len(lowered) == self.limit or lowered[-1].score < unlisted
