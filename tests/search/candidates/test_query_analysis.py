"""The model is not told the words that most of what is searched holds."""

from __future__ import annotations

import pytest

from openmemory.access.rule_cache import RuleCache
from openmemory.access.schemas import GrantCreate
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.search.candidates import query_analysis
from openmemory.search.candidates.query_analysis import MAX_QUERY_WORDS, MIN_MEMORIES, analysed
from openmemory.search.schemas import SearchQuery
from openmemory.search.sql.lexical_filter import LexicalFilter
from openmemory.services import Services


async def talked(services: Services, owner: Caller, number: int = 40, **fields: str) -> None:
    """Every memory names Caroline, every other one Melanie; what they speak of differs."""
    subjects = ["tea", "boats", "rain", "chess", "bread", "stones", "wool"]
    texts = [
        f"Caroline{' to Melanie' if n % 2 else ''}: number {n} on {subjects[n % len(subjects)]}" for n in range(number)
    ]
    await services.memories.add_many(owner, [MemoryCreate(text=said, **fields) for said in texts])  # type: ignore[arg-type]


async def meant(services: Services, caller: Caller, query: str, **where: tuple[str, ...]) -> str:
    async with services.database.statement() as tx:
        return (await analysed(tx, query, LexicalFilter(caller.user_id, **where))).text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("When did Caroline's sister play chess with Melanie?", "When did sister play chess with"),
        ("what about the boats", "what about the boats"),
        ("Caroline Melanie", "Caroline Melanie"),
        ("Caroline", "Caroline"),
        ("who is Caroline", "who is Caroline"),
        ("caroline; chess", "chess"),
        ("Caroline to Melanie: chess", "Caroline to Melanie: chess"),
        ("O'Hara's \x00 chess & (bread) | <-> ! :* Caroline", "O'Hara's chess & (bread) | <-> ! :*"),
        ("", ""),
        ("  ", "  "),
        ("Caroline chess " * MAX_QUERY_WORDS, "Caroline chess " * MAX_QUERY_WORDS),
    ],
)
async def test_common_words_are_left_out_and_nothing_else(services: Services, owner: Caller, query: str, expected: str):
    await talked(services, owner)
    assert await meant(services, owner, query) == expected


async def test_in_a_small_memory_no_word_is_common(services: Services, owner: Caller):
    await talked(services, owner, MIN_MEMORIES - 1)
    assert await meant(services, owner, "Caroline plays chess") == "Caroline plays chess"


async def test_a_word_is_common_where_it_is_searched_for(services: Services, owner: Caller, in_bulk: None):
    await talked(services, owner, namespace="talks")
    await services.memories.add_many(
        owner, [MemoryCreate(text=f"chess problem {n}", namespace="games") for n in range(40)]
    )
    assert await meant(services, owner, "Caroline plays chess", namespaces=("talks",)) == "plays chess"
    assert await meant(services, owner, "Caroline plays chess", namespaces=("games",)) == "Caroline plays"


async def test_what_an_app_may_not_read_does_not_tell_which_words_are_common(
    services: Services, owner: Caller, app_caller: Caller, in_bulk: None
):
    await talked(services, owner, namespace="talks")
    await services.memories.add_many(owner, [MemoryCreate(text=f"stones, number {n}") for n in range(40)])
    rule = GrantCreate(app=app_caller.app, effect="deny", object_type="namespace", object="talks")
    await services.grants.create(owner, rule)
    async with services.database.statement() as tx:
        rules = await RuleCache().of(tx, app_caller)
        where = LexicalFilter(owner.user_id, rules=rules)
        assert (await analysed(tx, "Caroline collects stones", where)).text == "Caroline collects"


async def test_a_name_in_every_memory_does_not_hide_what_the_question_is_about(services: Services, owner: Caller):
    greetings = [f"Caroline: Hello {name}, it is Caroline!" for name in ("Mel", "Jo", "Sam", "Kit", "Ann", "Lee")]
    other = [
        f"Caroline: today I saw a {thing} on the shelf"
        for thing in ["cup", "jar", "pan", "box", "lid", "tin", "fan", "bag"] * 3
    ]
    answer = "Caroline: the doctor said that my blood pressure is too high"
    texts = [*greetings, *(f"{text} {n}" for n, text in enumerate(other)), answer]
    await services.memories.add_many(owner, [MemoryCreate(text=text) for text in texts])
    await services.outbox_delivery.drain()
    [best] = (await services.search.search(owner, SearchQuery("Caroline's health problems", limit=1))).results
    assert best.memory == answer


async def test_widespread_words_are_not_looked_for_beside_rarer_ones(
    services: Services, owner: Caller, monkeypatch: pytest.MonkeyPatch
):
    await talked(services, owner)

    async def looked_for(query: str) -> set[str]:
        async with services.database.statement() as tx:
            found = await analysed(tx, query, LexicalFilter(owner.user_id))
        assert len(found.vector.indices) == len(found.lexemes)
        return {lexeme.text for lexeme in found.lexemes}

    assert await looked_for("Caroline on chess") == {"carolin", "chess"}
    monkeypatch.setattr(query_analysis, "WIDESPREAD", 10)
    assert await looked_for("Caroline on chess") == {"chess"}
    assert await looked_for("Caroline and Melanie") == {"carolin", "melani"}
    assert await looked_for("chess and boats") == {"chess", "boat"}
