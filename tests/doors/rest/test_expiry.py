"""Memories that live for a time: said when they are added, changed later, ended by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text

from openmemory.errors import NotFound
from openmemory.services import Services

MEMORIES = "/api/v1/memories"


@pytest.fixture
def add(client: httpx.AsyncClient, new_user: str) -> Any:
    async def post(text: str, *, status: int = 200, **more: Any) -> dict[str, Any]:
        answer = await client.post(MEMORIES, json={"user_id": new_user, "text": text, "infer": False} | more)
        assert answer.status_code == status, answer.text
        body: dict[str, Any] = answer.json()
        return body

    return post


@pytest.fixture
def change(client: httpx.AsyncClient, new_user: str) -> Any:
    async def put(id_: str, *, status: int = 200, **more: Any) -> dict[str, Any]:
        answer = await client.put(f"{MEMORIES}/{id_}", json={"user_id": new_user} | more)
        assert answer.status_code == status, answer.text
        body: dict[str, Any] = answer.json()
        return body

    return put


async def ends(client: httpx.AsyncClient, user: str, id_: str) -> datetime | None:
    answer = await client.get(f"{MEMORIES}/{id_}", params={"user_id": user})
    assert answer.status_code == 200, answer.text
    at = answer.json()["expires_at"]
    return None if at is None else datetime.fromisoformat(at)


def in_days(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


async def test_a_memory_is_added_for_so_many_days(client: httpx.AsyncClient, new_user: str, add: Any) -> None:
    row = await add("The lift is out of order.", ttl_days=14)
    at = await ends(client, new_user, row["id"])
    assert at is not None
    assert abs(at - in_days(14)) < timedelta(minutes=1)


async def test_a_batch_says_it_of_each(client: httpx.AsyncClient, new_user: str) -> None:
    entries = [
        {"text": "One.", "ttl_days": 1},
        {"text": "Two.", "ttl_days": 1, "expires_at": "2090-01-01T00:00:00Z"},
        {"text": "Three.", "ttl_days": 36_501},
        {"text": "Four.", "expires_at": "2090-01-01T00:00:00Z"},
    ]
    answer = await client.post(f"{MEMORIES}/batch", json={"user_id": new_user, "memories": entries})
    one, two, three, four = answer.json()["results"]
    assert two["detail"] == "ttl_days: must be left out where expires_at is given"
    assert three["detail"].startswith("ttl_days: ")
    assert await ends(client, new_user, four["id"]) == datetime(2090, 1, 1, tzinfo=UTC)
    assert (await ends(client, new_user, one["id"]) or in_days(9)) < in_days(2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ttl_days": 0}, "ttl_days: "),
        ({"ttl_days": -1}, "ttl_days: "),
        ({"ttl_days": 1.5}, "ttl_days: "),
        ({"ttl_days": 36_501}, "ttl_days: "),
        ({"ttl_days": "soon"}, "ttl_days: "),
        ({"ttl_days": 5, "expires_at": "2090-01-01T00:00:00Z"}, "ttl_days: must be left out where expires_at is given"),
        ({"expires_at": "2090-01-01T00:00:00"}, "expires_at: must carry an offset"),
    ],
)
async def test_what_cannot_be_a_time_to_live_is_refused(
    add: Any, change: Any, given: dict[str, Any], words: str
) -> None:
    assert words in (await add("A thing.", status=422, **given))["detail"]
    row = await add("A thing.")
    assert words in (await change(row["id"], status=422, **given))["detail"]


async def test_the_end_is_set_moved_and_taken_away_with_a_revision_each(
    client: httpx.AsyncClient, new_user: str, add: Any, change: Any
) -> None:
    id_ = (await add("A thing."))["id"]
    await change(id_, ttl_days=30)
    assert abs((await ends(client, new_user, id_) or in_days(0)) - in_days(30)) < timedelta(minutes=1)
    await change(id_, expires_at="2090-01-01T01:00:00+01:00")
    assert await ends(client, new_user, id_) == datetime(2090, 1, 1, tzinfo=UTC)
    # The same again is no change, and what is not named stays.
    await change(id_, expires_at="2090-01-01T00:00:00Z")
    await change(id_, memory_content="Another thing.")
    assert await ends(client, new_user, id_) == datetime(2090, 1, 1, tzinfo=UTC)
    await change(id_, expires_at=None)
    assert await ends(client, new_user, id_) is None
    history = (await client.get(f"{MEMORIES}/{id_}/history", params={"user_id": new_user})).json()
    assert [each["revision"] for each in history["revisions"]] == [1, 2, 3, 4, 5]
    logs = (await client.get(f"{MEMORIES}/{id_}/access-log", params={"user_id": new_user, "page_size": 50})).json()[
        "logs"
    ]
    updates = [log["metadata_"] for log in logs if log["access_type"] == "update"]
    assert updates[0] == {"expires_at": None}
    assert updates[-2] == {"expires_at": "2090-01-01T00:00:00+00:00"}


async def test_what_is_over_is_not_set(add: Any, change: Any) -> None:
    id_ = (await add("A thing."))["id"]
    told = await change(id_, status=422, expires_at="2020-01-01T00:00:00Z")
    assert "expires_at: must lie in the future" in told["detail"]
    assert "expires_at" in (await change(id_, status=422))["detail"]


@pytest.mark.slow
async def test_what_has_expired_no_door_returns_until_it_is_brought_back(
    services: Services, client: httpx.AsyncClient, new_user: str, add: Any
) -> None:
    """Before the job has looked at it, and after."""
    user = {"user_id": new_user}
    for job in (False, True):
        id_ = (await add(f"The lift is out of order, {job}.", ttl_days=1))["id"]
        async with services.database.statement() as tx:
            past = "UPDATE memories SET expires_at = now() - interval '1 hour' WHERE id = CAST(:id AS uuid)"
            await tx.execute(text(past), {"id": id_})
        if job:
            await services.archiving.run()
        for path in ("", "/history", "/access-log", "/related"):
            assert (await client.get(f"{MEMORIES}/{id_}{path}", params=user)).status_code == 404
        everything = user | {"state": "active,paused,archived,deleted", "size": 100}
        listed = (await client.get(MEMORIES, params=everything)).json()["items"]
        filtered = (await client.post(f"{MEMORIES}/filter", json=user | {"show_archived": True})).json()["items"]
        found = (await client.post(f"{MEMORIES}/search", json=user | {"query": f"lift {job}"})).json()["results"]
        assert id_ not in {item["id"] for item in (*listed, *filtered, *found)}
        restored = await client.post(f"{MEMORIES}/actions/restore", json=user | {"memory_ids": [id_]})
        assert restored.status_code == 200, restored.text
        shown = (await client.get(f"{MEMORIES}/{id_}", params=user)).json()
        assert (shown["state"], shown["expires_at"]) == ("active", None)
        states = (await client.get(f"{MEMORIES}/{id_}/history", params=user)).json()["states"]
        assert [(each["new_state"], each["reason"]) for each in states] == [
            ("active", None), ("archived", "expired"), ("active", None),
        ]  # fmt: skip
        await services.archiving.run()
        assert await ends(client, new_user, id_) is None


async def test_an_app_does_not_bring_back_what_has_expired(
    services: Services, client: httpx.AsyncClient, new_user: str, add: Any
) -> None:
    row = await add("A thing.", app="claude", ttl_days=1)
    async with services.database.statement() as tx:
        past = "UPDATE memories SET expires_at = now() - interval '1 hour' WHERE id = CAST(:id AS uuid)"
        await tx.execute(text(past), {"id": row["id"]})
    claude = await services.directory.caller(new_user, "claude")
    with pytest.raises(NotFound):
        await services.memories.restore(claude, [UUID(row["id"])])
    assert (await client.get(f"{MEMORIES}/{row['id']}", params={"user_id": new_user})).status_code == 404
