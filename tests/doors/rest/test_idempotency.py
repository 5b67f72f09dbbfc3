"""`Idempotency-Key`: a request that a client repeats, because it did not hear the answer, is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from openmemory.access.schemas import KeyCreate
from openmemory.identity.principal import LOCAL
from openmemory.memories import idempotency
from openmemory.services import Services
from tests.doors.rest.conftest import MakeClient

MEMORIES = "/api/v1/memories"

Post = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
def post(client: httpx.AsyncClient, new_user: str) -> Post:
    """Adds a text of the test's user under a key: `await post("I row.", "k", app="claude")`."""

    async def send(said: str, key: str, **more: Any) -> httpx.Response:
        body = {"user_id": new_user, "text": said, "infer": False} | more
        return await client.post(MEMORIES, json=body, headers={"Idempotency-Key": key})

    return send


async def texts(client: httpx.AsyncClient, user: str) -> list[str]:
    listed = await client.get(MEMORIES, params={"user_id": user})
    return sorted(item["content"] for item in listed.json()["items"])


@pytest.mark.parametrize("more", [{}, {"infer": True}, {"metadata": {"n": 1}, "ttl_days": 3, "categories": ["x"]}])
async def test_a_repeated_request_has_the_first_answer(post: Post, client, new_user: str, more: dict[str, Any]) -> None:
    first = await post("I row.", "k", **more)
    assert (first.status_code, first.json()["event"]) == (200, "ADD")
    second = await post("I row.", "k", **more)
    assert (second.status_code, second.json()) == (200, first.json())
    assert await texts(client, new_user) == ["I row."]


async def test_a_text_that_was_known_already_is_answered_alike(post: Post) -> None:
    await post("I row.", "a")
    first, second = await post("I row.", "b"), await post("I row.", "b")
    assert first.json()["event"] == "NONE"
    assert second.json() == first.json()


async def test_what_was_deleted_since_is_not_stored_again(post: Post, client, new_user: str) -> None:
    first = (await post("I row.", "k")).json()
    which = {"user_id": new_user, "memory_ids": [first["id"]]}
    await client.request("DELETE", MEMORIES, json=which)
    assert (await post("I row.", "k")).json() == first
    assert await texts(client, new_user) == []


async def test_what_was_merged_before_is_not_merged_again(post: Post, client, new_user: str) -> None:
    await post("budget=50K | lead=Ada", "a")
    first = (await post("budget=40K", "b")).json()
    assert (first["event"], first["changed"][0]["old"]) == ("UPDATE", "50K")
    await post("budget=30K", "c")
    again = (await post("budget=40K", "b")).json()
    assert {name: again[name] for name in ("id", "event", "note", "changed", "previous_memory")} == {
        name: first[name] for name in ("id", "event", "note", "changed", "previous_memory")
    }
    assert await texts(client, new_user) == ["budget=30K | lead=Ada"]


async def test_what_a_memory_said_before_is_not_repeated_to_an_app_that_may_not_read_it_any_more(
    post: Post, client, new_user: str
) -> None:
    await post("budget=50K", "a", app="claude")
    first = (await post("budget=40K", "b", app="claude")).json()
    assert "50K" in str(first)
    rule = {"user_id": new_user, "effect": "deny", "object_type": "memory", "object": first["id"], "app": "claude"}
    denied = await client.post("/api/v1/grants", json=rule)
    assert denied.status_code in (200, 201), denied.text
    again = await post("budget=40K", "b", app="claude")
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    assert "50K" not in again.text


async def test_requests_at_once_are_done_once(post: Post, client, new_user: str) -> None:
    answers = await asyncio.gather(*(post("I row.", "k") for _ in range(8)))
    assert [answer.json() for answer in answers] == [answers[0].json()] * 8
    assert answers[0].json()["event"] == "ADD"
    history = await client.get(f"{MEMORIES}/{answers[0].json()['id']}/history")
    assert len(history.json()["revisions"]) == 1


