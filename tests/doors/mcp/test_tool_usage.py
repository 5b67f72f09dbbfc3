"""Counts of the calls of tools: who called which, with how many results and tokens, and nobody else's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from openmemory.projects import tokens

Call = Callable[..., Awaitable[dict[str, Any]]]


async def _report(client: httpx.AsyncClient, user: str, **params: Any) -> Any:
    answer = await client.get("/api/v1/stats/tools", params={"user_id": user, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()


def _tokens(result: dict[str, Any]) -> int:
    return tokens.count("\n".join(one["text"] for one in result["content"]))


async def test_every_answered_call_is_counted_with_its_results_and_tokens(
    new_user: str, call: Call, http: httpx.AsyncClient
) -> None:
    first = await call("add_memories", text="Alice likes jasmine tea.")
    found = [await call("search_memory", query="tea for Alice?", format=form) for form in ("compact", "json")]
    await call("memory_set", project_id="shop", topic="stack", key="db", value="MySQL")
    refused = await call("memory_set", project_id="shop", topic="", key="db", value="MySQL")
    assert refused["isError"]

    report = await _report(http, new_user)
    by_tool = {one["tool"]: one for one in report["tools"]}
    assert {name: one["calls"] for name, one in by_tool.items()} == {
        "add_memories": 1, "search_memory": 2, "memory_set": 1,
    }  # fmt: skip
    assert by_tool["search_memory"]["items"] == 2
    assert by_tool["search_memory"]["used"] == sum(map(_tokens, found))
    assert 0 < by_tool["search_memory"]["saved"] < _tokens(found[1])
    assert by_tool["add_memories"]["used"] == _tokens(first)
    assert {one["app_name"] for one in report["tools"]} == {report["days"][0]["app_name"]}
    assert report["total"]["calls"] == 4
    assert sum(one["used"] for one in report["days"]) == report["total"]["used"]
    assert "jasmine" not in str(report)

    of_shop = await _report(http, new_user, namespace="shop")
    assert [(one["tool"], one["namespace"]) for one in of_shop["days"]] == [("memory_set", "shop")]
    await call("search_memory", query="tea", namespace="nowhere")  # a call may name anything
    assert {one["namespace"] for one in (await _report(http, new_user))["days"]} == {"default", "shop"}
    assert (await _report(http, new_user, namespace="nowhere"))["total"]["calls"] == 0
    lines = await call("tool_usage", format="compact")
    assert "search_memory" in lines["content"][0]["text"]
    of_another = await call("tool_usage", _app="cursor", format="compact")
    assert of_another["content"][0]["text"] == "No tool was called."
    assert (await _report(http, "nobody-" + new_user))["total"]["calls"] == 0
