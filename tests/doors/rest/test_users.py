from __future__ import annotations

import pytest


@pytest.mark.parametrize("suffix", ["", "/in a/team", " with ünïcode"])
@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_user_is_erased_with_everything_of_theirs(client, new_user, remember, suffix, slash):
    user = new_user + suffix
    await remember(user, "one")
    await remember(user, "two")
    answer = await client.delete(f"/api/v1/users/{user}{slash}", params={"confirm": user})
    assert (answer.status_code, answer.json()) == (
        200, {"message": "Successfully erased the user and 2 memories"},
    )  # fmt: skip
    erased_again = await client.delete(f"/api/v1/users/{user}{slash}", params={"confirm": user})
    assert (erased_again.status_code, erased_again.json()["detail"]) == (404, "User not found")


@pytest.mark.parametrize("confirm", [None, "somebody else"])
async def test_a_user_is_not_erased_without_their_name_repeated(client, new_user, remember, confirm):
    await remember(new_user, "one")
    answer = await client.delete(f"/api/v1/users/{new_user}", params=confirm and {"confirm": confirm})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("confirm: must repeat the user's name")
    assert (await client.get("/api/v1/memories", params={"user_id": new_user})).json()["total"] == 1


async def test_an_unknown_user_cannot_be_erased(client, new_user):
    answer = await client.delete(f"/api/v1/users/{new_user}", params={"confirm": new_user})
    assert (answer.status_code, answer.json()["error"]) == (404, "user_not_found")
