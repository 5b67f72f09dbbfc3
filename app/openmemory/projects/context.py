"""The use case of context packs: reads the state, memories, passages and links of a project, and packs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple
from uuid import UUID

import numpy as np

from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database
from openmemory.dedup.paraphrases import MAX_TEXT_LENGTH, Relation
from openmemory.dedup.sameness import item, sameness
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.identity.names import PERSON
from openmemory.index.space import Spaces
from openmemory.memories import validation
from openmemory.memories.schemas import MemoryRecord
from openmemory.memories.service import Memories
from openmemory.projects import around
from openmemory.projects.anchors import anchor, commit, compared
from openmemory.projects.pack_items import Material
from openmemory.projects.pack_schemas import ContextPack
from openmemory.projects.packing import pack
from openmemory.projects.states import ProjectStates
from openmemory.projects.usage import ReadCounts
from openmemory.search.schemas import PassageResult, SearchQuery, SearchResult
from openmemory.search.service import Search

BUDGET, MAX_BUDGET = 2_500, 10_000
"""The default budget of a pack in tokens, and the largest one."""

MEMORIES, PASSAGES = 10, 4
"""The number of memories and passages that are looked for at least."""

_TOKENS_EACH = 20, 400
"""The tokens of the budget for which one more memory, and one more passage, is looked for."""

_AT_MOST = 50, 12

_MORE = 20
"""The number of memories, and of passages, that are looked for in addition where some are orphans."""

ALIKE = 0.75
"""The cosine from which the words of two memories are compared."""


@dataclass(frozen=True, slots=True)
class ContextQuery:
    """A request for a pack. `about`: a memory from which to start, in place of a question or beside it.

    `clusters`: memories that say the same are shown once. `detail`: `index` shows a line of each item. `head`:
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


class _Gathered(NamedTuple):
    """The memories that a pack may hold: what the search found, and what is related to it."""

    memories: list[SearchResult]
    clusters: Mapping[UUID, Sequence[UUID]]
    links: list[tuple[UUID, str, UUID]]
    orphans: list[SearchResult]
    commits: Mapping[UUID, str]


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

    async def pack(self, caller: Caller, request: ContextQuery) -> ContextPack:
        """The state of a project, and the memories, links and passages that fit a question, within a budget of tokens.

        Memories of the default namespace belong to every project. Everything is what the caller may read, and the
        accesses are logged. The same rows give the same pack.

        Raises:
            Invalid: the budget, the namespace or the question cannot be used, or there is no question.
            NotFound: there is no memory `about`, or the caller may not read it.
        """
        caller.may_read()
        validation.between(request.budget, "budget", 0, MAX_BUDGET)
        head = None if request.head is None else commit(request.head, "head")
        request = replace(request, namespace=validation.name(request.namespace, "namespace", self._limits), head=head)
        about = None if request.about is None else await self._memories.get(caller, request.about)
        question = request.query or (about and about.content[: self._limits.query])
        if question is None:
            raise Invalid("query", "must be a question, or `about` must name a memory")
        # The log keeps the question for those who reach all of these. It may be the text of the memory.
        own = () if about is None or request.query else (about.namespace,)
        namespaces = tuple(dict.fromkeys((request.namespace, PERSON, *own)))
        most, evidence = map(self._search.at_most, _limits(request.budget))
        query = SearchQuery(question, limit=most, namespaces=namespaces)
        (answer, passages), state, (standing, near) = await asyncio.gather(
            self._search.both(caller, query, evidence, explain=request.explain),
            self._states.find(caller, request.namespace),
            self._rules_and_neighbors(caller, namespaces, about),
        )
        every: list[SearchResult | PassageResult] = [*answer.results, *passages.results]
        history = await self._history(caller, request, every)
        if history.orphans:
            # Others take their places.
            more = replace(query, limit=self._search.at_most(most + _MORE))
            most_passages = self._search.at_most(evidence + _MORE)
            answer, passages = await self._search.both(caller, more, most_passages, explain=request.explain)
            every = [*answer.results, *passages.results]
            history = await self._history(caller, request, every)
        results = [one for one in answer.results if one.id not in history.orphans][:most]
        orphans = [one for one in every if one.id in history.orphans]
        passed = [one for one in passages.results if one.id not in history.orphans][:evidence]
        first = [] if about is None else [about.id]
        gathered = await self._read_related(
            caller, request, results, [*first, *near, *standing], without=history.orphans
        )
        notes = [note for note in (answer.note, None if state is None else state.note, history.note) if note]
        material = Material(
            request.namespace, question, state, gathered.memories, passed, gathered.clusters, gathered.links,
            [*orphans, *gathered.orphans], {**history.commits, **gathered.commits}, answer.search_method,
            "; ".join(notes) or None, request.about, near, frozenset(standing), caller.timezone,
        )  # fmt: skip
        # In a thread, because tokens are counted.
        result = await asyncio.to_thread(self._build_pack, material, request)
        self._counts.count(caller, result)
        return result

    async def _rules_and_neighbors(
        self, caller: Caller, namespaces: Sequence[str], about: MemoryRecord | None
    ) -> tuple[list[UUID], dict[UUID, str]]:
        """The rules and preferences of the namespaces, and what is around the memory that the pack is about."""
        async with self._database.statement() as tx:
            rules = await around.standing(tx, caller, namespaces)
            return rules, {} if about is None else await around.around(tx, caller, about)

    async def _read_related(
        self,
        caller: Caller,
        request: ContextQuery,
        results: Sequence[SearchResult],
        more: Sequence[UUID],
        *,
        without: Set[UUID],
    ) -> _Gathered:
        """The results, and after them `more` memories and those that are linked to any of these."""
        space = self._spaces.serving
        memory_ids = list(dict.fromkeys([*(one.id for one in results), *more]))
        async with self._database.statement() as tx:
            links, vectors = await around.related(tx, caller, memory_ids, space.model, vectors=request.clusters)
        missing = dict.fromkeys([*more, *(end for from_id, _, to_id in links for end in (from_id, to_id))])
        there = {*(one.id for one in results), *without}
        # Links and threads may lead to other namespaces, as far as the caller may read.
        extra = await self._search.read(
            caller, SearchQuery(request.query or ""), [id_ for id_ in missing if id_ not in there]
        )
        history = await self._history(caller, request, extra)
        memories = [*results, *(one for one in extra if one.id not in history.orphans)]
        ids = {one.id for one in memories}
        dimension = await space.dimension() if vectors else 0
        clusters = await asyncio.to_thread(_clusters, memories, vectors, dimension)
        orphans = [one for one in extra if one.id in history.orphans]
        trail = [link for link in links if link[0] in ids and link[2] in ids]
        return _Gathered(memories, clusters, trail, orphans, history.commits)

    async def _history(
        self, caller: Caller, request: ContextQuery, results: Sequence[SearchResult | PassageResult]
    ) -> _History:
        """The commits of the memories and messages of the project, and which of them are orphans."""
        mine = (one for one in results if one.namespace == request.namespace)
        commits = {one.id: sha for one in mine if (sha := anchor(one.metadata))}
        if not commits:
            return _History(commits, frozenset(), None)
        async with self._database.statement() as tx:
            reachability = await compared(tx, caller, request.namespace, request.head, sorted(set(commits.values())))
        orphans = (
            set[UUID]() if request.orphans else {id_ for id_, one in commits.items() if reachability.get(one) is False}
        )
        new = sum(one not in reachability and one != request.head for one in commits.values())
        note = f"{new} of the items belong to commits that no client has compared with the checkout."
        return _History(commits, orphans, note if new and request.head else None)

    def _build_pack(self, material: Material, request: ContextQuery) -> ContextPack:
        index = request.detail == "index"
        return pack(material, request.budget, secret=self._secret(), index=index, explain=request.explain)


