"""Searches under filters: in both arms, however rare the match, and within what the caller may read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from sqlalchemy import literal_column, select, text

from openmemory.access.schemas import GrantCreate
from openmemory.identity.caller import Caller
from openmemory.identity.principal import LOCAL
from openmemory.index.port import Filter, Hit, Point, SparseVector, Vector, VectorIndex
from openmemory.index.space import Space, Spaces
from openmemory.memories.models import Memory
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.search import statistics
from openmemory.search.query.filters import parsed
from openmemory.search.schemas import SearchQuery
from openmemory.search.service import Search
from openmemory.search.sql import compiled_filter
from openmemory.search.sql.filter import filtering, is_usual, predicate
from openmemory.services import Services

BY_WORDS, BY_MEANING = "tea", "beverages"
"""A query whose words the memories hold, and one that shares none with them: what it finds, the vectors found."""


async def found(services: Services, caller: Caller, condition: Any, query: str = BY_WORDS, limit: int = 50) -> set[str]:
    answer = await services.search.search(caller, SearchQuery(query, limit, filter=parsed(condition)))
    assert answer.note is None or not answer.results
    return {result.memory for result in answer.results}


@pytest.fixture
async def kept(services: Services, new_user: str, owner: Caller) -> dict[str, str]:
    """Five memories that differ in all that a filter may ask for; the ids of the apps that wrote them, by name."""
    rows: list[dict[str, Any]] = [
        {"metadata": {"project": "webshop", "priority": 3, "tags": ["a", "b"], "due": "2026-02-01", "in": {"deep": 1}},
         "namespace": "work", "app": "claude", "created_at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"metadata": {"project": "Webshop 100%", "priority": 5.5, "due": "2026-03-01T00:00:00+14:00"},
         "kind": "note", "categories": ("food", "drinks"), "app": "claude", "importance": 0.75},
        {"metadata": {"project": None, "priority": "3", "due": "tomorrow"},
         "thread_id": "t", "app": "cursor", "categories": ("food",)},
        {"metadata": {"project": "日本", "priority": True, "in": {"deep": {"er": "x"}}}, "key": "k", "app": "cursor"},
        {"app": "claude", "namespace": "home"},
    ]  # fmt: skip
    await services.memories.add_many(owner, [MemoryCreate(text=f"tea {n}", **row) for n, row in enumerate(rows)])
    await services.outbox_delivery.drain()
    return {name: str((await services.directory.caller(new_user, name)).app_id) for name in ("claude", "cursor")}


async def test_a_search_compiles_its_filter_once(
    services: Services, owner: Caller, kept: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    compiled = []

    def counted(tree: Any) -> Any:
        compiled.append(tree)
        return filtering(tree)

    monkeypatch.setattr(compiled_filter, "filtering", counted)
    condition = parsed({"NOT": [{"metadata.project": "webshop"}]})
    # More are wanted than there are, so that the candidates are widened.
    for as_of in (None, datetime.now(UTC)):
        query = SearchQuery(BY_WORDS, 50, categories=("food",), filter=condition, as_of=as_of, explain=True)
        answer = await services.search.search(owner, query)
        assert {result.memory for result in answer.results} == {"tea 1", "tea 2"}
    assert len(compiled) == 2


@pytest.mark.slow
@pytest.mark.parametrize("query", [BY_WORDS, BY_MEANING])
async def test_every_condition_holds_in_both_arms(services: Services, owner: Caller, kept: dict[str, str], query: str):
    cases: list[tuple[Any, set[int]]] = [
        ({"metadata.project": "webshop"}, {0}),
        ({"metadata.project": ["webshop", "日本"]}, {0, 3}),
        ({"metadata.project": {"ne": "webshop"}}, {1, 2, 3, 4}),
        ({"metadata.project": {"nin": ["webshop", "日本"]}}, {1, 2, 4}),
        ({"metadata.project": "*"}, {0, 1, 3}),
        ({"metadata.project": {"exists": False}}, {2, 4}),
        ({"metadata.project": {"contains": "shop"}}, {0, 1}),
        ({"metadata.project": {"contains": "0%"}}, {1}),
        ({"metadata.project": {"contains": "_"}}, set()),
        ({"metadata.project": {"icontains": "WEB"}}, {0, 1}),
        ({"metadata.tags": {"contains": "b"}}, {0}),
        ({"metadata.priority": 3}, {0}),
        ({"metadata.priority": "3"}, {2}),
        ({"metadata.priority": True}, {3}),
        ({"metadata.priority": {"gt": 3}}, {1}),
        ({"metadata.priority": {"gte": 3, "lt": 5.5}}, {0}),
        ({"metadata.due": {"gte": "2026-02-01"}}, {0, 1}),
        ({"metadata.due": {"lt": "2026-03-01"}}, {0, 1}),
        ({"metadata.due": {"gte": "2026-03-01"}}, set()),
        ({"metadata.in.deep": 1}, {0}),
        ({"metadata": {"in.deep.er": "x"}}, {3}),
        ({"namespace": "work"}, {0}),
        ({"namespace": ["work", "home"]}, {0, 4}),
        ({"kind": "note"}, {1}),
        ({"thread_id": "t"}, {2}),
        ({"thread_id": None}, {0, 1, 3, 4}),
        ({"key": "k"}, {3}),
        ({"app": "cursor"}, {2, 3}),
        ({"app": {"icontains": "CLAU"}}, {0, 1, 4}),
        ({"app_id": kept["cursor"]}, {2, 3}),
        ({"category": "food"}, {1, 2}),
        ({"category": {"ne": "drinks"}}, {0, 2, 3, 4}),
        ({"categories": {"contains": "rink"}}, {1}),
        ({"category": "*"}, {1, 2}),
        ({"importance": {"gte": 0.5}}, {1}),
        ({"created_at": {"lt": "2026-01-02"}}, {0}),
        ({"updated_at": {"gte": "2020-01-01"}}, {0, 1, 2, 3, 4}),
        ({"OR": [{"thread_id": "t"}, {"metadata.project": "日本"}]}, {2, 3}),
        ({"AND": [{"app": "claude"}, {"NOT": [{"namespace": "home"}, {"kind": "note"}]}]}, {0}),
        ({"not": {"or": [{"app": "claude"}, {"thread_id": "t"}]}}, {3}),
    ]  # fmt: skip
    for condition, expected in cases:
        assert await found(services, owner, condition, query) == {f"tea {n}" for n in expected}, condition


@pytest.mark.slow
async def test_the_largest_filters_are_answered_as_the_others_are(
    services: Services, owner: Caller, kept: dict[str, str]
):
    never = [{"metadata." + ".".join("deep"): {"contains": f"{n}"}} for n in range(45)]
    some = {"metadata.priority": list(range(16))}
    condition = {"AND": [{"NOT": never}, {"OR": [some, {"metadata.project": {"in": [f"{n}" for n in range(100)]}}]}]}
    shape, _ = filtering(parsed(condition))
    assert not is_usual(shape)
    for query in (BY_WORDS, BY_MEANING):
        for _ in range(2):
            assert await found(services, owner, condition, query) == {"tea 0"}
    assert is_usual(
        filtering(parsed({"metadata.a": 1, "metadata.b": [1, 2], "created_at": {"gt": "2026-01-31"}})).shape
    )


async def test_a_filter_and_the_other_ways_to_narrow_a_search_hold_together(
    services: Services, owner: Caller, kept: dict[str, str]
):
    query = SearchQuery("tea", app_ids=(UUID(kept["claude"]),), filter=parsed({"metadata.project": "*"}))
    assert {hit.memory for hit in (await services.search.search(owner, query)).results} == {"tea 0", "tea 1"}
    query = SearchQuery("tea", categories=("drinks",), filter=parsed({"metadata.project": "webshop"}))
    assert (await services.search.search(owner, query)).results == []


async def test_what_is_changed_is_found_as_it_is_now(services: Services, owner: Caller, kept: dict[str, str]):
    answer = await services.search.search(owner, SearchQuery("tea", filter=parsed({"metadata.project": "webshop"})))
    await services.memories.update(owner, answer.results[0].id, MemoryUpdate(metadata={"project": "else"}))
    assert await found(services, owner, {"metadata.project": "webshop"}) == set()
    assert await found(services, owner, {"metadata.project": "else"}) == {"tea 0"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "hostile",
    ["' OR 1=1 --", "'; DROP TABLE memories; --", '"}\') OR true --', "%", "_", "\\", "%' OR '%'='", ":caller_user_id",
     "%(x)s", "{}", "$1", "$.a ? (@ == 1)", "::jsonb", "\u202e", "a'b\"c"],
)  # fmt: skip
async def test_no_value_and_no_name_is_anything_but_itself(services: Services, owner: Caller, hostile: str):
    said = {"metadata": {"said": f"<{hostile}>", hostile.replace(".", ""): "name", "list": [hostile]}}
    await services.memories.add_many(owner, [MemoryCreate(text="tea one", **said), MemoryCreate(text="tea two")])
    one = {"tea one"}
    name = hostile.replace(".", "")
    for condition, expected in (
        ({"metadata.said": f"<{hostile}>"}, one),
        ({"metadata.said": [f"<{hostile}>"] * 20}, one),
        ({"metadata.said": {"contains": hostile}}, one),
        ({"metadata.said": {"icontains": hostile}}, one),
        ({"metadata.said": {"contains": hostile + "x"}}, set()),
        ({"metadata.list": {"contains": hostile}}, one),
        ({f"metadata.{name}": "name"}, one),
        ({f"metadata.{name}": "*"}, one),
        ({f"metadata.{name}": {"gt": 1}}, set()),
        ({f"metadata.said.{name}": "*"}, set()),
        *(({field: hostile}, set()) for field in ("namespace", "app", "category", "kind", "thread_id", "key")),
        *(({field: {"contains": hostile}}, set()) for field in ("namespace", "app", "category", "kind", "thread_id")),
    ):
        assert await found(services, owner, condition) == expected, condition


@pytest.mark.slow
async def test_a_filter_shows_nothing_of_another_user_or_of_what_an_app_may_not_read(
    services: Services, new_user: str, owner: Caller
):
    claude = await services.directory.caller(new_user, "claude")
    cursor = await services.directory.caller(new_user, "cursor")
    other = await services.directory.caller(new_user + "-other", "claude", owner=True)
    said = {"metadata": {"project": "webshop"}, "categories": ("food",)}
    await services.memories.add_many(other, [MemoryCreate(text="tea of somebody else", **said)])
    await services.memories.add_many(cursor, [MemoryCreate(text="tea hidden", namespace="private", **said)])
    await services.memories.add_many(claude, [MemoryCreate(text="tea shown", **said)])
    await services.outbox_delivery.drain()
    rule = GrantCreate(app="claude", effect="deny", object_type="namespace", object="private")
    await services.grants.create(owner, rule)
    bound = replace(owner, principal=replace(LOCAL, namespaces=("default",)))
    for condition in (
        {"metadata.project": "webshop"},
        {"NOT": {"metadata.project": "nothing"}},
        {"OR": [{"namespace": "private"}, {"namespace": "default"}]},
        {"app": ["claude", "cursor"]},
        {"category": "food"},
        {"created_at": {"gte": "2000-01-01"}},
    ):
        for query in (BY_WORDS, BY_MEANING):
            assert await found(services, owner, condition, query) == {"tea hidden", "tea shown"}
            assert await found(services, claude, condition, query) == {"tea shown"}
            assert await found(services, bound, condition, query) == {"tea shown"}
            assert await found(services, other, condition, query) == {"tea of somebody else"}
    assert await found(services, claude, {"namespace": "private"}) == set()


COUNT = compiled_filter.MAX_MATCHES + 1_000
RARE = 3


@pytest.fixture
async def many(services: Services, owner: Caller, in_bulk: None) -> list[UUID]:
    """More memories than are ever listed, all alike, oldest first; the three oldest, stored last, are marked."""
    async with services.database.transaction() as tx:
        await tx.execute(FILL, {"user": owner.user_id, "app": owner.app_id, "count": COUNT, "rare": RARE})
        await statistics.refresh(tx, owner.user_id)
        ids = list(await tx.scalars(OLDEST, {"user": owner.user_id}))
    async with services.database.statement() as tx:
        await tx.execute(text("ANALYZE memories"))
    return ids


@pytest.fixture
async def indexed(services: Services, owner: Caller, many: list[UUID]) -> AsyncIterator[list[UUID]]:
    """The same with vectors: those of the marked ones are the farthest from any question."""
    near = (await services.embedder.query(BY_MEANING)).vector
    noise = np.random.default_rng(7).normal(0, 0.01, (COUNT, near.size)).astype(np.float32)
    vectors = np.where(np.arange(COUNT)[:, None] < RARE, -near, near) + noise
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    points = [
        Point(
            id=id_, user=owner.user_id, app=owner.app_id, namespace="default", kind="memory", revision=1,
            text_hash="x", vectors=vector[None, :],
        )
        for id_, vector in zip(many, vectors, strict=True)
    ]  # fmt: skip
    await services.index.upsert(points)
    yield many
    await services.index.delete(many)


FILL = text("""
insert into memories (user_id, app_id, content, hash, thread_id, created_at, metadata)
select :user, :app, 'tea number ' || i, md5(i::text), case when i <= :rare then 'rare' end,
       now() - interval '10 days' + i * interval '1 s',
       jsonb_build_object('rare', case when i <= :rare then 'yes' else 'no' end, 'number', i, 'source', 'notes')
