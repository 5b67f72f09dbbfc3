from __future__ import annotations

import asyncio
import json
import math
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import text

from openmemory.search.candidates.query_analysis import MAX_LEXEMES
from openmemory.search.service import LONG_QUERY_NOTE, MANY_TIMES_NOTE

SEARCH = "/api/v1/memories/search"


async def texts(client, body) -> list[str]:
    answer = await client.post(SEARCH, json=body)
    assert answer.status_code == 200, answer.text
    return [result["memory"] for result in answer.json()["results"]]


async def test_an_answer_says_what_was_found_and_how_with_offsets_in_its_times(client, new_user, remember):
    row = await remember(new_user, "Alice drinks her coffee black", app="claude", categories=["food"])
    answer = await client.get(SEARCH + "/", params={"user_id": new_user, "query": "coffee", "limit": 3})
    found = answer.json()
    assert list(found) == ["results", "search_method", "note"]
    (result,) = found["results"]
    assert result["id"] == row["id"]
    assert (result["app_name"], result["categories"]) == ("claude", ["food"])
    assert 0 < result["score"] <= 1
    assert datetime.fromisoformat(result["created_at"]).utcoffset() is not None


async def test_an_empty_answer_keeps_its_shape_and_an_overview_has_no_scores(client, new_user, remember):
    await remember(new_user, "My name is Ada")
    nothing = (await client.post(SEARCH, json={"user_id": new_user, "query": "quasar redshift"})).json()
    assert nothing == {
        "results": [],
        "search_method": "hybrid",
        "note": "Nothing was found for “quasar redshift” in the only memory that you may read",
    }
    body = {"user_id": new_user, "query": "who am I?", "explain": True}
    overview = (await client.post(SEARCH, json=body)).json()
    [only] = overview["results"]
    assert (overview["search_method"], only["score"], only["parts"]) == ("overview", None, None)
    assert "explanation" not in only


async def test_only_the_users_own_memories_are_found(client, new_user, remember):
    await remember(f"{new_user}-other", "the coffee of somebody else")
    await remember(new_user, "my coffee")
    assert await texts(client, {"user_id": new_user, "query": "coffee"}) == ["my coffee"]


async def test_an_unknown_user_finds_nothing(client, new_user):
    for app in (None, "claude"):
        answer = await client.post(SEARCH, json={"user_id": new_user, "query": "coffee", "app": app})
        assert (answer.status_code, answer.json()["results"]) == (200, [])
        assert answer.json()["note"] == "There is no memory that you may read"


async def test_an_app_finds_what_its_rules_allow_and_the_user_everything(client, new_user, remember):
    await remember(new_user, "coffee at work", namespace="work")
    await remember(new_user, "coffee at home", namespace="private")
    rule = {"user_id": new_user, "effect": "deny", "app": "cursor", "object_type": "namespace", "object": "private"}
    assert (await client.post("/api/v1/grants", json=rule)).status_code == 201
    body = {"user_id": new_user, "query": "coffee"}
    assert await texts(client, body | {"app": "cursor"}) == ["coffee at work"]
    assert set(await texts(client, body | {"app": "claude"})) == {"coffee at work", "coffee at home"}
    assert set(await texts(client, body)) == {"coffee at work", "coffee at home"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"namespace": "a"}, {"coffee one"}),
        ({"namespaces": ["a", "b"]}, {"coffee one", "coffee two"}),
        ({"namespace": "a", "namespaces": ["b"]}, {"coffee one", "coffee two"}),
        ({"thread_id": "t"}, {"coffee two"}),
        ({"kind": "decision"}, {"coffee three"}),
        ({"categories": ["food"]}, {"coffee three"}),
        ({"from_date": 1577923200, "to_date": 1577923200}, {"coffee two"}),
        ({"filter": {"metadata.n": {"gte": 2}}}, {"coffee two", "coffee three"}),
        ({"filter": {"NOT": [{"kind": "decision"}]}, "namespaces": ["a", "default"]}, {"coffee one"}),
        ({"limit": 1}, None),
        ({"as_of": "2020-01-02"}, {"coffee one", "coffee two"}),
        ({"as_of": "2020-01-02T01:00:00+02:00"}, {"coffee one"}),
    ],
)
async def test_a_search_can_be_narrowed(client, new_user, remember, filters, found):
    one = {"namespace": "a", "metadata": {"n": 1}, "created_at": "2020-01-01T00:00:00Z"}
    two = {"namespace": "b", "thread_id": "t", "metadata": {"n": 2}, "created_at": "2020-01-02T00:00:00Z"}
    three = {"kind": "decision", "categories": ["food"], "metadata": {"n": 3}, "created_at": "2020-01-03T00:00:00Z"}
    for name, more in (("one", one), ("two", two), ("three", three)):
        await remember(new_user, f"coffee {name}", **more)
    result = await texts(client, {"user_id": new_user, "query": "coffee"} | filters)
    assert set(result) == found if found else len(result) == 1


async def test_a_filter_can_stand_in_the_address(client, new_user, remember):
    await remember(new_user, "coffee one", metadata={"project": "é & 100%"})
    await remember(new_user, "coffee two")
    params = {"user_id": new_user, "query": "coffee", "filter": '{"metadata.project": "é & 100%"}'}
    answer = await client.get(SEARCH, params=params)
    assert [result["memory"] for result in answer.json()["results"]] == ["coffee one"]
    for wrong, detail in (("{", "filter: is not valid JSON"), ('{"colour": 1}', "filter.colour: is not a known field")):
        refused = await client.get(SEARCH, params=params | {"filter": wrong})
        assert (refused.status_code, refused.json()["detail"].startswith(detail)) == (422, True)


