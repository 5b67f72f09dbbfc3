from __future__ import annotations

BATCH = "/api/v1/memories/batch"


async def test_valid_texts_are_stored_and_the_others_told_apart_in_their_place(client, new_user):
    entries = [
        {"text": "one", "app": "claude"},
        {"text": " "},
        {"text": "two", "created_at": "2020-01-01T00:00:00Z", "namespace": "shop"},
        {"texd": "three"},
        "four",
        {"text": "x" * 20_000},
        {"text": "five", "created_at": "2020-01-01T00:00:00"},
        {"text": "six", "metadata": {"a": "\x00"}},
        {"text": "one", "app": "claude"},
    ]
    answer = await client.post(BATCH, json={"user_id": new_user, "memories": entries})
    results = answer.json()["results"]
    assert (answer.status_code, len(results)) == (200, len(entries))
    assert [result.get("event") for result in results] == ["ADD", None, "ADD", None, None, None, None, None, "NONE"]
    assert results[8]["id"] == results[0]["id"]
    assert [result.get("error") for result in results[1:7]] == [
        "invalid", None, "invalid", "invalid", "too_large", "invalid",
    ]  # fmt: skip
    assert results[1]["detail"] == "text: must not be empty or blank"
    assert results[3]["detail"].startswith("text: is required")
    assert "limits.text" in results[5]["detail"]
    assert results[6]["detail"].startswith("created_at: must carry an offset")
    listed = await client.get("/api/v1/memories", params={"user_id": new_user})
    assert {(m["content"], m["app_name"], m["namespace"]) for m in listed.json()["items"]} == {
        ("one", "claude", "default"), ("two", "openmemory", "shop"),
    }  # fmt: skip


async def test_a_batch_of_nothing_usable_stores_nothing(client, new_user):
    answer = await client.post(BATCH, json={"user_id": new_user, "memories": [{}, {"text": ""}]})
    assert [result["error"] for result in answer.json()["results"]] == ["invalid", "invalid"]


async def test_a_batch_over_the_limit_is_refused_with_the_setting(make_client, new_user):
    async with make_client(limits={"batch": 2}) as client:
        answer = await client.post(BATCH, json={"user_id": new_user, "memories": [{"text": str(n)} for n in range(3)]})
    assert (answer.status_code, answer.json()["error"]) == (413, "too_large")
    assert answer.json()["detail"] == "memories: has 3 entries; the limit is 2 (limits.batch)"


async def test_an_empty_batch_is_refused(client, new_user):
    answer = await client.post(BATCH, json={"user_id": new_user, "memories": []})
    assert (answer.status_code, answer.json()["detail"]) == (422, "memories: must name at least one")


async def test_a_paused_app_refuses_the_batch_that_writes_in_its_name(client, new_user, remember):
    row = await remember(new_user, "before", app="claude")
    await client.put(f"/api/v1/apps/{row['app_id']}", params={"is_active": False, "user_id": new_user})
    answer = await client.post(BATCH, json={"user_id": new_user, "memories": [{"text": "after", "app": "claude"}]})
    assert (answer.status_code, answer.json()["error"]) == (403, "app_paused")
