from __future__ import annotations

import pytest

ADD = "/api/v1/memories"
JSON = {"Content-Type": "application/json"}
DEEP = b'{"user_id": "u", "text": "t", "metadata": ' + b'{"k":' * 5000 + b"1" + b"}" * 5001


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"{'user_id': 'a'}",
        b'{"user_id": "a", "text": "t", "importance": NaN}',
        b'{"user_id": "a", "text": "t", "metadata": {"n": Infinity}}',
        b'{"user_id": "a", "text": "\xff\xfe"}',
        b'{"user_id": "a", "text": ' + b"9" * 5000 + b"}",
        DEEP,
        b"\x00",
    ],
)
async def test_a_body_that_is_no_json_is_refused_with_its_position(client, content):
    answer = await client.post(ADD, content=content, headers=JSON)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    assert answer.json()["detail"].startswith("body: is not valid JSON: ")


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "json"]
)
async def test_a_body_of_another_type_is_refused(client, kind):
    headers = {"Content-Type": kind}
    answer = await client.post(ADD, content=b'{"user_id": "a", "text": "t"}', headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type")
    assert answer.json()["detail"].startswith("Content-Type: must be application/json")


@pytest.mark.parametrize(
    "told", [{"Origin": "http://localhost:3000"}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Mode": "no-cors"}]
)
async def test_a_body_of_no_type_is_refused_where_a_browser_sends_it(client, told):
    answer = await client.post(ADD, content=b'{"user_id": "a", "text": "t"}', headers=told)
    assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type")


async def test_a_script_need_not_say_that_its_body_is_json(client, new_user):
    """`requests.post(url, data=json.dumps(body))` names no type."""
    answer = await client.post(ADD, content=f'{{"user_id": "{new_user}", "text": "from a script"}}'.encode())
    assert "content-type" not in answer.request.headers
    assert answer.status_code == 200, answer.text
    broken = await client.post(ADD, content=b"{")
    assert (broken.status_code, broken.json()["error"]) == (400, "bad_request")


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/merge+json"])
async def test_json_by_any_of_its_names_is_taken(client, new_user, kind):
    content = f'{{"user_id": "{new_user}", "text": "t"}}'.encode()
    assert (await client.post(ADD, content=content, headers={"Content-Type": kind})).status_code == 200


async def test_a_body_that_is_missing_is_asked_for(client):
    answer = await client.post(ADD)
    assert (answer.status_code, answer.json()["detail"]) == (422, "body: is required")