@pytest.mark.parametrize("more", [{}, {"infer": True}, {"namespace": "other"}, {"metadata": {"n": 1}}])
async def test_a_key_that_was_given_to_another_request_is_refused(
    post: Post, client, new_user: str, more: dict[str, Any]
) -> None:
    await post("I row.", "k")
    other = await post("I swim." if not more else "I row.", "k", **more)
    assert (other.status_code, other.json()["error"]) == (422, "idempotency_key_reused")
    assert other.json()["detail"].startswith("Idempotency-Key: ")
    assert await texts(client, new_user) == ["I row."]


async def test_keys_of_other_apps_and_users_are_other_keys(post: Post, client, new_user: str) -> None:
    first = (await post("I row.", "k", app="claude")).json()
    assert (await post("I row.", "k", app="cursor")).json()["event"] == "ADD"
    assert (await post("I swim.", "k", user_id=f"{new_user}-other")).json()["event"] == "ADD"
    assert (await post("I row.", "k", app="claude")).json() == first


async def test_keys_of_other_credentials_are_other_keys(
    make_client: MakeClient, services: Services, new_user: str
) -> None:
    made = [await services.keys.create(LOCAL, KeyCreate(name=name, user_id=new_user)) for name in ("a", "b")]
    async with make_client(access={"require": "always"}) as client:
        for number, one in enumerate(made):
            headers = {"X-API-Key": one.key, "Idempotency-Key": "k"}
            body = {"user_id": new_user, "text": f"Fact {number}", "infer": False}
            assert (await client.post(MEMORIES, json=body, headers=headers)).json()["event"] == "ADD"


@pytest.mark.parametrize("wrong", [{"text": " "}, {"ttl_days": 0}])
async def test_a_request_that_failed_has_not_used_its_key(post: Post, wrong: dict[str, Any]) -> None:
    said = {"said": "I row."} | ({"said": wrong.pop("text")} if "text" in wrong else {})
    assert (await post(said["said"], "k", **wrong)).status_code == 422
    assert (await post("I row.", "k")).json()["event"] == "ADD"


@pytest.mark.parametrize(
    ("key", "status", "said"),
    [("", 422, "must not be empty"), (" ", 422, "must not be empty"), ("k" * 257, 413, "257 characters")],
)
async def test_a_key_is_a_name(post: Post, key: str, status: int, said: str) -> None:
    answer = await post("I row.", key)
    assert answer.status_code == status
    assert answer.json()["detail"].startswith("Idempotency-Key: ")
    assert said in answer.json()["detail"]


async def test_nothing_of_an_erased_memory_stays_under_its_key(
    post: Post, client, services: Services, new_user: str
) -> None:
    await post("budget=50K", "a")
    merged = (await post("budget=40K", "b")).json()
    query = text("SELECT k::text FROM idempotency_keys AS k WHERE memory_id = :id")
    async with services.database.statement() as tx:
        assert "50K" in "".join(await tx.scalars(query, {"id": merged["id"]}))
    erased = {"user_id": new_user, "memory_ids": [merged["id"]]}
    answer = await client.request("POST", f"{MEMORIES}/actions/erase", json=erased)
    assert answer.status_code == 200, answer.text
    async with services.database.statement() as tx:
        assert list(await tx.scalars(query, {"id": merged["id"]})) == []


async def test_a_key_is_remembered_for_a_week(post: Post, client, services: Services, new_user: str) -> None:
    first = (await post("I row.", "k")).json()
    aged = text("UPDATE idempotency_keys SET created_at = now() - make_interval(days => :days) WHERE memory_id = :id")
    for days, remembered in ((idempotency.RETENTION_DAYS - 1, True), (idempotency.RETENTION_DAYS + 1, False)):
        async with services.database.statement() as tx:
            await tx.execute(aged, {"days": days, "id": first["id"]})
        await idempotency.prune(services.database)
        assert ((await post("I row.", "k")).json() == first) is remembered
