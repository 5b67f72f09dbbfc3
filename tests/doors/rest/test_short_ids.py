"""Short ids over REST: everywhere where a request names a memory, and only among what the caller may read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy import insert

from openmemory.access.schemas import KeyCreate
from openmemory.identity.principal import LOCAL
from openmemory.memories.models import Memory
from openmemory.services import Services

MEMORIES, ACTIONS, GRANTS = "/api/v1/memories", "/api/v1/memories/actions", "/api/v1/grants"

Same = Callable[..., Awaitable[list[str]]]
Remember = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
def same(services: Services) -> Same:
    """Adds a memory for each of some users and texts. Their ids have the first 8 digits in common, and no more."""

    async def add(*whose: tuple[str, str]) -> list[str]:
        start, ids = uuid4().hex[:8], []
        for number, (user, text) in enumerate(whose):
            caller = await services.directory.caller(user, "claude")
            ids.append(UUID(f"{start}{number:x}{uuid4().hex[9:]}"))
            row = {"user_id": caller.user_id, "app_id": caller.app_id, "content": text, "hash": ids[-1].hex}
            async with services.database.transaction() as tx:
                await tx.execute(insert(Memory).values(id=ids[-1], **row))
        return list(map(str, ids))

    return add


async def test_a_memory_is_read_and_changed_by_its_first_characters(
    client: httpx.AsyncClient, new_user: str, remember: Remember
) -> None:
    id_ = (await remember(new_user, "I live in Bonn", categories=["home"]))["id"]
    for short in (id_[:6], id_[:13].upper(), id_[:9]):
        for part in ("", "/history", "/related", "/access-log"):
            answer = await client.get(f"{MEMORIES}/{short}{part}", params={"user_id": new_user})
            assert answer.status_code == 200, answer.text
    assert (await client.get(f"{MEMORIES}/{id_[:6]}", params={"user_id": new_user})).json()["id"] == id_
    changed = await client.put(f"{MEMORIES}/{id_[:6]}", json={"user_id": new_user, "memory_content": "In Graz"})
    assert (changed.status_code, changed.json()["id"]) == (200, id_)
    body = {"user_id": new_user, "memory_ids": [id_[:6], id_]}
    for method, path in (
        ("DELETE", MEMORIES), ("POST", f"{ACTIONS}/restore"), ("POST", f"{ACTIONS}/pause"),
        ("POST", f"{ACTIONS}/archive"), ("POST", f"{ACTIONS}/restore"), ("POST", f"{ACTIONS}/erase"),
    ):  # fmt: skip
        answer = await client.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        assert "1 memories" in answer.json()["message"]
        if "restore" in path:
            assert answer.json()["memory_ids"] == [id_, id_]
    assert (await client.get(f"{MEMORIES}/{id_}", params={"user_id": new_user})).status_code == 404


async def test_a_list_of_short_ids_is_archived_and_one_that_has_expired_is_erased(
    client: httpx.AsyncClient, new_user: str, remember: Remember
) -> None:
    one = (await remember(new_user, "one"))["id"]
    done = await client.post(f"{ACTIONS}/archive", params={"user_id": new_user}, json=[one[:8]])
    assert done.json() == {"message": "Successfully archived 1 memories"}
    past = (await remember(new_user, "two", expires_at="2001-01-01T00:00:00Z", created_at="2000-01-01"))["id"]
    assert (await client.get(f"{MEMORIES}/{past[:8]}", params={"user_id": new_user})).status_code == 404
    erased = await client.post(f"{ACTIONS}/erase", json={"user_id": new_user, "memory_ids": [past[:8]]})
    assert erased.json() == {"message": "Successfully erased 1 memories"}


async def test_rules_are_made_and_explained_by_short_ids(
    client: httpx.AsyncClient, new_user: str, remember: Remember
) -> None:
    id_ = (await remember(new_user, "I live in Bonn", app="claude"))["id"]
    rule = {"user_id": new_user, "effect": "deny", "app": "claude", "object_type": "memory", "object": id_[:8]}
    made = await client.post(GRANTS, json=rule)
    assert (made.status_code, made.json()["object"]) == (201, id_)
    asked = {"user_id": new_user, "app": "claude", "memory_id": id_[:8]}
    told = await client.get(f"{GRANTS}/explain", params=asked)
    assert (told.status_code, told.json()["allowed"]) == (200, False)
    for object_, status, code in ((_other(id_), 404, "memory_not_found"), ("tea", 422, "invalid")):
        answer = await client.post(GRANTS, json=rule | {"object": object_})
        assert (answer.status_code, answer.json()["error"]) == (status, code)


async def test_one_that_is_unknown_or_malformed_is_refused_as_a_whole_id_is(
    client: httpx.AsyncClient, new_user: str, remember: Remember
) -> None:
    id_ = (await remember(new_user, "I live in Bonn"))["id"]
    for given, status, words in (
        (_other(id_), 404, "Memory not found"),
        (id_[:3], 422, "memory_id: input should be a valid UUID, or its first characters (4 or more)"),
        ("tea-pot", 422, "memory_id: input should be a valid UUID"),
        (f"{id_}0", 422, "memory_id: input should be a valid UUID"),
    ):
        answer = await client.get(f"{MEMORIES}/{given}", params={"user_id": new_user})
        assert (answer.status_code, answer.json()["detail"].startswith(words)) == (status, True), answer.text


async def test_an_ambiguous_one_is_a_conflict_that_names_candidates(
    client: httpx.AsyncClient, new_user: str, same: Same
) -> None:
    ids = await same(*((new_user, f"Fact {number}") for number in range(5)))
    short = ids[0][:8]
    requests = [
        ("GET", f"{MEMORIES}/{short}", None),
        ("PUT", f"{MEMORIES}/{short}", {"memory_content": "x"}),
        ("DELETE", MEMORIES, {"memory_ids": [short]}),
        ("GET", f"{GRANTS}/explain?app=claude&memory_id={short}", None),
        ("POST", GRANTS, {"effect": "deny", "object_type": "memory", "object": short}),
        *(("POST", f"{ACTIONS}/{name}", {"memory_ids": [short]}) for name in ("archive", "pause", "restore", "erase")),
    ]
    for method, path, body in requests:
        whose = {"params": {"user_id": new_user}} if body is None else {"json": body | {"user_id": new_user}}
        answer = await client.request(method, httpx.URL(path).copy_merge_params(whose.pop("params", {})), **whose)
        assert (answer.status_code, answer.json()["error"]) == (409, "ambiguous_id"), answer.text
        assert f"{short} is the beginning of 5 ids of memories." in answer.json()["detail"]
        named = ", ".join(id_[:10] for id_ in ids[:3])
        assert answer.json()["hint"] == f"Give more characters of the id, such as {named}."
    answer = await client.get(f"{MEMORIES}/{ids[3][:10]}", params={"user_id": new_user})
    assert answer.json()["text"] == "Fact 3"


async def test_memories_of_other_users_make_no_short_id_ambiguous(
    client: httpx.AsyncClient, new_user: str, same: Same
) -> None:
    mine, theirs = await same((new_user, "mine"), (f"{new_user}-other", "theirs"))
    answer = await client.get(f"{MEMORIES}/{mine[:8]}", params={"user_id": new_user})
    assert (answer.status_code, answer.json()["text"]) == (200, "mine")
    hidden = await client.get(f"{MEMORIES}/{theirs[:10]}", params={"user_id": new_user})
    unknown = await client.get(f"{MEMORIES}/{_other(theirs)}", params={"user_id": new_user})
    assert (hidden.status_code, hidden.json()) == (404, unknown.json())


async def test_memories_that_a_key_may_not_read_make_no_short_id_ambiguous(
    services: Services, new_user: str, same: Same, client: httpx.AsyncClient, make_client: Any
) -> None:
    mine, hidden = await same((new_user, "mine"), (new_user, "hidden"))
    rule = {"user_id": new_user, "effect": "deny", "app": "claude", "object_type": "memory", "object": hidden}
    assert (await client.post(GRANTS, json=rule)).status_code == 201

    async def asked(**about: Any) -> httpx.Response:
        key = await services.keys.create(LOCAL, KeyCreate.model_validate({"name": "test", "user_id": new_user} | about))
        async with make_client(access={"require": "always"}) as http:
            headers = {"Authorization": f"Bearer {key.key}"}
            answer: httpx.Response = await http.request(
                "DELETE", MEMORIES, headers=headers, json={"memory_ids": [mine[:8]]}
            )
        return answer

    writer = await asked(scopes=["write"])
    assert (writer.status_code, writer.json()["hint"]) == (409, "Give more characters of the id.")
    assert (await asked(app="claude")).json() == {"message": "Successfully deleted 1 memories"}


async def test_without_a_user_a_short_id_means_a_memory_of_the_default_user(
    client: httpx.AsyncClient, services: Services, new_user: str, same: Same
) -> None:
    default = services.settings.access.default_user
    theirs, own = await same((new_user, "theirs"), (default, "own"))
    answer = await client.get(f"{MEMORIES}/{own[:8]}")
    assert (answer.status_code, answer.json()["text"]) == (200, "own")
    assert (await client.get(f"{MEMORIES}/{theirs[:10]}")).status_code == 404
    assert (await client.get(f"{MEMORIES}/{theirs}")).json()["text"] == "theirs"


def _other(id_: str) -> str:
    """A short id that no memory has, unless by a chance of one in billions."""
    return ("0" if id_[0] != "0" else "1") + uuid4().hex[:11]
