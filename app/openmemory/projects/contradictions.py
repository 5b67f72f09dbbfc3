"""Finds the memories of a pack that contradict its state or each other. Pure functions.

The sides of a contradiction come newest first. A newer side is the correction of the older ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple
from uuid import UUID

from openmemory.content_policy.injection import LABEL
from openmemory.dedup.paraphrases import ComparedText
from openmemory.dedup.statements import MAX_LENGTH, StatedValue, is_alike, same_but, statements, under_key
from openmemory.memories.intake import KEYED
from openmemory.projects.schemas import ProjectState
from openmemory.projects.singletons import value_parts
from openmemory.projects.states import leaves
from openmemory.search.schemas import SearchResult
from openmemory.serialization import exact_json

_CACHE_SIZE = 1_024
"""The texts whose statements are kept in memory: packs show the same memories again and again."""


class Side(NamedTuple):
    """One side: its value, and when it was said. `memory_id`: None for the state of the project."""

    memory_id: UUID | None
    value: str | None
    at: datetime


class Contradiction(NamedTuple):
    """Two sides that exclude each other. `about`: a key, a subject, or what makes two sentences differ."""

    about: str
    newer: Side
    older: Side

    @property
    def ids(self) -> set[UUID]:
        """The memories of both sides."""
        return {side.memory_id for side in (self.newer, self.older) if side.memory_id is not None}


class _Stated(NamedTuple):
    statement: StatedValue
    memory: SearchResult


def contradictions(memories: Sequence[SearchResult], state: ProjectState | None) -> list[Contradiction]:
    """The contradictions among these memories and with the state, those with the state first.

    Flagged memories are left out, because a planted text must not become the newer side.
    """
    some = [one for one in memories if LABEL not in one.labels]
    stated = [_Stated(statement, one) for one in some for statement in _statements(one)]
    conflicts = list(_with_state(stated, state)) if state is not None and state.state else []
    conflicts += _by_statements(stated)
    id_sets = {frozenset(each.ids) for each in conflicts}
    return conflicts + list(_by_sentences(some, id_sets))


def corrections(conflicts: Iterable[Contradiction]) -> dict[UUID, UUID]:
    """Maps each memory that a newer one contradicts to the newest of these."""
    newer = dict[UUID, UUID]()
    for one in conflicts:
        if one.newer.memory_id is not None and one.older.memory_id is not None:
            newer.setdefault(one.older.memory_id, one.newer.memory_id)
    return newer


def said_at(memory: SearchResult) -> datetime:
    """The time when a memory got its present text, as far as a result shows it."""
    return max(memory.created_at, memory.updated_at)


@lru_cache(maxsize=_CACHE_SIZE)
def _parse_statements(text: str) -> tuple[StatedValue, ...]:
    return tuple(statements(text))


@lru_cache(maxsize=_CACHE_SIZE)
def _features(text: str) -> ComparedText:
    return ComparedText(text)


def _age(memory: SearchResult) -> tuple[datetime, str]:
    return said_at(memory), str(memory.id)


def _statements(memory: SearchResult) -> Iterator[StatedValue]:
    if memory.kind != KEYED:
        yield from _parse_statements(memory.memory)
        return
    topic, key, value = value_parts(memory.key, memory.memory)
    if (statement := under_key((topic, key), value, value)) is not None:
        yield statement


def _with_state(stated: Sequence[_Stated], state: ProjectState) -> Iterator[Contradiction]:
    """The leaves of the state to which memories give other values.

    A memory that agrees with a leaf does not contradict another one of the same last key.
    """
    of_word = defaultdict[str, list[StatedValue]](list)
    for path, value in leaves(state.state):
        if path and (leaf := under_key(path, value, exact_json.dumps(value).decode())) is not None:
            of_word[min(leaf.last)].append(leaf)
    for statement, memory in stated:
        same = [leaf for word in statement.subject for leaf in of_word[word] if statement.is_about(leaf)]
        differing = [leaf for leaf in same if statement.contradicts(leaf)]
        if len(differing) < len(same):
            differing = [leaf for leaf in differing if leaf.subject == statement.subject]
        for leaf in differing:
            its = Side(memory.id, statement.value, said_at(memory))
            yield _between(leaf.name, Side(None, leaf.value, state.updated_at), its)


def _by_statements(stated: Sequence[_Stated]) -> Iterator[Contradiction]:
    """The subjects to which memories of one namespace give different values: the newest, and those that differ."""
    seen = set[int]()
    order = sorted(range(len(stated)), key=lambda at: _age(stated[at].memory), reverse=True)
    of_word = defaultdict[str, list[int]](list)
    for at in order:
        for word in stated[at].statement.subject:
            of_word[word].append(at)
    for at in order:
        statement, memory = stated[at]
        if at in seen:
            continue
        near = dict.fromkeys(each for word in sorted(statement.last) for each in of_word[word])
        older = [
            each
            for each in near
            if each not in seen
            and stated[each].memory.namespace == memory.namespace
            and _age(stated[each].memory) < _age(memory)
            and statement.contradicts(stated[each].statement)
        ]
        seen.update(older)
        mine, *others = (
            Side(stated[each].memory.id, stated[each].statement.value, said_at(stated[each].memory))
            for each in (at, *older)
        )
        for other in others:
            yield Contradiction(statement.name, mine, other)


def _by_sentences(memories: Sequence[SearchResult], id_sets: set[frozenset[UUID]]) -> Iterator[Contradiction]:
    """Pairs of memories of one namespace that are the same sentence but for a number, a word or a negation."""
    texts = [(one, _features(one.memory)) for one in memories if len(one.memory) <= MAX_LENGTH]
    for (one, first), (other, second) in combinations(texts, 2):
        if one.namespace != other.namespace or not is_alike(first, second) or {one.id, other.id} in id_sets:
            continue
        if about := same_but(first, second):
            yield _between(about, _side_of(one, first, second, about), _side_of(other, second, first, about))


def _side_of(memory: SearchResult, text: ComparedText, other: ComparedText, about: str) -> Side:
    """The side of a sentence: its own numbers, or its own word. None for a negation, which the texts show."""
    own: Mapping[str, Iterable[str]] = {
        "number": text.numbers - other.numbers, "opposite": text.content - other.content,
    }  # fmt: skip
    return Side(memory.id, ", ".join(sorted(own[about])) if about in own else None, said_at(memory))


def _between(about: str, one: Side, other: Side) -> Contradiction:
    newer, older = sorted((one, other), key=lambda side: (side.at, str(side.memory_id)), reverse=True)
    return Contradiction(about, newer, older)