from generate_series(:count, 1, -1) i
""")
OLDEST = text("select id from memories where user_id = :user order by created_at")


RARELY_MET = [
    {"metadata.rare": "yes"},
    {"metadata.rare": {"icontains": "YES"}},
    {"metadata.number": {"lte": RARE}},
    {"NOT": [{"metadata.rare": "no"}]},
    {"AND": [{"metadata.source": "notes"}, {"OR": [{"metadata.rare": "yes"}, {"metadata.number": -1}]}]},
    {"thread_id": "rare"},
]


@pytest.mark.slow
@pytest.mark.parametrize("query", ["tea", "number tea", "umber"])
async def test_a_rare_match_among_thousands_is_found_by_its_words(
    services: Services, owner: Caller, many: list[UUID], query: str
):
    for condition in RARELY_MET:
        assert await found(services, owner, condition, query, limit=10) == {
            "tea number 1",
            "tea number 2",
            "tea number 3",
        }
    answer = await services.search.search(owner, SearchQuery(query, threads=("rare",)))
    assert {hit.id for hit in answer.results} == set(many[:RARE])


@pytest.mark.slow
async def test_a_rare_match_among_thousands_is_found_by_its_vector_in_one_look(
    services: Services, owner: Caller, indexed: list[UUID], looking: tuple[Search, list[Filter]]
):
    search, looks = looking
    for condition in RARELY_MET:
        answer = await search.search(owner, SearchQuery(BY_MEANING, 10, filter=parsed(condition), everything=True))
        assert {hit.id for hit in answer.results} == set(indexed[:RARE])
        assert all(hit.parts.cosine is not None and hit.parts.cosine < 0 for hit in answer.results)
    assert len(looks) == len(RARELY_MET)
    assert await found(services, owner, {"metadata.rare": "never"}, BY_MEANING) == set()


class Watched:
    """An index that notes what it is asked."""

    def __init__(self, index: VectorIndex, looks: list[Filter]) -> None:
        self._index = index
        self._looks = looks

    async def search(self, vector: Vector, where: Filter, limit: int) -> list[Hit]:
        self._looks.append(where)
        return await self._index.search(vector, where, limit)

    async def search_words(self, words: SparseVector, where: Filter, limit: int) -> list[Hit]:
        return await self._index.search_words(words, where, limit)


@pytest.fixture
async def looking(services: Services) -> AsyncIterator[tuple[Search, list[Filter]]]:
    """A search without a floor, for these vectors mean nothing, and what it asks the index."""
    looks: list[Filter] = []
    without_floor = services.settings.search.model_copy(update={"floor": -1.0})
    settings = services.settings.model_copy(update={"search": without_floor})
    space = Space(services.embedder, Watched(services.index, looks))  # type: ignore[arg-type]
    yield Search(services.database, Spaces(space), settings, services.rates), looks
    await space.embedder_breaker.close()
    await space.index_breaker.close()


@pytest.mark.slow
async def test_a_filter_that_most_memories_meet_leaves_as_many_as_asked_for(
    services: Services, owner: Caller, indexed: list[UUID]
):
    large = {"metadata.rare": "no", "NOT": [{"metadata." + ".".join("deep"): {"contains": f"{n}"}} for n in range(45)]}
    assert not is_usual(filtering(parsed(large)).shape)
    some = {"metadata.number": {"gt": 900}}
    for condition, least in (({"metadata.rare": "no"}, RARE), (some, 900), (large, RARE)):
        query = SearchQuery(BY_MEANING, filter=parsed(condition))
        assert await compiled_filter.compiled_filter(owner, query).matching(services.database) is None
        for words in (BY_WORDS, BY_MEANING):
            shown = await found(services, owner, condition, words, limit=20)
            assert len(shown) == 20
            assert all(int(memory.split()[-1]) > least for memory in shown)


async def test_a_selective_filter_on_metadata_takes_its_index(services: Services, owner: Caller, many: list[UUID]):
    for condition in ({"metadata.number": 7}, {"metadata.number": [7, 8]}, {"metadata": {"rare": "no", "number": 9}}):
        shape, binds = filtering(parsed(condition))
        which = select(Memory.id).where(
            Memory.user_id == owner.user_id, Memory.state == literal_column("'active'::memory_state"), predicate(shape)
        )
        statement = which.compile(dialect=services.database.engine.dialect)
        values = statement.construct_params({**binds, "caller_user_id": owner.user_id})
        async with services.database.planned() as tx:
            plan = "\n".join((await tx.exec_driver_sql(f"EXPLAIN {statement}", values)).scalars())
        assert "idx_memory_metadata" in plan, plan
