from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import func, update

from openmemory.access.schemas import GrantCreate
from openmemory.audit.schemas import AuditAction, AuditQuery
from openmemory.embeddings.cache import CachedEmbedder
from openmemory.embeddings.port import EmbedderUnavailable, QueryEmbedding, TextEmbedding
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.index.port import Hit, IndexUnavailable
from openmemory.index.space import Space, Spaces
from openmemory.memories.models import Memory
from openmemory.memories.schemas import MemoryCreate
from openmemory.search.ranking.linear_model import logit
from openmemory.search.schemas import Method, SearchQuery
from openmemory.search.service import Search
from openmemory.services import Services


class AwayEmbedder:
    model = "away"
    chunking = "away"
    tokenwise = False

    async def dimension(self) -> int:
        raise EmbedderUnavailable("away")

    async def query(self, _: str) -> QueryEmbedding:
        raise EmbedderUnavailable("away")

    async def chunks(self, _: Sequence[str]) -> list[int]:
        raise EmbedderUnavailable("away")

    async def documents(self, _: Sequence[str]) -> list[TextEmbedding]:
        raise EmbedderUnavailable("away")

    async def close(self) -> None:
        return None


class AwayIndex:
    async def search(self, *_: object) -> list[Hit]:
        raise IndexUnavailable("away")

    async def search_words(self, *_: object) -> list[Hit]:
        raise IndexUnavailable("away")


Searching = Callable[..., Search]


@pytest.fixture
async def searching(services: Services) -> AsyncIterator[Searching]:
    """Make a search over another embedder or another index."""
    made: list[Space] = []

    def make(embedder=None, index=None) -> Search:
        model = services.embedder if embedder is None else CachedEmbedder(embedder)
        made.append(Space(model, index or services.index))
        return Search(services.database, Spaces(made[-1]), services.settings, services.rates)

    yield make
    for space in made:
        await space.embedder_breaker.close()
        await space.index_breaker.close()


async def delivered(services: Services, caller: Caller, *texts: str, **fields) -> list:
    added = await services.memories.add_many(caller, [MemoryCreate(text=text, **fields) for text in texts])
    await services.outbox_delivery.drain()
    return [one.id for one in added]


async def test_an_answer_carries_its_method_scores_and_parts(services: Services, app_caller: Caller):
    await delivered(services, app_caller, "I am allergic to peanuts.", "My bicycle is red.")
    answer = await services.search.search(app_caller, SearchQuery("peanut allergy"))
    best = answer.results[0]
    assert answer.search_method is Method.HYBRID
    assert answer.note is None
    assert best.memory == "I am allergic to peanuts."
    assert 0 < best.score <= 1
    assert best.parts.bm25 is not None
    assert best.parts.bm25 > 0
    assert best.parts.cosine is not None
    assert -1 <= best.parts.cosine <= 1
    parts = best.parts
    assert parts.base + parts.dense + parts.lexical + parts.late + parts.text == pytest.approx(logit(best.score))
    assert [r.score for r in answer.results] == sorted((r.score for r in answer.results), reverse=True)


async def test_meaning_finds_what_shares_no_word(services: Services, app_caller: Caller):
    ids = await delivered(services, app_caller, "My dog's name is Biscuit.", "The invoice is due on Friday.")
    answer = await services.search.search(app_caller, SearchQuery("what pets do I own"))
    assert answer.results[0].id == ids[0]
    assert answer.results[0].parts.bm25 is None


async def test_a_caller_who_may_read_k_of_many_gets_k(services: Services, new_user: str):
    owner = await services.directory.caller(new_user, None, owner=True)
    claude = await services.directory.caller(new_user, "claude")
    await delivered(services, owner, *(f"tea note {n}" for n in range(300)), namespace="private")
    allowed = await delivered(services, owner, *(f"tea {n} with a long tail of other words" for n in range(7)))
    await services.grants.create(
        owner, GrantCreate(app="claude", effect="deny", object_type="namespace", object="private")
    )
    answer = await services.search.search(claude, SearchQuery("tea note", limit=7, everything=True))
    assert {result.id for result in answer.results} == set(allowed)


