"""Halves of surrogate pairs, which clients cut from texts, cost neither the text nor those beside it."""

from __future__ import annotations

import json

import pytest

HALF, MENDED = "cut \ud83d here", "cut \ufffd here"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def post(client, new_user):
    """Posts a body as Python and JavaScript write it, with halves as escapes."""

    async def send(path, **body):
        content = json.dumps({"user_id": new_user} | body)
        answer = await client.post(f"/api/v1/{path}", content=content, headers=JSON)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return send


async def test_a_memory_is_stored_and_found(post):
    added = await post("memories", text=HALF, metadata={HALF: [HALF]}, infer=False)
    assert added["content"] == MENDED
    found = await post("memories/search", query=HALF)
    assert [(hit["memory"], hit["metadata"]) for hit in found["results"]] == [(MENDED, {MENDED: [MENDED]})]


async def test_a_batch_is_stored_whole(post):
    answer = await post(
        "memories/batch", memories=[{"text": HALF}, {"text": "beside \U0001f600"}, {"text": "\ude00 x"}]
    )
    assert [each["event"] for each in answer["results"]] == ["ADD"] * 3


async def test_messages_are_stored_and_those_that_cannot_be_are_named(client, post, new_user):
    messages = [
        {"content": HALF, "id": "m-1"},
        {"content": "a\x00b"},
        {"content": "when?", "created_at": "yesterday at noon"},
        {"content": "fine \U0001f600", "role": "Ann\udc00"},
    ]
    answer = await post("threads/t-1/messages", messages=messages)
    assert [(one["index"], one["field"]) for one in answer["refused"]] == [(1, "content"), (2, "created_at")]
    said = (await client.get("/api/v1/threads/t-1/messages", params={"user_id": new_user})).json()["items"]
    assert [(one["role"], one["content"]) for one in said] == [("user", MENDED), ("Ann\ufffd", "fine \U0001f600")]
    again = await post("threads/t-1/messages", messages=messages[:1])
    assert again["results"][0]["event"] == "NONE"


@pytest.mark.parametrize("half", ["%ED%A0%BD", "%ED%B8%80", "%FF"])
async def test_addresses_with_halves_are_read_with_a_replacement(client, post, new_user, half):
    await post("memories", text=HALF, infer=False)
    for query in (f"search_query={half}", f"namespace=a{half}", f"filter={half}"):
        found = await client.get(f"/api/v1/memories?user_id={new_user}&{query}")
        assert found.status_code == 200, found.text
    missing = await client.get(f"/api/v1/threads/{half}/messages?user_id={new_user}")
    assert missing.status_code == 404
