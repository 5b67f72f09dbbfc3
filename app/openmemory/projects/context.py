"""The use case of context packs: reads the state, memories, passages and links of a project, and packs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple
from uuid import UUID

import numpy as np
from sqlalchemy import Boolean, Uuid

from openmemory.config.settings import LimitSettings
from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Database
from openmemory.dedup.paraphrases import MAX_TEXT_LENGTH, ComparedText, contrary
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.index.space import Spaces
from openmemory.index.sync.entries import array_of
from openmemory.memories import validation
from openmemory.memories.service import Memories
from openmemory.projects import links
from openmemory.projects.anchors import anchor, commit, compared
from openmemory.projects.pack_schemas import ContextPack
from openmemory.projects.packing import Material, pack
from openmemory.projects.states import ProjectStates
from openmemory.projects.usage import ReadCounts
from openmemory.search.brief import GENERAL
from openmemory.search.schemas import PassageResult, SearchQuery, SearchResult
from openmemory.search.service import Search

BUDGET, MAX_BUDGET = 2_500, 10_000
"""The default budget of a pack in tokens, and the largest one."""

MEMORIES, PASSAGES = 10, 4
"""The number of memories and passages that are looked for at least."""

_TOKENS_EACH = 60, 400
"""The tokens of the budget for which one more memory, and one more passage, is looked for."""

_AT_MOST = 50, 12

_MORE = 20
"""The number of memories, and of passages, that are looked for in addition where some are orphans."""

ALIKE = 0.85
"""The cosine from which two memories say nearly the same."""

_TRAIL_AND_VECTORS = CompiledStatement(
    bound(
        f"""
        SELECT trail.*, NULL AS vector FROM ({links.TRAIL}) AS trail
        UNION ALL
        SELECT e.id, NULL, NULL, e.vector
        FROM embeddings AS e JOIN memories AS m ON m.id = e.id AND m.hash = e.text_hash
        WHERE e.kind = 'memory' AND e.model = :model AND e.id = ANY(CAST(:ids AS uuid[])) AND :clusters
        """,  # noqa: S608 - all values are parameters
        {"user": Uuid(), "clusters": Boolean()},
    ),
    plain=True,
    binary=True,
)


@dataclass(frozen=True, slots=True)
class ContextQuery:
    """A request for a pack. `about`: a memory from which to start, in place of a question or beside it.

    `clusters`: memories that say nearly the same are shown once. `detail`: `index` shows a line of each item. `head`:
    the commit that is checked out; by default the one with which the project is registered. `orphans`: memories
    and messages whose commit is not in its history are shown too.
    """

    query: str | None = None
    namespace: str = "default"
    budget: int = BUDGET
    about: UUID | None = None
    detail: Literal["full", "index"] = "full"
    clusters: bool = True
    explain: bool = False
    head: str | None = None
    orphans: bool = False


class _History(NamedTuple):
    """The commits of memories and messages, those whose commit is not in the history, and a note."""

    commits: Mapping[UUID, str]
    orphans: Set[UUID]
    note: str | None


class ContextPacks:
    """Packs what an assistant should know now."""

    def __init__(
        self,
        database: Database,
        spaces: Spaces,
        search: Search,
        states: ProjectStates,
        *,
        memories: Memories,
        counts: ReadCounts,
        limits: LimitSettings,
        secret: Callable[[], bytes],
    ) -> None:
        self._database = database
        self._spaces = spaces
        self._search = search
        self._states = states
        self._memories = memories
        self._counts = counts
        self._limits = limits
        self._secret = secret

    async def pack(self, caller: Caller, asked: ContextQuery) -> ContextPack:
        """The state of a project, and the memories, links and passages that fit a question, within a budget of tokens.

        Memories of the default namespace belong to every project. Everything is what the caller may read, and the
        accesses are logged. The same rows give the same pack.

        Raises:
            Invalid: the budget, the namespace or the question cannot be used, or there is no question.
            NotFound: there is no memory `about`, or the caller may not read it.
        """
        caller.may_read()
        validation.between(asked.budget, "budget", 0, MAX_BUDGET)
        head = None if asked.head is None else commit(asked.head, "head")
        asked = replace(asked, namespace=validation.name(asked.namespace, "namespace", self._limits), head=head)
        about = None if asked.about is None else await self._memories.get(caller, asked.about)
        question = asked.query or (about and about.content[: self._limits.query])
        if question is None:
            raise Invalid("query", "must be a question, or `about` must name a memory")
        namespaces = tuple(dict.fromkeys((asked.namespace, GENERAL)))
        most, evidence = map(self._search.at_most, _limits(asked.budget))
        wanted = SearchQuery(question, limit=most, namespaces=namespaces)
        (found, passages), state = await asyncio.gather(
            self._search.both(caller, wanted, evidence), self._states.find(caller, asked.namespace)
        )
        every: list[SearchResult | PassageResult] = [*found.results, *passages.results]
        history = await self._history(caller, asked, every)
        if history.orphans:
            # Others take their places.
            more = replace(wanted, limit=self._search.at_most(most + _MORE))
            found, passages = await self._search.both(caller, more, self._search.at_most(evidence + _MORE))
            every = [*found.results, *passages.results]
            history = await self._history(caller, asked, every)
        results = [one for one in found.results if one.id not in history.orphans][:most]
        orphans = [one for one in every if one.id in history.orphans]
        evident = [one for one in passages.results if one.id not in history.orphans][:evidence]
        if about is not None:
            results = sorted(results, key=lambda one: one.id != about.id)  # the others keep their order
        values = {
            "user": caller.user_id, "ids": array_of(one.id for one in results),
            "model": self._spaces.serving.model, "clusters": asked.clusters,
        }  # fmt: skip
        async with self._database.statement() as tx:
            rows = await _TRAIL_AND_VECTORS.rows(tx, values)
        trail = sorted((from_id, rel, to_id) for from_id, rel, to_id, _ in rows if to_id is not None)
        vectors = {id_: vector for id_, _, to_id, vector in rows if to_id is None}
        dimension = await self._spaces.serving.dimension() if vectors else 0
        notes = [note for note in (found.note, None if state is None else state.note, history.note) if note]
        clusters = await asyncio.to_thread(_clusters, results, vectors, dimension)
        material = Material(
            asked.namespace, question, state, results, evident, clusters, trail, orphans, history.commits,
            found.search_method, "; ".join(notes) or None, caller.timezone,
        )  # fmt: skip
        # In a thread, because tokens are counted.
        made = await asyncio.to_thread(self._packed, material, asked)
        self._counts.count(caller, made)
        return made

    async def _history(
        self, caller: Caller, asked: ContextQuery, found: Sequence[SearchResult | PassageResult]
    ) -> _History:
        """The commits of the memories and messages of the project, and which of them are orphans."""
        mine = (one for one in found if one.namespace == asked.namespace)
        commits = {one.id: named for one in mine if (named := anchor(one.metadata))}
        if not commits:
            return _History(commits, frozenset(), None)
        async with self._database.statement() as tx:
            known = await compared(tx, caller, asked.namespace, asked.head, sorted(set(commits.values())))
        orphans = set[UUID]() if asked.orphans else {id_ for id_, one in commits.items() if known.get(one) is False}
        new = sum(one not in known and one != asked.head for one in commits.values())
        note = f"{new} of the items belong to commits that no client has compared with the checkout."
        return _History(commits, orphans, note if new and asked.head else None)

    def _packed(self, material: Material, asked: ContextQuery) -> ContextPack:
        index = asked.detail == "index"
        return pack(material, asked.budget, secret=self._secret(), index=index, explain=asked.explain)


def _limits(budget: int) -> tuple[int, int]:
    """The number of memories and of passages to look for, so that a large budget can be filled."""
    memories, passages = (budget // each for each in _TOKENS_EACH)
    return min(max(MEMORIES, memories), _AT_MOST[0]), min(max(PASSAGES, passages), _AT_MOST[1])


def _clusters(results: Sequence[SearchResult], vectors: Mapping[UUID, bytes], dimension: int) -> dict[UUID, list[UUID]]:
    """Groups memories that say nearly the same: the id of the best one, and the ids of the others.

    Memories with several vectors are in no group. Neither are those that contradict the best one by a number, a name,
    a negation or a sign, because vectors hardly tell them apart.
    """
    found, taken = dict[UUID, list[UUID]](), set[UUID]()
    size = 4 * dimension
    # A pack shows no flagged memory.
    some = [one for one in results if not one.labels and one.id in vectors and len(vectors[one.id]) == size]
    rows = np.frombuffer(b"".join(vectors[one.id] for one in some), dtype="<f4").reshape(len(some), dimension)
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo("f4").tiny)
    alike = np.triu(units @ units.T >= ALIKE, 1)
    texts = [ComparedText(one.memory) if len(one.memory) <= MAX_TEXT_LENGTH else None for one in some]
    for best, other in zip(*np.nonzero(alike), strict=True):
        first, second = some[best], some[other]
        if first.id in taken or second.id in taken or first.namespace != second.namespace:
            continue
        text, repeated = texts[best], texts[other]
        if text is not None and repeated is not None and not contrary(text, repeated):
            found.setdefault(first.id, []).append(second.id)
            taken.add(second.id)
    return found
