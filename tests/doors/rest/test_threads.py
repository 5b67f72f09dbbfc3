"""Conversations over REST: stored verbatim, found, listed, closed, deleted, restored and erased."""

from __future__ import annotations

import pytest

SAID = [
    ("Caroline", "I went to the adoption agency on Tuesday."),
    ("Melanie", "How wonderful! Did you take the light blue bicycle?"),
    ("Caroline", "No, my brother drove me in his old van."),
    ("Melanie", "I finally picked up that book because you said it was good."),
]


@pytest.fixture
def said(client, new_user):
    """Posts messages to a thread, as an app."""

    async def post(messages, thread="chat-1", *, status=200, **fields):
        body = {"user_id": new_user, "app": "chat", "messages": messages} | fields
        answer = await client.post(f"/api/v1/threads/{thread}/messages", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    return post


@pytest.fixture
def read(client, new_user):
    """Reads a thread."""

    async def get(thread="chat-1", *, status=200, **params):
        answer = await client.get(f"/api/v1/threads/{thread}/messages", params={"user_id": new_user} | params)
        assert answer.status_code == status, answer.text
        return answer.json()

    return get


@pytest.fixture
def find(client, new_user):
    """Searches the passages."""

    async def search(query, **fields):
        body = {"user_id": new_user, "query": query, "corpus": "passages"} | fields
        answer = await client.post("/api/v1/memories/search", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return search


def messages(*said):
    return [{"role": role, "content": content} for role, content in said or SAID]


async def test_messages_are_stored_verbatim_in_their_order(said, read):
    answer = await said(messages())
    assert [result["event"] for result in answer["results"]] == ["ADD"] * 4
    assert [result["position"] for result in answer["results"]] == [1, 2, 3, 4]
    assert answer["refused"] == []
    page = await read()
    assert page["total"] == 4
    assert [(item["role"], item["content"]) for item in page["items"]] == SAID
    assert {item["app_name"] for item in page["items"]} == {"chat"}
    assert [item["content"] for item in (await read(page=2, size=3))["items"]] == [SAID[3][1]]


async def test_what_was_just_said_is_found_by_its_words_and_by_its_meaning(said, find, client, new_user):
    await said(messages())
    for query in ("van", "who drove her there", "what did she read"):
        answer = await find(query)
        assert answer["results"] == []
        assert answer["passages"]["search_method"] == "hybrid"
        assert answer["passages"]["results"], query
    assert (await find("adoption agency"))["passages"]["results"][0]["content"] == SAID[0][1]
    assert (await find("Which book did Melanie buy?"))["passages"]["results"][0]["content"] == SAID[3][1]
    plain = await client.post("/api/v1/memories/search", json={"user_id": new_user, "query": "adoption agency"})
    assert plain.json()["results"] == []
    assert "passages" not in plain.json()


async def test_memories_and_passages_are_answered_side_by_side(said, find, remember, new_user):
    await said(messages())
    await remember(new_user, "Caroline wants to adopt a child.")
    answer = await find("adoption", corpus="both")
    assert [result["memory"] for result in answer["results"]] == ["Caroline wants to adopt a child."]
    assert answer["passages"]["results"][0]["content"] == SAID[0][1]


async def test_a_message_that_is_sent_again_is_stored_once(said, read):
    first = await said([{"content": "Hello", "id": "m-1"}])
    again = await said([{"content": "Hello", "id": "m-1"}, {"content": "How are you?", "id": "m-2"}])
    assert [result["event"] for result in again["results"]] == ["NONE", "ADD"]
    assert again["results"][0]["id"] == first["results"][0]["id"]
    assert (await read())["total"] == 2


async def test_an_id_of_another_message_is_refused_and_the_others_are_stored(said, read):
    await said([{"content": "Hello", "id": "m-1"}])
    answer = await said([{"content": "Other", "id": "m-1"}, {"content": "More"}])
    [refused] = answer["refused"]
    assert (refused["index"], refused["field"], refused["error"]) == (0, "id", "message_id_reused")
    assert [item["content"] for item in (await read())["items"]] == ["Hello", "More"]


async def test_a_message_is_read_with_those_near_it(said, read):
    await said(messages(*(("user", f"message {number}") for number in range(1, 10))))
    found = await read(around=4, size=3)
    assert ([one["position"] for one in found["items"]], found["total"]) == ([3, 4, 5], 9)
    assert [one["position"] for one in (await read(around=1, size=2))["items"]] == [1, 2]
    assert (await read(around=100, size=2))["items"] == []
    await read(around=0, status=422)


async def test_messages_of_one_time_keep_their_order_also_at_the_end_of_all_times(said, read):
    for thread, at in (("past", "2026-05-01T10:00:00Z"), ("end", "9999-12-31T23:59:59.999999Z")):
        entries = [{"content": f"message {number}", "created_at": at} for number in range(5)]
        assert (await said(entries, thread=thread))["refused"] == []
    items = (await read("past"))["items"]
    assert [item["content"] for item in items] == [f"message {number}" for number in range(5)]
    assert (await read("end"))["total"] == 5


async def test_a_time_may_have_any_offset_that_iso_8601_knows(said, read):
    entries = [{"content": "Hello", "created_at": "2026-05-01T10:00:00+20:45"}]
    assert (await said(entries))["refused"] == []
    assert (await read())["items"][0]["created_at"].startswith("2026-04-30T13:15:00")
    [refused] = (await said([{"content": "x"}, {"content": "y", "created_at": "0001-01-01T00:00:00+20:45"}]))["refused"]
    assert (refused["index"], refused["field"]) == (1, "created_at")


async def test_all_or_none_if_the_client_wants(said, read):
    answer = await said([{"content": "Hello"}, {"content": " "}], on_error="fail", status=422)
    assert [one["index"] for one in answer["refused"]] == [1]
    await read(status=404)


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"content": ""}, "content"),
        ({"content": "x", "role": " "}, "role"),
        ({"content": "x", "id": ""}, "id"),
        ({"content": "x", "created_at": "2026-01-31T12:00:00"}, "created_at"),
        ({"content": "x", "wrong": 1}, "wrong"),
        ({"text": "x"}, "content"),
        ("x", ""),
        ({"content": "x\x00"}, "content"),
    ],
)
async def test_a_message_that_cannot_be_stored_is_named(said, entry, field):
    answer = await said([{"content": "Hello"}, entry])
    [refused] = answer["refused"]
    assert refused["index"] == 1
    assert refused["field"].startswith(field)


