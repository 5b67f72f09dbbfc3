"""The features of the candidates of a search: what speaks for a text, as numbers that mean the same in every search.

A feature describes the text, its thread and the question, not the store or the number of candidates.
Those that compare a candidate with the others are 0 where there are few, and only decide on the order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from openmemory.embeddings.chance import USUAL, ChanceCosine
from openmemory.search.candidates.lexical import LexicalHit
from openmemory.search.candidates.rows import CandidateRow
from openmemory.search.query.periods import Period
from openmemory.search.query.text import words
from openmemory.search.ranking.late_interaction import LateScore
from openmemory.search.ranking.names import BEST, contains, leading_name, second_hop
from openmemory.search.ranking.recency import Recency

OWN = ("base", "question", "meaning", "near", "words", "covered", "tokens", "said")
"""The features of a text itself, which its neighbours in a thread gain from too."""

COMPARED = ("distinct", "distinct_short")
"""The features that compare a text with the other candidates. They decide on the order only: a score means the same in
every store."""

BESIDE = ("before", "after", "second_before", "second_after", "answers", "thread", "second_thread")
"""The evidence of other texts of the same thread."""

ABOUT = (
    "asks", "time", "recency", "speaker", "other_speaker", "user", "assistant", "user_me", "assistant_me", "length",
    "user_length", "assistant_length", "subject", "named", "flagged",
)  # fmt: skip

FEATURES = (*OWN, *COMPARED, *BESIDE, *ABOUT)
"""All features, in the order of the columns."""

PLACE = {name: place for place, name in enumerate(FEATURES)}

NEAR, COVERED, SAID = 1.0, 0.4, 0.55
"""The nearness (`embeddings.chance`), the coverage and the MaxSim above which each says more: a text that is so near is
rarely another."""

UNLISTED = 0.45
"""The nearness of a text that is not among the nearest: what unrelated texts have at most."""

NEARNESS = (0.757, 1.61)
"""The nearness of a text without a vector, by `estimated` from its coverage; at most `NEAR`."""

MAXSIM = (0.0493, 0.109, 0.795)
"""The MaxSim of a text whose tokens were not compared, by `estimated` from its nearness and its coverage."""

SHORT = 16
"""The number of words of a question at which comparing them with other candidates counts half as much."""

MEAN_LENGTH = 5.0
"""The logarithm of the number of characters of a usual text."""

CERTAIN = 6.0
"""The negative logit of a chance so small that a text is no evidence for its neighbours."""

_SPEAKER = re.compile(r"([^\s:][^:\n]{0,39}): ")
_ME = re.compile(r"\b(?:i|my|me|mine|we|our|us)\b", re.IGNORECASE)
_USER, _ASSISTANT = frozenset({"user", "human"}), frozenset({"assistant", "ai"})

_NOT_COMPARED = LateScore(math.nan, 0.0)

Floats = npt.NDArray[np.float64]

Table = npt.NDArray[np.float64]
"""One row for each candidate, one column for each of the `FEATURES`."""


@dataclass(slots=True)
class Candidate:
    """A text and the evidence for it. `cosine`: None if it is not among the nearest. `words`: None if it was not found
    by its words. `waiting`: it has no vector yet. `late`: None if its tokens were not compared. `beside`: the texts
    near to it in its thread, by their steps from it."""

    id: UUID
    cosine: float | None = None
    words: LexicalHit | None = None
    waiting: bool = False
    row: CandidateRow | None = None
    late: LateScore | None = None
    beside: Mapping[int, UUID] = field(default_factory=dict)


class QuestionParts(NamedTuple):
    """The parts of a question that the features depend on. `times`: those that it names. `recency`: how much newer
    memories gain, None if they do not. `chance`: the cosines of the question with unrelated texts."""

    text: str
    times: Sequence[Period] = ()
    recency: Recency | None = None
    chance: ChanceCosine = USUAL

    @property
    def length(self) -> int:
        """The number of its words that are no stop words."""
        return len(words(self.text))


def own_evidence(candidates: Sequence[Candidate], question: QuestionParts) -> Table:
    """The table with the features of each text itself. A text without a vector gets a nearness that is estimated from
    its words. A text whose tokens were not compared gets a MaxSim that is estimated from its nearness and its words."""
    table = np.zeros((len(candidates), len(FEATURES)))
    if not candidates:
        return table
    nearness = question.chance.nearness
    coverage = np.array([0.0 if one.words is None else one.words.coverage for one in candidates])
    meaning = np.array([UNLISTED if one.cosine is None else nearness(one.cosine) for one in candidates])
    if any(one.waiting for one in candidates):
        estimate = np.minimum(estimated(NEARNESS, coverage), NEAR)  # words alone never show that a text is so near
        meaning = np.where([one.waiting for one in candidates], estimate, meaning)
    late = np.array([one.late or _NOT_COMPARED for one in candidates])
    maxsim, distinct = late[:, 0], late[:, 1]
    maxsim = np.where(np.isnan(maxsim), estimated(MAXSIM, meaning, coverage), maxsim)
    length = question.length
    short = SHORT / (SHORT + length)
    own: tuple[float | Floats, ...] = (
        1.0,
        math.log(length + 1),
        meaning,
        np.maximum(0.0, meaning - NEAR),
        coverage,
        np.maximum(0.0, coverage - COVERED),
        maxsim,
        np.maximum(0.0, maxsim - SAID),
        distinct,
        distinct * short,
    )
    for place, values in enumerate(own):
        table[:, place] = values
    return table


def estimated(by: Sequence[float], *features: Floats) -> Floats:
    """Estimates a missing feature by a linear model: a constant, and a weight for each of the other `features`."""
    constant, *weights = by
    estimate: Floats = np.stack(features, axis=1) @ weights + constant
    return estimate


def add_beside(table: Table, candidates: Sequence[Candidate], logits: Floats) -> None:
    """Adds the evidence of other texts of the same thread, from the `logits` of each text alone."""
    thread_texts = [
        (place, one, row) for place, one in enumerate(candidates) if (row := one.row) is not None and row.thread
    ]
    if not thread_texts:
        return
    evidence = (np.maximum(0.0, logits + CERTAIN) / CERTAIN).tolist()
    value, is_question = dict[UUID, float](), dict[UUID, bool]()
    threads: dict[tuple[str, str | None], list[tuple[float, UUID]]] = {}
    for place, one, row in thread_texts:
        is_question[one.id] = row.is_question
        value[one.id] = 0.0 if row.flagged else evidence[place]
        threads.setdefault((row.namespace, row.thread), []).append((value[one.id], one.id))
    best = {key: sorted(all_, reverse=True)[:3] for key, all_ in threads.items()}
    at = PLACE["before"]
    for place, one, row in thread_texts:
        neighbours = one.beside
        before, after, second_before, second_after = (
            value.get(neighbours[step], 0.0) if step in neighbours else 0.0 for step in (-1, 1, -2, 2)
        )
        others = [x for x, id_ in best[row.namespace, row.thread] if id_ != one.id]
        table[place, at : at + len(BESIDE)] = (
            before,
            after,
            second_before,
            second_after,
            before if -1 in neighbours and is_question.get(neighbours[-1]) else 0.0,
            others[0] if others else 0.0,
            others[1] if len(others) > 1 else 0.0,
        )


def add_about(table: Table, candidates: Sequence[Candidate], logits: Floats, question: QuestionParts) -> None:
    """Adds the features of each text: its speaker, time and length, whether it is a question, and whether it begins
    with a name that the question or one of the best texts contains. The best are those with the highest `logits`."""
    placed_rows = [(place, one.row) for place, one in enumerate(candidates) if one.row is not None]
    if not placed_rows:
        return
    places = [place for place, _ in placed_rows]
    rows = dict(placed_rows)
    length = np.log([row.length + 1 for _, row in placed_rows]) - MEAN_LENGTH
    first = [place for place in np.argsort(-logits, kind="stable")[:BEST].tolist() if place in rows]
    best = [(place, rows[place].text or "") for place in first if not rows[place].flagged]
    question_text = question.text.casefold()
    leading_names = {place: name for place, row in placed_rows if (name := leading_name(row.head))}
    subjects = {place for place, name in leading_names.items() if contains(question_text, name.casefold())}
    hop_places = second_hop({place: name for place, name in leading_names.items() if place not in subjects}, best)
    columns: dict[str, Sequence[float] | Floats] = {
        "asks": [row.is_question for _, row in placed_rows],
        "length": length,
        "subject": [place in subjects for place in places],
        "named": [place in hop_places for place in places],
        "flagged": [row.flagged for _, row in placed_rows],
    }
    if question.times:
        columns["time"] = [max(time.closeness(row.created_at) for time in question.times) for _, row in placed_rows]
    if question.recency is not None:
        columns["recency"] = [question.recency.of(row.created_at) for _, row in placed_rows]
    speakers = [speaker(row) for _, row in placed_rows]
    if any(speakers):
        named_speakers = {
            name for name in set(speakers) if name and name not in _USER | _ASSISTANT and contains(question_text, name)
        }
        me = float(_ME.search(question.text) is not None)
        columns["speaker"] = [person in named_speakers for person in speakers]
        columns["other_speaker"] = [
            bool(named_speakers) and person != "" and person not in named_speakers for person in speakers
        ]
        for name, names in (("user", _USER), ("assistant", _ASSISTANT)):
            has_role = np.array([person in names for person in speakers], dtype=np.float64)
            columns |= {name: has_role, f"{name}_me": has_role * me, f"{name}_length": has_role * length}
    for name, values in columns.items():
        table[places, PLACE[name]] = values


def speaker(row: CandidateRow) -> str:
    """The speaker of a text, in lower case: its role, or the name before a colon at its start. Empty: nobody."""
    if row.role:
        return row.role.casefold()
    if ": " not in row.head:
        return ""
    match = _SPEAKER.match(row.head)
    return match.group(1).casefold() if match else ""