async def test_signs_are_found_without_the_model(services: Services, app_caller: Caller, searching: Searching):
    ids = await delivered(services, app_caller, "the arrow => maps a key", "My bicycle is red.")
    search = searching(AwayEmbedder())
    answer = await search.search(app_caller, SearchQuery("=>", explain=True))
    assert [result.id for result in answer.results] == ids[:1]
    assert answer.explanation is not None
    assert answer.explanation.embedded is None


async def test_filters_restrict_both_arms(services: Services, owner: Caller):
    old = datetime(2023, 1, 1, tzinfo=UTC)
    work = await delivered(services, owner, "tea at work", namespace="work", thread_id="t", kind="note", created_at=old)
    await delivered(services, owner, "tea at home", categories=("drinks",))

    async def found(**filters) -> list[str]:
        answer = await services.search.search(owner, SearchQuery("tea", **filters))
        return [result.memory for result in answer.results]

    assert await found(namespaces=("work",)) == ["tea at work"]
    assert await found(threads=("t",)) == ["tea at work"]
    assert await found(kinds=("note",)) == ["tea at work"]
    assert await found(categories=("drinks",)) == ["tea at home"]
    assert await found(created_to=old + timedelta(days=1)) == ["tea at work"]
    assert await found(created_from=old + timedelta(days=1)) == ["tea at home"]
    assert len(work) == 1


@pytest.mark.parametrize(
    ("embedder", "index", "note"),
    [
        (AwayEmbedder(), None, "Using text search (embedder unavailable)"),
        (None, AwayIndex(), "Using text search (vector store unavailable)"),
    ],
)
async def test_without_vectors_words_answer_and_the_answer_says_so(
    services: Services, app_caller: Caller, searching: Searching, embedder, index, note: str
):
    ids = await delivered(services, app_caller, "I am allergic to peanuts.")
    search = searching(embedder, index)
    for _ in range(10):
        answer = await search.search(app_caller, SearchQuery("peanuts"))
        assert answer.search_method == "database_text"
        assert answer.note == note
        assert [result.id for result in answer.results] == ids


@pytest.mark.parametrize("text", ["", "  ", "x" * 4001, "nul\x00", "\ud800"])
async def test_a_query_that_cannot_be_used_is_refused(services: Services, app_caller: Caller, text: str):
    with pytest.raises(Invalid, match="query"):
        await services.search.search(app_caller, SearchQuery(text))


@pytest.mark.parametrize("limit", [0, -1, 101, 10**12])
async def test_an_absurd_limit_is_refused_with_the_range(services: Services, app_caller: Caller, limit: int):
    with pytest.raises(Invalid, match="limit: must be from 1 to 100"):
        await services.search.search(app_caller, SearchQuery("tea", limit=limit))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["'", "\\", "a & | ! ( ) : *", "'; DROP TABLE memories; --", "%_%", "the of and", "?", "日本語", "😀", "a" * 4000,
     "<script>", "NOT AND OR", "::uuid", "100%", "foo_bar-12", "\u202e", "e\u0301"],
)  # fmt: skip
async def test_any_query_answers(services: Services, app_caller: Caller, text: str):
    await delivered(services, app_caller, "foo_bar-12 is the build tag, 100% sure, 日本語 😀")
    answer = await services.search.search(app_caller, SearchQuery(text))
    if text in ("日本語", "😀", "100%", "foo_bar-12", "the of and", "?"):
        assert len(answer.results) == 1
    else:
        assert len(answer.results) == 1 or "in the only memory that you may read" in (answer.note or "")


@pytest.mark.parametrize("text", ["foo_bar-12", "日本語", "oo_bar", "ELEPHANT", "Élodie", "Москва"])
async def test_identifiers_parts_and_other_scripts_are_found_without_vectors(
    services: Services, app_caller: Caller, searching: Searching, text: str
):
    ids = await delivered(services, app_caller, "foo_bar-12 日本語 elephant élodie москва", "an unrelated line")
    search = searching(AwayEmbedder())
    answer = await search.search(app_caller, SearchQuery(text))
    assert [result.id for result in answer.results][:1] == ids[:1]