async def test_secrets_are_redacted_and_reported(said, read, find):
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    answer = await said([{"content": f"My token is {key}, keep it."}])
    assert answer["results"][0]["redacted"]
    [item] = (await read())["items"]
    assert key not in item["content"]
    assert "keep it" in item["content"]
    assert (await find("token"))["passages"]["results"][0]["content"] == item["content"]


async def test_each_app_has_its_own_conversation_of_a_thread(said, read, client, new_user):
    await said([{"content": "From the chat"}])
    await said([{"content": "From the editor"}], app="editor")
    threads = (await client.get("/api/v1/threads", params={"user_id": new_user})).json()
    assert [(item["app_name"], item["messages"]) for item in threads["items"]] == [("editor", 1), ("chat", 1)]
    assert [item["content"] for item in (await read())["items"]] == ["From the chat", "From the editor"]


async def test_an_app_reads_what_the_rules_let_it_read(said, read, find, client, new_user):
    await said(messages())
    rule = {"user_id": new_user, "app": "spy", "effect": "deny", "object_type": "app", "object": "chat"}
    assert (await find("adoption", app="spy"))["passages"]["results"]
    made = await client.post("/api/v1/grants", json=rule)
    assert made.status_code in (200, 201), made.text
    assert (await find("adoption", app="spy"))["passages"]["results"] == []
    assert (await client.get("/api/v1/threads", params={"user_id": new_user, "app": "spy"})).json()["items"] == []
    await read(app="spy", status=404)
    await read(status=200)


