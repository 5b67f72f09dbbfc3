from __future__ import annotations

import pytest

BRIEF = "/api/v1/brief"


async def test_an_app_gets_a_brief_of_its_project(client, new_user, remember):
    await remember(new_user, "We ship in May", app="claude", namespace="webshop")
    answer = await client.post(BRIEF, json={"user_id": new_user, "app": "cursor", "namespace": "webshop"})
    found = answer.json()
    assert (answer.status_code, list(found)) == (200, ["text", "shown", "total", "tokens", "budget"])
    assert found["text"].endswith("We ship in May")
    assert found["text"].startswith(f"OpenMemory: 1 of 1 memory, {found['tokens']} of 600 tokens")


async def test_a_brief_begins_with_the_state_of_the_project(client, new_user, remember):
    await remember(new_user, "We ship in May", namespace="webshop")
    state = {"goal": "Ship in May", "plan": {str(number): "a step of the plan" for number in range(80)}}
    whose = {"user_id": new_user, "namespace": "webshop"}
    saved = await client.post("/api/v1/state/checkpoint", json=whose | {"state": state, "reason": "It begins."})
    assert saved.is_success
    for budget in (100, 200, 600):
        found = (await client.post(BRIEF, json=whose | {"budget": budget})).json()
        assert found["tokens"] <= budget
        line = found["text"].split("\n")[2]
        assert line.startswith('State of the project (revision 1): {"goal":')
        assert line.endswith("…")
    assert found["text"].endswith("We ship in May")
    asked = (await client.post(BRIEF, json=whose | {"query": "when do we ship?", "min_score": 0})).json()
    assert "State of the project" not in asked["text"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"budget": 99}, "budget"), ({"budget": 2_001}, "budget"), ({"min_score": 2}, "min_score"),
        ({"app": " "}, "app"), ({"namespace": " "}, "namespace"), ({"query": ""}, "query"),
        ({"colour": 1}, "colour"),
    ],
)  # fmt: skip
async def test_what_cannot_be_used_is_named(client, new_user, remember, body, field):
    await remember(new_user, "We ship in May")
    answer = await client.post(BRIEF, json={"user_id": new_user} | body)
    assert answer.status_code == 422
    assert field in answer.text
