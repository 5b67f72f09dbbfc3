"""Words that are written in one, numbers, dates, accents and scripts; phrases and slips."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import text

from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.search.candidates.lexical import LexicalHit, search
from openmemory.search.query.text import lexemes
from openmemory.search.sql.lexical_filter import LexicalFilter
from openmemory.services import Services

OTHERS = ("The garden needs water", "A violin stands in the hall", "Breakfast is at eight")


async def remember(services: Services, caller: Caller, *texts: str) -> list[UUID]:
    return [one.id for one in await services.memories.add_many(caller, [MemoryCreate(text=one) for one in texts])]


async def look(services: Services, caller: Caller, query: str, enough: int = 0) -> list[LexicalHit]:
    """By whole words alone, unless more are asked for."""
    async with services.database.statement() as tx:
        return await search(tx, query, LexicalFilter(caller.user_id), 10, enough=enough)


async def words(services: Services, content: str, language: str = "english") -> dict[str, bool]:
    """The lexemes of a text, and whether they have a place."""
    async with services.database.statement() as tx:
        sql = """
            SELECT lexeme, positions IS NOT NULL AS placed
            FROM unnest(lexical_words(CAST(:language AS regconfig), :content))
        """
        rows = await tx.execute(text(sql), {"language": language, "content": content})
        return {row.lexeme: row.placed for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("memory", "queries"),
    [
        ("The function getUserById reads it", ["getUserById", "user by id", "get_user_by_id", "getuserbyid"]),
        ("We get the user by id", ["getUserById", "get-user-by-id"]),
        ("The column is called user_id", ["user_id", "userId", "UserID", "user id"]),
        ("HTTPServer2 listens here", ["HTTPServer2", "http server", "httpserver2"]),
        ("It is kebab-case", ["kebab-case", "kebabCase", "kebab", "case"]),
        ("See src/app/main.py", ["src/app/main.py", "main.py", "main py", "app main"]),
        (r"Stored in C:\data\notes.txt", [r"C:\data\notes.txt", "notes.txt", "data notes"]),
        ("Release v2.3.1 is out", ["v2.3.1", "2.3.1", "version 2.3", "V2.3.1"]),
        ("Python 1.10 came later", ["1.10", "python 1.10"]),
        (
            "Request 550e8400-e29b-41d4-a716-446655440000 failed",
            ["550e8400-e29b-41d4-a716-446655440000", "550e8400", "446655440000"],
        ),
        ("Ticket ABC-1234 is closed", ["ABC-1234", "abc 1234", "abc1234", "1234"]),
        ("Commit 9f86d081884c7d65 broke it", ["9f86d081884c7d65", "9F86D081884C7D65"]),
        ("Write to bob.smith@example.com", ["bob.smith@example.com", "smith", "example.com"]),
        ("https://example.com/docs/setup?page=1", ["example.com/docs", "docs setup", "https://example.com/docs/setup"]),
        ("Rent is $1,200", ["1200", "$1,200", "1,200"]),
        ("It cost 1200 in all", ["$1,200"]),
        ("The deadline is 2023-05-08", ["8 May 2023", "May 8th", "May 8, 2023", "2023/05/08", "May 2023"]),
        ("Her birthday is on May 8th", ["8 May", "May 8", "8th of May"]),
        ("We met on 8 May 2023", ["2023-05-08", "May 8th"]),
        ("He writes C++ all day", ["c++"]),
        ("Bought 10kg of rice", ["10 kg", "10kg"]),
        ("The mom/dad group meets", ["dad group", "mom"]),
        ("The list is a List<String>", ["string"]),
        ("We sat in the café", ["cafe", "café", "CAFÉ"]),
        ("We sat in the cafe", ["café"]),
        ("Der Łukasz kam", ["lukasz"]),
        ("Ёлка стоит в углу", ["елка", "ёлка"]),
        ("東京タワーに行きました", ["東京", "東京タワー"]),
        ("서울에서 만났다", ["서울"]),
        ("\uff21\uff22\uff23 in wide letters", ["abc"]),
    ],
)
async def test_a_memory_is_found_by_the_whole_and_by_its_parts(
    services: Services, app_caller: Caller, memory: str, queries: list[str]
):
    (wanted,) = await remember(services, app_caller, memory)
    await remember(services, app_caller, *OTHERS)
    for query in queries:
        assert len(await words(services, query)) <= lexemes(query)
        hits = await look(services, app_caller, query)
        assert [hit.id for hit in hits] == [wanted], query
        assert not hits[0].partial


@pytest.mark.parametrize(
    ("query", "exact", "others"),
    [
        ("getUserById", "getUserById is slow", ["we get a user by their id", "the user is slow", "by id"]),
        ("user_id", "the user_id column", ["the user has an id", "the id of the user"]),
        ("v2.3.1", "release v2.3.1", ["release v2.3.10", "release 2.3", "release v23.1"]),
        ("1.10", "python 1.10", ["python 1.1", "python 110"]),
        ("ABC-1234", "ticket ABC-1234", ["ticket ABC-1235", "ticket XYZ-1234", "abc and then 1234"]),
        ("café", "the café closes", ["the cafe closes"]),
        ("2023-05-08", "due 2023-05-08", ["due 2023-08-05", "due 2023-05-09", "due in May"]),
        ("C++", "uses C++ daily", ["uses C daily", "uses C# daily"]),
    ],
)
async def test_the_exact_one_comes_first(
    services: Services, app_caller: Caller, query: str, exact: str, others: list[str]
):
    *_, wanted = await remember(services, app_caller, *others, exact)
    hits = await look(services, app_caller, query)
    assert hits[0].id == wanted
    assert len(hits) == 1 or hits[0].score > hits[1].score


async def test_what_is_added_to_words_makes_no_text_longer_and_counts_once(services: Services, app_caller: Caller):
    made = await words(services, "user_id userId user_id is read")
    assert made == {"user": True, "id": True, "read": True, "userid": False}
    (id_,) = await remember(services, app_caller, "user_id userId user_id is read")
    async with services.database.statement() as tx:
        count = await tx.scalar(text("SELECT word_count FROM memories WHERE id = :id"), {"id": id_})
    assert count == 3


async def test_a_changed_text_has_its_own_words(services: Services, app_caller: Caller):
    (id_,) = await remember(services, app_caller, "the tiger sleeps")
    await services.memories.update(app_caller, id_, MemoryUpdate(text="the lion_cub sleeps"))
    assert await look(services, app_caller, "tiger") == []
    assert [hit.id for hit in await look(services, app_caller, "lionCub")] == [id_]


async def test_what_holds_a_quoted_phrase_comes_first(services: Services, app_caller: Caller):
    await remember(services, app_caller, *(f"machine learning {word} learning machine" for word in ("a1", "b2", "c3")))
    scattered, phrase = await remember(
        services,
        app_caller,
        "the review of the annual plan, a budget review and the plan for the offsite budget, once annual",
        "after a long time and many other words somebody said that there was an annual budget in some other year",
    )
    assert (await look(services, app_caller, "review plan offsite annual budget"))[0].id == scattered
    hits = await look(services, app_caller, 'review plan offsite "annual budget"')
    assert [hit.id for hit in hits[:2]] == [phrase, scattered]
    assert hits[0].score > 1.5 * hits[1].score
    assert [hit.id for hit in await look(services, app_caller, 'somebody "long time"')] == [phrase]


@pytest.mark.parametrize("query", ['"', '""', '" "', '"the"', '"a b', '"\\" \'x\' "', '"the of" "it\'s a" x', "« »"])
async def test_no_quotes_break_the_statement(services: Services, app_caller: Caller, query: str):
    await remember(services, app_caller, "it's a x of the thing")
    assert all(hit.score > 0 for hit in await look(services, app_caller, query))


async def test_long_and_odd_texts_have_words(services: Services):
    assert "tiger" in await words(services, "tiger " + "a" * 3_000 + " " + "aB" * 2_000 + " " + "1.2." * 900)
    assert await words(services, "") == {}
    assert await words(services, "… — ' \" \\ _ - / . @ : ++ # <> &amp;") == {"amp": True}
    assert (await words(services, "die Häuser", "german")).keys() == {"haus"}
    assert "houses" in await words(services, "houses", "simple")
