"""A date such as 2026-11-01 is accepted wherever a time is. It means its first moment in UTC."""

from __future__ import annotations

import pytest

MEMORIES = "/api/v1/memories"


async def test_a_memory_is_made_and_ends_at_a_date(client, new_user, remember):
    row = await remember(new_user, "one", created_at="2020-01-31", expires_at="2090-01-31")
    shown = (await client.get(f"{MEMORIES}/{row['id']}", params={"user_id": new_user})).json()
    assert (shown["created_at"], shown["expires_at"]) == (1_580_428_800, "2090-01-31T00:00:00Z")
    change = {"user_id": new_user, "expires_at": "2091-02-01"}
    assert (await client.put(f"{MEMORIES}/{row['id']}", json=change)).is_success
    shown = (await client.get(f"{MEMORIES}/{row['id']}", params={"user_id": new_user})).json()
    assert shown["expires_at"] == "2091-02-01T00:00:00Z"


@pytest.mark.parametrize(
    ("first", "last"),
    [("2020-01-31", "2020-02-01"), ("2020-01-31T01:00:00+01:00", "2020-01-31T00:00:00"), (1_580_428_800, "1580428800")],
)
async def test_lists_and_searches_begin_and_end_at_dates_and_times(client, new_user, remember, first, last):
    await remember(new_user, "coffee before", created_at="2020-01-30T23:59:59Z")
    await remember(new_user, "coffee then", created_at="2020-01-31")
    await remember(new_user, "coffee after", created_at="2020-02-02")
    params = {"user_id": new_user, "from_date": first, "to_date": last}
    for answer in (
        await client.get(MEMORIES, params=params),
        await client.post(f"{MEMORIES}/filter", json=params),
    ):
        assert [one["content"] for one in answer.json()["items"]] == ["coffee then"], answer.text
    found = await client.post(f"{MEMORIES}/search", json=params | {"query": "coffee"})
    assert [one["memory"] for one in found.json()["results"]] == ["coffee then"]


async def test_the_audit_log_begins_and_a_key_ends_at_a_date(client, new_user):
    assert (await client.get("/api/v1/audit", params={"since": "2020-01-31"})).is_success
    key = {"name": "report", "user_id": new_user, "expires_at": "2028-01-31"}
    made = await client.post("/api/v1/keys", json=key)
    assert made.json()["expires_at"] == "2028-01-31T00:00:00Z"


@pytest.mark.parametrize("value", ["2020-13-31", "2020-01-31T25:00", "nonsense", "today", "1.5", "9" * 30])
async def test_what_is_no_date_is_refused_in_words(client, value):
    answer = await client.get(MEMORIES, params={"from_date": value})
    assert (answer.status_code, answer.json()["detail"]) == (
        422, "from_date: must be seconds since 1970, or a date or time such as 2026-01-31T12:00:00Z",
    )  # fmt: skip