async def test_a_search_can_be_narrowed_to_what_an_app_wrote(client, new_user, remember):
    row = await remember(new_user, "coffee one", app="claude")
    await remember(new_user, "coffee two", app="cursor")
    assert await texts(client, {"user_id": new_user, "query": "coffee", "app_ids": [row["app_id"]]}) == ["coffee one"]


@pytest.mark.parametrize(
    ("more", "detail"),
    [
        ({"limit": 0}, "limit: input should be greater than or equal to 1"),
        ({"limit": 101}, "limit: must be from 1 to 100, not 101"),
        ({"limit": 10**40}, "limit: must be from 1 to 100"),
        ({"query": ""}, "query: must not be empty or blank"),
        ({"query": "a\x00b"}, "query: must not contain the NUL character"),
        ({"namespcae": "a"}, "namespcae: is not a known field"),
        ({"from_date": 1577923200000}, "from_date: input should be less than or equal to"),
        ({"app_ids": ["x"]}, "app_ids[0]: input should be a valid UUID"),
        ({"filter": []}, "filter: must be a JSON object"),
        ({"filter": {"colour": "red"}}, "filter.colour: is not a known field; valid are namespace, app,"),
        (
            {"filter": {"AND": [{"created_at": {"gte": "soon"}}]}},
            "filter.AND[0].created_at.gte: must be a time such as",
        ),
        ({"as_of": "soon"}, "as_of: input should be a valid datetime"),
        ({"as_of": "2999-01-01"}, "as_of: must lie between 1970 and now"),
        ({"app": " "}, "app: must not be empty or blank"),
    ],
)
async def test_a_search_that_cannot_be_run_is_refused_in_words(client, new_user, remember, more, detail):
    await remember(new_user, "coffee")
    answer = await client.post(SEARCH, json={"user_id": new_user, "query": "coffee"} | more)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(detail)


async def test_an_explanation_is_there_only_where_it_is_asked_for(client, services, new_user, remember):
    await remember(new_user, "Alice drinks her coffee black")
    await services.outbox_delivery.drain()
    body = {"user_id": new_user, "query": "coffee"}
    plain = (await client.post(SEARCH, json=body)).json()
    full = (await client.post(SEARCH, json=body | {"explain": True})).json()
    by_address = (await client.get(SEARCH, params=body | {"explain": "true"})).json()
    assert full == by_address
    assert full["explanation"].keys() >= {"embedded", "left_out", "floor", "times", "candidates"}
    (result,) = full["results"]
    why = result["explanation"]
    assert why["words"].keys() == {"rank", "score"}
    assert why["features"][0].keys() == {"feature", "value", "weight", "adds", "order"}
    added = sum(term["adds"] for term in why["features"])
    assert 1 / (1 + math.exp(-added)) == pytest.approx(result["score"], abs=1e-9)
    del full["explanation"], result["explanation"]
    assert full == plain
    assert list(plain["results"][0]["parts"]) == [
        "ranking", "base", "dense", "lexical", "late", "beside", "text", "time", "cosine", "bm25", "penalty"
    ]  # fmt: skip
    refused = await client.post(SEARCH, json=body | {"explain": "perhaps"})
    assert refused.json()["detail"].startswith("explain: input should be a valid boolean")


async def test_what_a_long_query_leaves_out_is_told(client, new_user, remember):
    await remember(new_user, "coffee in May")
    words = " ".join(f"coffee{number}" for number in range(MAX_LEXEMES))

    async def note(query: str) -> str:
        answer = await client.post(SEARCH, json={"user_id": new_user, "query": query})
        assert answer.status_code == 200, answer.text
        told: str = answer.json()["note"]
        return told

    dated = await note("what did we say of coffee on 3 May 2026")
    assert dated.startswith("Nothing is dated 2026-05-03; the memories that you may read go from ")
    assert LONG_QUERY_NOTE not in await note("and the coffee of yesterday " * 8)
    assert (await note("yesterday coffee " * 17)).endswith(f"; {LONG_QUERY_NOTE}; {MANY_TIMES_NOTE}")
    assert (await note(f"{words} again")).endswith(LONG_QUERY_NOTE)


async def test_a_search_ends_when_its_client_leaves(client, services, rest_app, new_user, remember, eventually):
    await remember(new_user, "tea")
    body = json.dumps({"user_id": new_user, "query": "cups of tea"}).encode()
    scope = {
        "type": "http", "method": "POST", "path": SEARCH, "query_string": b"", "root_path": "", "scheme": "http",
        "headers": [(b"host", b"localhost:8765"), (b"content-type", b"application/json")],
        "server": ("localhost", 8765), "client": ("127.0.0.1", 1), "http_version": "1.1",
    }  # fmt: skip
    gone = asyncio.Event()
    coming = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if coming:
            return coming.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def waiting() -> bool:
        async with services.database.statement() as tx:
            found = await tx.scalar(
                text("""
                SELECT count(*) FROM pg_stat_activity
                WHERE wait_event_type = 'Lock' AND datname = current_database() AND query LIKE '%lexical%'
            """)
            )
        return bool(found)

    async def ended() -> bool:
        return not await waiting()

    async with services.database.transaction() as tx:
        await tx.execute(text("LOCK TABLE lexical_statistics IN ACCESS EXCLUSIVE MODE"))
        answering = asyncio.create_task(rest_app(scope, receive, send))
        await eventually(waiting)
        gone.set()
        await asyncio.wait_for(answering, 10)
        await eventually(ended)
    assert sent == []
    assert await texts(client, {"user_id": new_user, "query": "cups of tea"}) == ["tea"]