def _limits(budget: int) -> tuple[int, int]:
    """The number of memories and of passages to look for, so that a large budget can be filled."""
    memories, passages = (budget // each for each in _TOKENS_EACH)
    return min(max(MEMORIES, memories), _AT_MOST[0]), min(max(PASSAGES, passages), _AT_MOST[1])


def _clusters(results: Sequence[SearchResult], vectors: Mapping[UUID, bytes], dimension: int) -> dict[UUID, list[UUID]]:
    """Groups memories that say the same: the id of the one that is shown, and the ids of the others.

    The vectors tell which ones are compared. Of two memories, the better one is shown, unless the other says more.
    Memories with several vectors are in no group.
    """
    size = 4 * dimension
    # A pack shows no flagged memory.
    some = [one for one in results if not one.labels and one.id in vectors and len(vectors[one.id]) == size]
    rows = np.frombuffer(b"".join(vectors[one.id] for one in some), dtype="<f4").reshape(len(some), dimension)
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo("f4").tiny)
    alike = np.triu(units @ units.T >= ALIKE, 1)
    items = [item(one.namespace, one.key, one.memory) if len(one.memory) <= MAX_TEXT_LENGTH else None for one in some]
    stands_for = dict[int, list[int]]()
    seen = set[int]()
    for best, other in zip(*map(np.ndarray.tolist, np.nonzero(alike)), strict=True):
        first, second = items[best], items[other]
        if best in seen or other in seen or first is None or second is None:
            continue
        relation = sameness(first, second).relation
        if relation is not None:
            representative, left_out = (other, best) if relation is Relation.MORE else (best, other)
            stands_for[representative] = [*stands_for.get(representative, ()), left_out, *stands_for.pop(left_out, ())]
            seen.add(left_out)
    return {some[representative].id: [some[one].id for one in others] for representative, others in stands_for.items()}