async def test_a_deleted_conversation_is_gone_until_it_is_restored(said, read, find, client, new_user):
    await said(messages())
    deleted = await client.delete("/api/v1/threads/chat-1", params={"user_id": new_user})
    assert deleted.json() == {"threads": 1, "messages": 4}
    await read(status=404)
    assert (await find("adoption"))["passages"]["results"] == []
    assert (await client.delete("/api/v1/threads/chat-1", params={"user_id": new_user})).status_code == 404
    # It goes on, and what was deleted stays so until it is restored.
    await said([{"content": "Hello again"}])
    assert (await read())["total"] == 1
    restored = await client.post("/api/v1/threads/chat-1/restore", json={"user_id": new_user})
    assert restored.json() == {"threads": 1, "messages": 4}
    assert (await read())["total"] == 5
    assert (await find("adoption"))["passages"]["results"]


async def test_an_erased_conversation_leaves_nothing(said, read, find, client, new_user, services, eventually):
    await said(messages())
    erased = await client.post("/api/v1/threads/chat-1/erase", json={"user_id": new_user})
    assert erased.json() == {"threads": 1, "messages": 4}
    await read(status=404)
    assert (await find("adoption"))["passages"]["results"] == []
    refused = await client.post("/api/v1/threads/chat-1/erase", json={"user_id": new_user, "app": "chat"})
    assert refused.status_code == 403


async def test_a_thread_is_closed_with_a_title_and_opened_by_its_next_message(said, client, new_user):
    await said(messages())
    body = {"user_id": new_user, "title": "Adoption", "summary": "Caroline was at the agency."}
    assert (await client.post("/api/v1/threads/chat-1/close", json=body)).json() == {"threads": 1, "messages": 0}
    [thread] = (await client.get("/api/v1/threads", params={"user_id": new_user})).json()["items"]
    assert (thread["title"], thread["summary"]) == ("Adoption", "Caroline was at the agency.")
    assert thread["closed_at"] is not None
    await said([{"content": "One more thing"}])
    [thread] = (await client.get("/api/v1/threads", params={"user_id": new_user})).json()["items"]
    assert (thread["closed_at"], thread["messages"]) == (None, 5)


async def test_a_thread_id_may_hold_a_slash(said, read, client, new_user):
    await said([{"content": "Hello"}], thread="team/plan")
    assert (await read("team/plan"))["items"][0]["thread_id"] == "team/plan"
    deleted = await client.delete("/api/v1/threads/team/plan/", params={"user_id": new_user})
    assert deleted.json() == {"threads": 1, "messages": 1}


async def test_a_percent_encoded_slash_at_the_end_belongs_to_the_thread_id(said, read, client, new_user):
    for thread in ("team", "team/"):
        await said([{"content": "Hello"}], thread=thread.replace("/", "%2F"))
    deleted = await client.delete("/api/v1/threads/team%2F", params={"user_id": new_user})
    assert deleted.json() == {"threads": 1, "messages": 1}
    assert (await read("team"))["total"] == 1


@pytest.mark.parametrize(
    "field", [{"filter": {"kind": "x"}}, {"categories": ["x"]}, {"as_of": "2026-01-01"}, {"explain": True}]
)
async def test_what_passages_do_not_have_is_refused(client, new_user, field):
    body = {"user_id": new_user, "query": "x", "corpus": "passages"} | field
    await client.post("/api/v1/threads/t/messages", json={"user_id": new_user, "messages": [{"content": "x"}]})
    answer = await client.post("/api/v1/memories/search", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(next(iter(field)))


async def test_searches_of_passages_can_be_narrowed(said, find):
    await said(messages(), namespace="family")
    await said(messages(("Ada", "The agency sent the bill.")), thread="chat-2")
    found = (await find("agency", namespace="family"))["passages"]["results"]
    assert {result["namespace"] for result in found} == {"family"}
    found = (await find("agency", thread_id="chat-2"))["passages"]["results"]
    assert {result["thread_id"] for result in found} == {"chat-2"}
    nothing = (await find("agency", namespace="elsewhere"))["passages"]
    assert (nothing["results"], nothing["note"]) == ([], "No passage that you may read matches “agency”")
