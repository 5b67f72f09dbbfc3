"""Answers broad questions ("what do you know about me?") with the most telling memories: who the person is, what is
new, and then the projects.

Such a question has no query terms, and its vector is near to nothing in particular. Rules decide which side of a
person a memory is about (`answers.aspects`). The results have no scores: they are a selection, not an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Integer, Uuid, bindparam, func, literal_column, select, union
from sqlalchemy.dialects.postgresql import ARRAY, TEXT

from openmemory.content_policy import secrets
from openmemory.content_policy.injection import LABEL
from openmemory.database.compiled import CompiledStatement
from openmemory.identity.caller import Caller, Default
from openmemory.identity.names import PERSON
from openmemory.memories.models import Category, Memory, MemoryCategory
from openmemory.memories.repository import CATEGORY_NAMES
from openmemory.search.answers.aspects import PERSONAL_CATEGORIES, Aspect, PersonalAspect, aspect_of
from openmemory.search.answers.empty import are, no_memory, note_of
from openmemory.search.answers.readback import log_search, read_best
from openmemory.search.answers.results import ReadRows, overview_results
from openmemory.search.candidates.ruled_rows import allowed_memories, ruled_rows, rules_revision
from openmemory.search.context import SearchContext
from openmemory.search.ranking.linear_model import Ranked
from openmemory.search.ranking.recency import Recency
from openmemory.search.schemas import Method, SearchAnswer
from openmemory.search.sql.acl import RuleSets
from openmemory.search.sql.as_of import as_of_state, findable
from openmemory.search.sql.filter import Shape, by_shape, is_usual, predicate

CANDIDATES = 200
"""The number of newest memories, of most important ones, and of those about a person by their categories, that are
compared. At least twice the number of results."""

IMPORTANCE_WEIGHT = 0.5
"""The weight of importance in the worth of a memory, beside the weight of its aspect (0 to 1)."""

RECENCY_WEIGHT = 0.25
"""The weight of recency. What a person is does not get old, but of two homes the newer one is theirs."""

PROJECT_SHARE = 0.3
"""The share of memories that are not about a person, if there are enough others."""

BROAD = "the query is broad"

UNRATED = 0.5
"""The importance of a memory for which none is stated: useful, like most."""

HALF_LIFE = timedelta(days=90)
"""The time in which recency halves. It is counted back from the newest memory: nothing in an old store is recent."""

REPETITION = 0.9
"""The share of its worth that a memory loses if another one contains all of its words."""

REPEATED_GROUP = 0.6
"""The factor for each chosen memory of the same side of a person, or of the same project."""

REPEATED_PLACE = 0.3
"""The same for home and work, of which a person mostly has one."""

MAX_LEXEMES = 100
"""The number of lexemes of a memory that are compared with others."""

MAX_TEXT = 1_000
"""The number of characters of a text that are read to choose."""


class Telling(NamedTuple):
    """A memory that may be chosen, with what decides that. `text` is its beginning."""

    id: UUID
    created_at: datetime
    importance: float | None
    groups: frozenset[str]
    """Its categories, or its kind."""
    lexemes: frozenset[str]
    flagged: bool = False
    text: str = ""
    namespace: str = PERSON

    @property
    def personal_aspect(self) -> PersonalAspect | None:
        """The side of the person that it is about, if any."""
        return aspect_of(self.text, self.groups, project=self.namespace != PERSON)

    @property
    def subjects(self) -> frozenset[str]:
        """The project that it is about: its namespace, or its categories."""
        return self.groups if self.namespace == PERSON else frozenset({f"namespace {self.namespace}"})


class OverviewScope(NamedTuple):
    """The number of memories that match a query's filters and that the caller may read, and those that may be
    chosen."""

    total: int
    candidates: list[Telling]


def most_telling(candidates: Sequence[Telling], limit: int) -> list[UUID]:
    """The memories to show, in order: about the person, and then, at most `PROJECT_SHARE` of them, about projects.

        worth = (weight of its aspect + IMPORTANCE_WEIGHT · importance + RECENCY_WEIGHT · recency)
            · (1 - REPETITION · overlap) · REPEATED_GROUP ^ repeats

    They are chosen one by one (maximal marginal relevance, Carbonell and Goldstein 1998): `overlap` is the largest
    share of lexemes in common with a memory that was chosen before, and `repeats` counts the chosen ones about the same
    side of the person, or the same project. Memories that are flagged as prompt injection or hold a secret follow after
    all others.
    """
    if not candidates:
        return []
    recency = Recency(HALF_LIFE, max(one.created_at for one in candidates))
    personal, others, withheld_memories = list[Telling](), list[Telling](), list[Telling]()
    sides: dict[UUID, PersonalAspect] = {}
    for one in candidates:
        if one.flagged:
            withheld_memories.append(one)
        elif (side := one.personal_aspect) is None:
            others.append(one)
        else:
            sides[one.id] = side
            personal.append(one)

    def worth(one: Telling) -> float:
        side = sides.get(one.id)
        importance = UNRATED if one.importance is None else one.importance
        new = RECENCY_WEIGHT * recency.of(one.created_at)
        return (0.0 if side is None else side.weight) + IMPORTANCE_WEIGHT * importance + new

    def repetition(one: Telling, other: Telling) -> float:
        if one.id not in sides:
            return REPEATED_GROUP if one.subjects & other.subjects else 1.0
        aspect = sides[one.id].aspect
        if aspect is not sides[other.id].aspect or aspect is Aspect.OTHER:
            return 1.0
        return REPEATED_PLACE if aspect in (Aspect.HOME, Aspect.WORK) else REPEATED_GROUP

    people = _select(personal, limit, worth, repetition, withheld_memories)
    most = limit if not people else max(int(limit * PROJECT_SHARE), limit - len(people))
    projects = _select(others, most, worth, repetition, withheld_memories)
    selection = people[: limit - len(projects)] + projects
    withheld_memories.sort(key=worth, reverse=True)
    return [one.id for one in (*selection, *withheld_memories)][:limit]


def _select(
    rest: list[Telling],
    limit: int,
    worth: Callable[[Telling], float],
    repetition: Callable[[Telling, Telling], float],
    withheld_memories: list[Telling],
) -> list[Telling]:
    """Returns the best memories, at most `limit`. It adds those with a secret to `withheld_memories` instead."""
    worths = {one.id: worth(one) for one in rest}
    # What overlap leaves, and the product of the factors for repeated subjects.
    factors = {one.id: (1.0, 1.0) for one in rest}
    selection: list[Telling] = []
    while rest and len(selection) < limit:
        best = max(rest, key=lambda one: worths[one.id] * factors[one.id][0] * factors[one.id][1])
        rest = [one for one in rest if one is not best]
        if secrets.find(best.text):
            withheld_memories.append(best)
            continue
        selection.append(best)
        for one in rest:
            distinct, repeats = factors[one.id]
            distinct = min(distinct, 1 - REPETITION * _overlap(one.lexemes, best.lexemes))
            factors[one.id] = distinct, repeats * repetition(one, best)
    return selection


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of the lexemes of the shorter text that the other contains too."""
    shorter = min(len(one), len(other))
    return len(one & other) / shorter if shorter else 0.0