async def test_nobody_finds_what_another_user_wrote(services: Services, app_caller: Caller):
    other = await services.directory.caller(app_caller.user + "-other", "claude")
    await delivered(services, app_caller, "the vault opens with 0451")
    assert (await services.search.search(other, SearchQuery("the vault opens with 0451"))).results == []


async def test_own_app_restricts_an_app_to_what_it_wrote(services: Services, new_user: str):
    claude = await services.directory.caller(new_user, "claude")
    cursor = await services.directory.caller(new_user, "cursor")
    await delivered(services, claude, "tea by claude")
    await delivered(services, cursor, "tea by cursor")
    answer = await services.search.search(replace(claude, default="own_app"), SearchQuery("tea"))
    assert [result.memory for result in answer.results] == ["tea by claude"]


async def test_results_stand_in_the_order_of_their_scores_however_often_it_was_widened(
    services: Services, new_user: str, owner: Caller
):
    claude, cursor = [await services.directory.caller(new_user, app) for app in ("claude", "cursor")]
    await delivered(services, cursor, *(f"coffee fence coffee bolt number {n}" for n in range(120)))
    allowed = ["coffee", "the fence is long and has to be painted", "a bolt", "coffee and a bolt", "fence and bolt"]
    await delivered(services, claude, *allowed)
    await services.grants.create(owner, GrantCreate(app="claude", effect="deny", object_type="app", object="cursor"))
    answer = await services.search.search(claude, SearchQuery("coffee fence bolt", limit=5, everything=True))
    assert {result.memory for result in answer.results} == set(allowed)
    scores = [result.score for result in answer.results]
    assert scores == sorted(scores, reverse=True)


async def test_whole_words_that_are_denied_do_not_hide_a_part_of_a_word_that_may_be_read(
    services: Services, app_caller: Caller, owner: Caller, searching: Searching
):
    await delivered(services, owner, *(f"kubernetes note {n}" for n in range(12)), namespace="private")
    [allowed] = await delivered(services, owner, "microkubernetes cluster")
    await services.grants.create(
        owner, GrantCreate(app="claude", effect="deny", object_type="namespace", object="private")
    )
    search = searching(AwayEmbedder())
    answer = await search.search(app_caller, SearchQuery("kubernetes"))
    assert [result.id for result in answer.results] == [allowed]


async def test_what_neither_holds_a_word_of_the_query_nor_is_about_it_is_not_found(
    services: Services, app_caller: Caller
):
    await delivered(services, app_caller, "The harbour was closed because of the storm", "My sister plays the cello")
    for text in ("quarterly tax invoice", "zxqv wjkp"):
        answer = await services.search.search(app_caller, SearchQuery(text))
        assert (answer.results, answer.search_method) == ([], Method.HYBRID)
        assert answer.note == f"Nothing was found for “{text}” in the 2 memories that you may read"
    [found] = (await services.search.search(app_caller, SearchQuery("musical instruments in the family"))).results
    assert "cello" in found.memory


async def test_the_floor_is_a_setting(services: Services, app_caller: Caller):
    await delivered(services, app_caller, "The harbour was closed because of the storm", "My sister plays the cello")
    for floor, count in ((-1.0, 2), (0.95, 0)):
        settings = services.settings.model_copy(
            update={"search": services.settings.search.model_copy(update={"floor": floor})}
        )
        search = Search(services.database, services.spaces, settings, services.rates)
        answer = await search.search(app_caller, SearchQuery("quarterly tax invoice", everything=True))
        assert (answer.search_method, len(answer.results)) == (Method.HYBRID, count)


async def test_a_search_that_may_show_none_of_its_hits_is_one_event_of_the_audit_log(services: Services, owner: Caller):
    [id_] = await delivered(services, owner, "I am allergic to peanuts.")

    async def searched() -> list[tuple[int, list[UUID] | None]]:
        await services.search.search(owner, SearchQuery("Which nuts can I not eat?"))
        events = (await services.audit.read(owner, AuditQuery((AuditAction.MEMORY_SEARCH,)))).events
        return [(event.count, event.objects) for event in events]

    assert await searched() == [(1, [id_])]
    async with services.database.transaction() as tx:  # the index does not hear of it
        await tx.execute(update(Memory).where(Memory.id == id_).values(expires_at=func.now()))
    assert await searched() == [(0, None), (1, [id_])]
