from __future__ import annotations

from uuid import uuid4

GRANTS = "/api/v1/grants"


async def test_a_rule_is_made_listed_and_revoked(client, new_user):
    rule = {"user_id": new_user, "effect": "deny", "app": "cursor", "object_type": "namespace", "object": "private"}
    made = await client.post(GRANTS + "/", json=rule)
    grant = made.json()
    assert (made.status_code, list(grant)) == (201, [
        "id", "effect", "app", "object_type", "object", "object_name", "created_at",
    ])  # fmt: skip
    assert (await client.post(GRANTS, json=rule)).json()["id"] == grant["id"]
    for params in ({"user_id": new_user}, {"user_id": new_user, "app": "cursor"}):
        assert (await client.get(GRANTS, params=params)).json() == {"grants": [grant]}
    other = await client.get(GRANTS, params={"user_id": new_user, "app": "claude"})
    assert other.json() == {"grants": []}
    gone = await client.delete(f"{GRANTS}/{grant['id']}", params={"user_id": new_user})
    assert gone.status_code == 200
    assert (await client.get(GRANTS, params={"user_id": new_user})).json() == {"grants": []}


async def test_a_rule_shows_the_name_beside_the_id(client, new_user, remember):
    row = await remember(new_user, "one", app="claude")
    for type_, object_, name in (
        ("app", "claude", "claude"), ("category", f"of {new_user}", f"of {new_user}"),
        ("namespace", "private", "private"), ("memory", row["id"], None), ("all", None, None),
    ):  # fmt: skip
        rule = {"user_id": new_user, "effect": "deny", "object_type": type_, "object": object_}
        assert (await client.post(GRANTS, json=rule)).json()["object_name"] == name
    listed = (await client.get(GRANTS, params={"user_id": new_user})).json()["grants"]
    assert [grant["object_name"] for grant in listed] == ["claude", f"of {new_user}", "private", None, None]
    assert listed[0]["object"] == row["app_id"]


async def test_a_rule_and_a_policy_without_a_user_are_their_owners_where_no_credential_is_asked_for(client, new_user):
    rule = {"user_id": new_user, "effect": "deny", "object_type": "all"}
    grant = (await client.post(GRANTS, json=rule)).json()
    assert (await client.delete(f"{GRANTS}/{grant['id']}")).status_code == 200
    policies = "/api/v1/archive-policies"
    new = {"user_id": new_user, "criteria_type": "user", "days_to_archive": 30}
    policy = (await client.post(policies, json=new)).json()
    assert (await client.delete(f"{policies}/{policy['id']}")).status_code == 200
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


async def test_a_category_of_any_name_can_be_ruled_before_anything_is_filed_under_it(client, new_user, remember):
    elsewhere = f"known to {new_user}'s neighbour"
    await remember(f"{new_user}-other", "theirs", categories=[elsewhere])
    for name in (elsewhere, f"new to {new_user}"):
        rule = {"user_id": new_user, "effect": "deny", "object_type": "category", "object": name}
        answer = await client.post(GRANTS, json=rule)
        assert answer.status_code == 201, answer.text
        mine = await remember(new_user, f"about {name}", categories=[name])
        told = await client.get(f"{GRANTS}/explain", params=asked(new_user, "openmemory", mine["id"]))
        assert told.json()["reason"] == f"denied by the rule that hides category {name!r} from every app"


async def test_the_id_of_a_category_is_taken_only_from_who_files_or_rules_under_it(client, new_user, remember):
    name = f"shared by {new_user}"
    await remember(f"{new_user}-other", "theirs", categories=[name])
    theirs = {"user_id": f"{new_user}-other", "effect": "deny", "object_type": "category", "object": name}
    id_ = (await client.post(GRANTS, json=theirs)).json()["object"]
    mine = {"user_id": new_user, "effect": "allow", "object_type": "category", "object": id_}
    unknown = mine | {"object": str(uuid4())}
    for rule in (mine, unknown):
        answer = await client.post(GRANTS, json=rule)
        assert (answer.status_code, answer.json()["detail"]) == (404, "Category not found")
    by_name = await client.post(GRANTS, json=mine | {"object": name})
    assert (by_name.status_code, by_name.json()["object"]) == (201, id_)
    assert (await client.post(GRANTS, json=mine)).json()["id"] == by_name.json()["id"]
    assert (await client.post(GRANTS, json=theirs | {"object": id_})).status_code == 201


async def test_a_rule_is_explained(client, new_user, remember):
    row = await remember(new_user, "the dentist is in Elm Street", namespace="private", app="claude")
    rule = {"user_id": new_user, "effect": "deny", "app": "claude", "object_type": "namespace", "object": "private"}
    grant = (await client.post(GRANTS, json=rule)).json()
    answer = await client.get(f"{GRANTS}/explain", params=asked(new_user, "claude", row["id"]))
    assert answer.json() == {
        "allowed": False,
        "reason": "denied by the rule that hides namespace 'private' from claude",
        "rule": grant,
        "considered": [grant],
    }


async def test_what_is_not_there_or_somebody_elses_is_not_explained(client, new_user, remember):
    await remember(new_user, "mine", app="claude")
    theirs = await remember(f"{new_user}-other", "theirs", app="claude")
    for params, status, words in (
        (asked(new_user, "claude", theirs["id"]), 404, "Memory not found"),
        (asked(new_user, "nobody", theirs["id"]), 404, "App not found"),
        (asked(f"{new_user}-nobody", "claude", theirs["id"]), 404, "App not found"),
        (asked(new_user, " ", theirs["id"]), 422, "app: must not be empty or blank"),
        (asked(new_user, "claude", "tea"), 422, "memory_id: input should be a valid UUID"),
    ):
        answer = await client.get(f"{GRANTS}/explain", params=params)
        assert answer.status_code == status
        assert answer.json()["detail"].startswith(words)


def asked(user: str, app: str, memory: str) -> dict[str, str]:
    return {"user_id": user, "app": app, "memory_id": memory}