def _selection(total: int, count: int) -> str:
    if count == total:
        return f"there {are(total)}, the most telling first"
    return f"there {are(total)}, of which these {count} are the most telling"


async def overview_answer(context: SearchContext, why: str | None = None) -> SearchAnswer:
    """The most telling memories that match the filters of the query, and a log of each access. `why` is the reason for
    an overview."""
    scope = await _scope_of(context, context.limit)
    if not scope.candidates:
        return await no_memory(context, Method.OVERVIEW)
    read_rows = ReadRows(context.limit)
    ids = most_telling(scope.candidates, context.limit)
    hits = [Ranked(id_, 1 - place / len(ids)) for place, id_ in enumerate(ids)]
    read_rows.add_round(hits, None)
    await read_best(context, hits, Method.OVERVIEW, read_rows)
    if not read_rows.rows:  # they have changed meanwhile
        await log_search(context, Method.OVERVIEW)
    best = [hit for hit in hits if hit.id in read_rows.rows]
    note = note_of(why, _selection(scope.total, len(best)))
    return SearchAnswer(overview_results(read_rows, best), Method.OVERVIEW, note)


async def _scope_of(context: SearchContext, limit: int) -> OverviewScope:
    """Reads the memories that an overview of `limit` memories may show."""
    values = {"size": max(CANDIDATES, 2 * limit), "personal": list(PERSONAL_CATEGORIES)}
    async with context.database.statement() as tx:
        rows = await ruled_rows(tx, context, _statement, values)
    return OverviewScope(rows[0][0], list(_candidates(row[1:] for row in rows if row[1] is not None)))


