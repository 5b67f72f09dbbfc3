from __future__ import annotations

from uuid import uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
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


async def test_a_batch_of_nothing_usable_is_the_error_of_the_first_and_of_each(client, new_user):
    answer = await client.post(BATCH, json={"user_id": new_user, "memories": [{}, {"text": ""}]})
    problem = answer.json()
    assert (answer.status_code, problem["error"]) == (422, "invalid")
    assert problem["detail"] == "memories[0].text: is required (2 of 2 are refused, and none is stored)"
    assert [(one["index"], one["field"], one["detail"]) for one in problem["refused"]] == [
        (0, "text", "text: is required"), (1, "text", "text: must not be empty or blank"),
    ]  # fmt: skip
    alone = await client.post(BATCH, json={"user_id": new_user, "memories": ["four"]})
    assert (alone.status_code, alone.json()["detail"]) == (422, "memories[0]: must be a JSON object")


async def test_what_is_refused_is_told_with_its_position_field_and_reason_and_not_repeated(client, new_user):
    entries = [
        {"text": "one"},
        {"text": f"CI has {TOKEN}."},
        {"text": "three", "metadata": {"ci": {"token": TOKEN}}},
        {"text": "four"},
        {"text": "five", "categories": [TOKEN]},
        6,
        {"text": "seven", TOKEN: 1},
    ]
    body = {"user_id": new_user, "memories": entries}
    first, again = await client.post(BATCH, json=body), await client.post(BATCH, json=body)
    assert first.status_code == again.status_code == 200
    told = first.json()
    assert [(one["index"], one["field"], one["error"]) for one in told["refused"]] == [
        (1, "text", "secret_refused"), (2, "metadata.ci.token", "secret_refused"),
        (4, "categories", "secret_refused"), (5, "body", "invalid"),
        (6, "[redacted: GitHub token]", "invalid"),
    ]  # fmt: skip
    assert all(one["detail"].startswith(f"{one['field']}: ") for one in told["refused"])
    assert [one for one in told["results"] if "error" in one] == told["refused"]
    assert TOKEN not in first.text
    assert again.json()["refused"] == told["refused"]
    assert [(one.get("id"), one.get("event")) for one in again.json()["results"]] == [
        (one.get("id"), one.get("event") and "NONE") for one in told["results"]
    ]
    listed = await client.get("/api/v1/memories", params={"user_id": new_user})
    assert {item["content"] for item in listed.json()["items"]} == {"one", "four"}


async def test_one_refused_text_fails_the_batch_that_asks_for_all_or_none(client, new_user):
    body = {"user_id": new_user, "memories": [{"text": "one"}, {"text": TOKEN}, {"text": "three"}], "on_error": "fail"}
    answer = await client.post(BATCH, json=body)
    assert (answer.status_code, answer.json()["error"]) == (422, "secret_refused")
    assert answer.json()["detail"] == (
        "memories[1].text: looks like it holds a GitHub token; secrets are not stored (capture.secrets)"
        " (1 of 3 are refused, and none is stored)"
    )
    assert [(one["index"], one["field"]) for one in answer.json()["refused"]] == [(1, "text")]
    assert TOKEN not in answer.text
    listed = await client.get("/api/v1/memories", params={"user_id": new_user})
    assert listed.json()["items"] == []
    whole = await client.post(BATCH, json=body | {"memories": [{"text": "one"}, {"text": "three"}]})
    assert ([one["event"] for one in whole.json()["results"]], whole.json()["refused"]) == (["ADD", "ADD"], [])


async def test_another_word_for_what_to_do_on_an_error_is_refused(client, new_user):
    answer = await client.post(BATCH, json={"user_id": new_user, "memories": [{"text": "one"}], "on_error": "stop"})
    assert (answer.status_code, answer.json()["detail"]) == (422, "on_error: input should be 'skip' or 'fail'")


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["good", "secret", "blank", "none"]), min_size=1, max_size=12))
async def test_what_is_stored_and_what_is_refused_are_together_what_was_sent_in_order(client, sent):
    user = f"batch-{uuid4()}"
    texts = {"good": "Fact {}.", "secret": f"Key {{}}: {TOKEN}", "blank": " "}
    entries = [None if sort == "none" else {"text": texts[sort].format(n)} for n, sort in enumerate(sent)]
    answer = await client.post(BATCH, json={"user_id": user, "memories": entries})
    if "good" not in sent:
        assert answer.status_code == 422
        return
    results, refused = answer.json()["results"], answer.json()["refused"]
    stored = {n: one["id"] for n, one in enumerate(results) if "id" in one}
    assert list(stored) == [n for n, sort in enumerate(sent) if sort == "good"]
    assert [one["index"] for one in refused] == [n for n, sort in enumerate(sent) if sort != "good"]
    assert len(stored) + len(refused) == len(results) == len(sent)
    listed = await client.get("/api/v1/memories", params={"user_id": user, "size": 100})
    assert {item["id"]: item["content"] for item in listed.json()["items"]} == {
        id_: f"Fact {n}." for n, id_ in stored.items()
    }


async def test_a_batch_over_the_limit_is_refused_with_the_setting(client, services, new_user):
    limit = services.settings.limits.batch
    texts = [{"text": str(n)} for n in range(limit + 1)]
    answer = await client.post(BATCH, json={"user_id": new_user, "memories": texts})
    assert (answer.status_code, answer.json()["error"]) == (413, "too_large")
    assert answer.json()["detail"] == f"memories: has {limit + 1:,} entries; the limit is {limit:,} (limits.batch)"


async def test_an_empty_batch_is_refused(client, new_user):
    answer = await client.post(BATCH, json={"user_id": new_user, "memories": []})
    assert (answer.status_code, answer.json()["detail"]) == (422, "memories: must have at least one entry")


async def test_a_paused_app_refuses_the_batch_that_writes_in_its_name(client, new_user, remember):
    row = await remember(new_user, "before", app="claude")
    await client.put(f"/api/v1/apps/{row['app_id']}", params={"is_active": False, "user_id": new_user})
    answer = await client.post(BATCH, json={"user_id": new_user, "memories": [{"text": "after", "app": "claude"}]})
    assert (answer.status_code, answer.json()["error"]) == (403, "app_paused")
