"""The features of the candidates of a search: what speaks for a text, as numbers that mean the same in every search.

A feature says something of the text, its thread and the question, not of the store or of the number of candidates.
Those that compare a candidate with the others are 0 where there are few, and only decide on the order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from openmemory.embeddings.chance import USUAL, ChanceCosine
from openmemory.search.candidate_rows import CandidateRow
from openmemory.search.late_interaction import LateScore
from openmemory.search.lexical import LexicalHit
from openmemory.search.names import BEST, led
from openmemory.search.periods import Period
from openmemory.search.query_text import words
from openmemory.search.recency import Recency

OWN = ("base", "question", "meaning", "near", "words", "covered", "tokens", "said")
"""The features of a text itself, which its neighbours in a thread gain from too."""

COMPARED = ("distinct", "distinct_short")
"""The features that compare a text with the other candidates. They decide on the order only: a score means the same in
every store."""

BESIDE = ("before", "after", "second_before", "second_after", "answers", "thread", "second_thread")
"""The evidence of other texts of the same thread."""

ABOUT = (
    "asks", "time", "recency", "speaker", "other_speaker", "user", "assistant", "user_me", "assistant_me", "length",
    "user_length", "assistant_length", "named", "flagged",
)  # fmt: skip

FEATURES = (*OWN, *COMPARED, *BESIDE, *ABOUT)
"""All features, in the order of the columns."""

PLACE = {name: place for place, name in enumerate(FEATURES)}

NEAR, COVERED, SAID = 1.0, 0.4, 0.55
"""The nearness (`embeddings.chance`), the coverage and the MaxSim above which each says more: a text that is so near is
rarely another."""

UNLISTED = 0.45
"""The nearness of a text that is not among the nearest: what unrelated texts have at most."""

SHORT = 16
"""The number of words of a question at which comparing them with other candidates says half as much."""

MEAN_LENGTH = 5.0
"""The logarithm of the number of characters of a usual text."""

CERTAIN = 6.0
"""The negative logit of a chance so small that a text says nothing for its neighbours."""

_SPEAKER = re.compile(r"([^\s:][^:\n]{0,39}): ")
_ME = re.compile(r"\b(?:i|my|me|mine|we|our|us)\b", re.IGNORECASE)
_USER, _ASSISTANT = frozenset({"user", "human"}), frozenset({"assistant", "ai"})

Table = npt.NDArray[np.float64]
"""One row for each candidate, one column for each of the `FEATURES`."""


@dataclass(slots=True)
class Candidate:
    """The evidence of the retrieval arms for a text. `cosine`: None if it is not among the nearest. `waiting`: it has
    no vector yet, so its words stand for its meaning."""

    id: UUID
    cosine: float | None = None
    words: LexicalHit | None = None
    waiting: bool = False


class QuestionParts(NamedTuple):
    """A question as features read it: its text, the times that it names, the recency that counts, and by `chance` the
    cosines that it has with unrelated texts."""

    text: str
    times: Sequence[Period] = ()
    recency: Recency | None = None
    chance: ChanceCosine = USUAL

    @property
    def length(self) -> int:
        """The number of its words that are no stop words."""
        return len(words(self.text))


def own_evidence(candidates: Sequence[Candidate], late: Mapping[UUID, LateScore], question: QuestionParts) -> Table:
    """The table with the features of each text itself."""
    short = SHORT / (SHORT + question.length)
    asked = math.log(question.length + 1)
    rows = []
    for one in candidates:
        said = late.get(one.id)
        maxsim, distinct = (0.0, 0.0) if said is None else said
        meaning = 0.0 if one.waiting else UNLISTED
        if one.cosine is not None:
            meaning = question.chance.nearness(one.cosine)
        coverage = 0.0 if one.words is None else one.words.coverage
        high = max(0.0, meaning - NEAR), max(0.0, coverage - COVERED), max(0.0, maxsim - SAID)
        own = 1.0, 0.0 if one.waiting else asked, meaning, high[0], coverage, high[1], maxsim, high[2]
        rows.append((*own, distinct, distinct * short))
    table = np.zeros((len(candidates), len(FEATURES)))
    if rows:
        table[:, : len(OWN) + len(COMPARED)] = rows
    return table


def add_beside(
    table: Table,
    candidates: Sequence[Candidate],
    rows: Mapping[UUID, CandidateRow],
    beside: Mapping[UUID, Mapping[int, UUID]],
    logits: npt.NDArray[np.float64],
) -> None:
    """Adds the evidence of other texts of the same thread, from the `logits` of each text alone."""
    said = np.maximum(0.0, logits + CERTAIN) / CERTAIN
    flagged = {one.id for one in candidates if (row := rows.get(one.id)) is not None and row.flagged}
    value = {one.id: 0.0 if one.id in flagged else float(x) for one, x in zip(candidates, said, strict=True)}
    threads: dict[tuple[str, str], list[tuple[float, UUID]]] = {}
    for one in candidates:
        row = rows.get(one.id)
        if row is not None and row.thread is not None:
            threads.setdefault((row.namespace, row.thread), []).append((value[one.id], one.id))
    best = {key: sorted(all_, reverse=True)[:3] for key, all_ in threads.items()}
    at = PLACE["before"]
    for place, one in enumerate(candidates):
        row = rows.get(one.id)
        if row is None or row.thread is None:
            continue
        near = beside.get(one.id, {})
        before, after, second_before, second_after = (
            value.get(near[step], 0.0) if step in near else 0.0 for step in (-1, 1, -2, 2)
        )
        preceding = rows.get(near[-1]) if -1 in near else None
        others = [x for x, id_ in best[row.namespace, row.thread] if id_ != one.id]
        table[place, at : at + len(BESIDE)] = (
            before,
            after,
            second_before,
            second_after,
            before if preceding is not None and preceding.asks else 0.0,
            others[0] if others else 0.0,
            others[1] if len(others) > 1 else 0.0,
        )


def add_about(
    table: Table,
    candidates: Sequence[Candidate],
    rows: Mapping[UUID, CandidateRow],
    logits: npt.NDArray[np.float64],
    question: QuestionParts,
) -> None:
    """Adds the features of each text: its speaker, time and length, whether it asks, and whether it begins with a name
    that the best texts contain. The best are those with the highest `logits`."""
    heads = {one.id: rows[one.id].head for one in candidates if one.id in rows}
    first = (candidates[place].id for place in np.argsort(-logits, kind="stable")[:BEST].tolist())
    best = [(id_, rows[id_].said or "") for id_ in first if id_ in rows and not rows[id_].flagged]
    named = led(heads, best, question.text)
    asked = question.text.casefold()
    me = float(_ME.search(question.text) is not None)
    speakers = [speaker(rows[one.id]) if one.id in rows else "" for one in candidates]
    wanted = {name for name in set(speakers) if name and name not in _USER | _ASSISTANT and _names(asked, name)}
    at = PLACE["asks"]
    for place, (one, said) in enumerate(zip(candidates, speakers, strict=True)):
        if (row := rows.get(one.id)) is None:
            continue
        user, assistant = float(said in _USER), float(said in _ASSISTANT)
        length = math.log(row.length + 1) - MEAN_LENGTH
        moment = row.created_at
        table[place, at:] = (
            row.asks,
            max((time.closeness(moment) for time in question.times), default=0.0),
            0.0 if question.recency is None else question.recency.of(moment),
            said in wanted,
            bool(wanted) and said != "" and said not in wanted,
            user,
            assistant,
            user * me,
            assistant * me,
            length,
            user * length,
            assistant * length,
            one.id in named,
            row.flagged,
        )


def speaker(row: CandidateRow) -> str:
    """The speaker of a text, in lower case: its role, or the name before a colon at its start. Empty: nobody."""
    if row.role:
        return row.role.casefold()
    found = _SPEAKER.match(row.head)
    return found.group(1).casefold() if found else ""


def _names(asked: str, name: str) -> bool:
    """True if the question contains the name as a word."""
    at = asked.find(name)
    while at >= 0:
        around = asked[max(0, at - 1) : at], asked[at + len(name) : at + len(name) + 1]
        if not any(one.isalnum() for one in around):
            return True
        at = asked.find(name, at + 1)
    return False