def _candidates(rows: Iterable[Sequence[Any]]) -> Iterable[Telling]:
    for id_, created_at, importance, kind, labels, namespace, text, categories, lexemes in rows:
        groups = frozenset(categories or (kind,))
        yield Telling(id_, created_at, importance, groups, frozenset(lexemes), LABEL in labels, text, namespace)


@by_shape
def _statement(owner: bool, default: Default, as_then: bool, sets: RuleSets, shape: Shape) -> CompiledStatement:
    """The revision of the rules, the number of memories, and the newest ones, the most important ones, and the newest
    ones of categories about a person: one row for each, and at least one."""
    caller = Caller.anyone(owner=owner, default=default)
    was = as_of_state(caller) if as_then else None
    source, may_find = findable(caller, was, allowed_memories(sets))
    user = bindparam("caller_user_id", type_=Uuid())
    mine = Memory.user_id == user, may_find, predicate(shape)
    size = bindparam("size", type_=Integer())
    # All are counted, so they are looked up once.
    all_columns = select(Memory.id, Memory.created_at, Memory.importance).select_from(source).where(*mine)
    matching_rows = all_columns.cte("every").prefix_with("MATERIALIZED")
    ids = select(matching_rows.c.id)
    by_time = matching_rows.c.created_at.desc(), matching_rows.c.id.desc()
    newest = ids.order_by(*by_time).limit(size).subquery("newest")
    rated_rows = ids.where(matching_rows.c.importance > literal_column(str(UNRATED)))
    important = rated_rows.order_by(matching_rows.c.importance.desc(), *by_time).limit(size).subquery("important")
    about = (
        select(MemoryCategory.memory_id)
        .join(Category, Category.id == MemoryCategory.category_id)
        .where(MemoryCategory.user_id == user, Category.name == func.any(bindparam("personal", type_=ARRAY(TEXT))))
    )
    personal = ids.where(matching_rows.c.id.in_(about)).order_by(*by_time).limit(size).subquery("personal")
    some = union(select(newest.c.id), select(important.c.id), select(personal.c.id)).subquery("some")
    lexemes = literal_column(f"(tsvector_to_array(memories.words))[1:{MAX_LEXEMES}]", ARRAY(TEXT))
    # As of a time, the text of then. A caller may not have been able to read the present one.
    selected_rows = Memory.__table__.join(some, some.c.id == Memory.id)
    content: Any = Memory.content
    if was is not None:
        content = was.content
        for part in was.laterals:
            selected_rows = selected_rows.join(part, literal_column("true"), isouter=True)
    candidates = (
        select(
            Memory.id,
            Memory.created_at,
            Memory.importance,
            Memory.kind,
            Memory.labels,
            Memory.namespace,
            func.left(content, literal_column(str(MAX_TEXT))).label("text"),
            CATEGORY_NAMES.label("categories"),
            lexemes.label("lexemes"),
        )
        .select_from(selected_rows)
        .subquery("candidates")
    )
    total = select(func.count().label("total")).select_from(matching_rows).subquery("counted")
    statement = (
        select(rules_revision(owner), total.c.total, *candidates.c)
        .select_from(total.join(candidates, literal_column("true"), isouter=True))
        .order_by(candidates.c.created_at.desc(), candidates.c.id.desc())
    )
    return CompiledStatement(statement, plain=True, prepare=is_usual(shape))
