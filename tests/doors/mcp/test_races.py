"""Changes of one memory at the same time: each acknowledged change is there afterwards, at every door."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

Call = Callable[..., Awaitable[dict[str, Any]]]
AT_ONCE = 12


async def note(call: Call, **more: Any) -> str:
    return str((await call("mem_add_memory", title="Title", summary="Summary", **more))["structuredContent"]["id"])


async def stored(http: httpx.AsyncClient, user: str, id_: str) -> dict[str, Any]:
    answer = await http.get(f"/api/v1/memories/{id_}", params={"user_id": user})
    detail: dict[str, Any] = answer.json()
    return detail


async def test_tags_that_are_added_at_once_are_all_there(call: Call, http: httpx.AsyncClient, new_user: str) -> None:
    id_ = await note(call)
    tags = [f"tag {number}" for number in range(AT_ONCE)]
    answers = await asyncio.gather(*(call("mem_update_memory", id=id_, tags_add=[tag]) for tag in tags))
    assert {answer["structuredContent"]["event"] for answer in answers} == {"UPDATE"}
    detail = await stored(http, new_user, id_)
    assert sorted(detail["metadata_"]["tags"]) == sorted(tags)
    assert detail["revision"] == 1 + AT_ONCE


async def test_tags_and_entities_that_are_removed_at_once_are_all_gone(
    call: Call, http: httpx.AsyncClient, new_user: str
) -> None:
    names = [f"name {number}" for number in range(AT_ONCE)]
    id_ = await note(call, tags=names, entities=names)
    removals = [{"tags_remove": [name]} for name in names[1:]] + [{"entities_remove": [name]} for name in names[1:]]
    await asyncio.gather(*(call("mem_update_memory", id=id_, **removal) for removal in removals))
    metadata = (await stored(http, new_user, id_))["metadata_"]
    assert (metadata["tags"], metadata["entities"]) == (names[:1], names[:1])


async def test_a_title_a_summary_and_a_tag_that_change_at_once_are_all_kept(
    call: Call, http: httpx.AsyncClient, new_user: str
) -> None:
    for turn in range(4):
        id_ = await note(call)
        changes = [{"title": f"New {turn}"}, {"summary": f"More {turn}"}, {"tags_add": "a"}, {"entities_add": "b"}]
        await asyncio.gather(*(call("mem_update_memory", id=id_, **change) for change in changes))
        detail = await stored(http, new_user, id_)
        assert detail["text"] == f"New {turn}\nMore {turn}"
        assert detail["metadata_"] == {"tags": ["a"], "entities": ["b"]}


async def test_of_changes_that_expect_one_revision_one_wins(call: Call, http: httpx.AsyncClient, new_user: str) -> None:
    id_ = await note(call)

    async def change(number: int) -> httpx.Response:
        body = {"user_id": new_user, "metadata": {"number": number}, "expected_revision": 1}
        return await http.put(f"/api/v1/memories/{id_}", json=body)

    answers = await asyncio.gather(*(change(number) for number in range(AT_ONCE)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * (AT_ONCE - 1)
    [winner] = [number for number, answer in enumerate(answers) if answer.is_success]
    assert (await stored(http, new_user, id_))["metadata_"] == {"number": winner}
    refused = next(answer for answer in answers if answer.status_code == 409).json()
    assert refused["error"] == "memory_changed"
    assert "revision 2, not 1" in refused["detail"]
