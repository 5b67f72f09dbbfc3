"""Numbers in metadata over REST: as long as one likes, and none that JSON cannot say."""

from __future__ import annotations

import json
from typing import Any

import pytest

LONG = {"id": 2**64, "low": -(2**63) - 1, "deep": [{"n": 123456789012345678901234567890}], "f": [1e30, 1e308, 0.1, 1.0]}
"""Numbers of more than 64 bits, and floats that look like them."""

JSON = {"Content-Type": "application/json"}


def same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


async def test_whole_numbers_of_any_length_come_back_as_they_were_sent(client, new_user, remember):
    row = await remember(new_user, "Alice drinks tea", metadata=LONG)
    assert same(row["metadata_"], LONG)
    params = {"user_id": new_user}
    one = await client.get(f"/api/v1/memories/{row['id']}", params=params)
    assert same(one.json()["metadata_"], LONG)
    listed = await client.get("/api/v1/memories", params=params)
    assert same(listed.json()["items"][0]["metadata_"], LONG)
    filtered = await client.post("/api/v1/memories/filter", json=params)
    assert same(filtered.json()["items"][0]["metadata_"], LONG)
    found = await client.get("/api/v1/memories/search", params=params | {"query": "tea"})
    assert same(found.json()["results"][0]["metadata"], LONG)
    changed = {"user_id": new_user, "memory_content": "Alice drinks coffee", "metadata": {"n": 3**200}}
    updated = await client.put(f"/api/v1/memories/{row['id']}", json=changed)
    assert same(updated.json()["metadata_"], {"n": 3**200})
    again = await client.put(f"/api/v1/memories/{row['id']}", json=changed)
    assert again.json()["updated_at"] == updated.json()["updated_at"], "the same numbers change nothing"


async def test_a_batch_takes_them_too(client, new_user):
    memories = [{"text": "one", "metadata": LONG}, {"text": "two", "metadata": {"n": 2**70}}]
    answer = await client.post("/api/v1/memories/batch", json={"user_id": new_user, "memories": memories})
    assert [result["event"] for result in answer.json()["results"]] == ["ADD", "ADD"]
    listed = await client.get("/api/v1/memories", params={"user_id": new_user, "search_query": "two"})
    assert same(listed.json()["items"][0]["metadata_"], {"n": 2**70})


@pytest.mark.parametrize(
    ("number", "status", "detail"),
    [
        ("1e999", 422, "metadata.a: must be a finite number"),
        ("[-1e999]", 422, "metadata.a: must be a finite number"),
        (f"[1e999, {2**70}]", 422, "metadata.a: must be a finite number"),
        ("NaN", 400, "body: is not valid JSON: "),
        ("-Infinity", 400, "body: is not valid JSON: "),
        ("9" * 5000, 400, "body: is not valid JSON: number out of range"),
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/memories", "/api/v1/memories/batch"])
async def test_a_number_that_cannot_be_kept_is_refused_by_its_field(client, new_user, path, number, status, detail):
    memory = f'"text": "t", "metadata": {{"a": {number}}}'
    batch = path.endswith("batch")
    whole = f'"memories": [{{{memory}}}]' if batch else memory
    answer = await client.post(path, content=f'{{"user_id": "{new_user}", {whole}}}', headers=JSON)
    problem = answer.json().get("refused", [answer.json()])[0]
    assert problem["detail"].startswith(detail), answer.text
    assert answer.status_code == status
