from __future__ import annotations

from uuid import uuid4

GRANTS = "/api/v1/grants"


async def test_a_rule_is_made_listed_and_revoked(client, new_user):
    rule = {"user_id": new_user, "effect": "deny", "app": "cursor", "object_type": "namespace", "object": "private"}
    made = await client.post(GRANTS + "/", json=rule)
    grant = made.json()
    assert (made.status_code, list(grant)) == (201, ["id", "effect", "app", "object_type", "object", "created_at"])
    assert (await client.post(GRANTS, json=rule)).json()["id"] == grant["id"]
    for params in ({"user_id": new_user}, {"user_id": new_user, "app": "cursor"}):
        assert (await client.get(GRANTS, params=params)).json() == {"grants": [grant]}
    other = await client.get(GRANTS, params={"user_id": new_user, "app": "claude"})
    assert other.json() == {"grants": []}
    gone = await client.delete(f"{GRANTS}/{grant['id']}", params={"user_id": new_user})
    assert gone.status_code == 200
    assert (await client.get(GRANTS, params={"user_id": new_user})).json() == {"grants": []}


async def test_somebody_elses_rule_cannot_be_revoked(client, new_user, remember):
    rule = {"user_id": new_user, "effect": "deny", "object_type": "all"}
    grant = (await client.post(GRANTS, json=rule)).json()
    await remember(f"{new_user}-other", "something")
    answer = await client.delete(f"{GRANTS}/{grant['id']}", params={"user_id": f"{new_user}-other"})
    assert (answer.status_code, answer.json()["detail"]) == (404, "Grant not found")


async def test_a_rule_about_somebody_elses_memory_is_refused(client, new_user, remember):
    row = await remember(f"{new_user}-other", "theirs")
    for object_ in (row["id"], str(uuid4())):
        rule = {"user_id": new_user, "effect": "allow", "object_type": "memory", "object": object_}
        answer = await client.post(GRANTS, json=rule)
        assert (answer.status_code, answer.json()["detail"]) == (404, "Memory not found")


async def test_a_rule_with_an_unknown_field_or_effect_is_refused_in_words(client, new_user):
    answer = await client.post(GRANTS, json={"user_id": new_user, "effect": "maybe", "object_type": "all", "ap": "x"})
    assert answer.status_code == 422
    assert answer.json()["detail"] == ("effect: input should be 'allow' or 'deny'; ap: is not a known field")
