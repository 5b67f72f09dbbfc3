from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services

Call = Callable[..., Awaitable[dict[str, Any]]]
Lines = Callable[..., Awaitable[list[str]]]
Failure = Callable[..., Awaitable[str]]
Remember = Callable[..., Awaitable[str]]


async def test_a_search_answers_as_openmemory_did_and_the_same_in_structured_form(
    call: Call, remember: Remember
) -> None:
    memory_id = await remember("I take my tea without sugar", metadata={"source": "chat", "empty": None})
    await remember("The garden gate is green")
    result = await call("search_memory", query="tea with sugar?")
    [content] = result["content"]
    answer = json.loads(content["text"])
    assert content["text"] == json.dumps(answer, separators=(",", ":"), ensure_ascii=False)
    best = answer["results"][0]
    assert (best["id"], best["memory"]) == (memory_id, "I take my tea without sugar")
    assert set(best) == {"id", "memory", "hash", "created_at", "updated_at", "score"}
    structured = result["structuredContent"]
    assert structured["results"][0].items() > best.items()
    assert structured["results"][0]["metadata"] == {"source": "chat", "empty": None}
    assert 0 < best["score"] <= 1
    assert answer["search_method"] in {"hybrid", "database_text"}


async def test_ten_results_unless_told_otherwise(services: Services, call: Call, app_caller: Caller) -> None:
    await services.memories.add_many(app_caller, [MemoryCreate(text=f"Tea of kind {n}") for n in range(12)])
    assert len((await call("search_memory", query="tea"))["structuredContent"]["results"]) == 10
    assert len((await call("search_memory", query="tea", limit=12))["structuredContent"]["results"]) == 12
    assert len((await call("search_memory", query="tea", limit="3"))["structuredContent"]["results"]) == 3


async def test_filters_narrow_the_search(services: Services, call: Call, app_caller: Caller) -> None:
    texts = {
        "namespace": MemoryCreate(text="Tea in the shop", namespace="shop"),
        "thread_id": MemoryCreate(text="Tea in a thread", thread_id="monday"),
        "kind": MemoryCreate(text="Tea as a decision", kind="decision"),
        "categories": MemoryCreate(text="Tea and health", categories=("health",)),
    }
    await services.memories.add_many(app_caller, list(texts.values()))
    filters: dict[str, Any] = {
        "namespace": "shop",
        "thread_id": "monday",
        "kind": "decision",
        "categories": ["health", "sport"],
    }
    for name, value in filters.items():
        [found] = (await call("search_memory", query="tea", **{name: value}))["structuredContent"]["results"]
        assert found["memory"] == texts[name].text
    assert found["categories"] == ["health"]
    condition = {"AND": [{"created_at": {"gte": "2020-01-01"}}, {"OR": [{"kind": "decision"}, {"thread_id": "x"}]}]}
    [found] = (await call("search_memory", query="tea", filter=condition))["structuredContent"]["results"]
    assert found["memory"] == "Tea as a decision"


async def test_nothing_remembered_is_an_empty_answer(call: Call) -> None:
    answer = (await call("search_memory", query="tea"))["structuredContent"]
    assert answer["results"] == []


async def test_what_was_deleted_is_not_found(call: Call, remember: Remember) -> None:
    await call("delete_memories", memory_ids=[await remember("I take my tea without sugar")])
    assert (await call("search_memory", query="tea"))["structuredContent"]["results"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "Error searching memory: query: Field required"),
        ({"query": " \n"}, "Error searching memory: query: must not be empty or blank"),
        ({"query": "a\x00"}, "query: must not contain the NUL character"),
        ({"query": "a" * 4_001}, "query: has 4,001 characters; the limit is 4,000 (limits.query)"),
        ({"query": "a", "limit": 101}, "limit: must be from 1 to 100, not 101"),
        ({"query": "a", "limit": -1}, "limit: must be from 1 to 100, not -1"),
        ({"query": "a", "namespace": " "}, "namespace: must not be empty or blank"),
        (
            {"query": "a", "filter": {"color": "red"}},
            "Error searching memory: filter.color: is not a known field; valid",
        ),
        (
            {"query": "a", "filter": {"kind": {"gt": "a"}}},
            "filter.kind.gt: is not an operator of this field; valid are",
        ),
        ({"query": "a", "filter": "kind"}, "filter: Input should be a valid dictionary"),
        ({"query": "a", "categories": 7}, "categories: Input should be a valid list"),
    ],
)
async def test_what_cannot_be_used_is_said(failure: Failure, arguments: dict[str, Any], said: str) -> None:
    assert said in await failure("search_memory", **arguments)


async def test_an_explanation_is_there_only_where_it_is_asked_for(
    services: Services, call: Call, remember: Remember
) -> None:
    await remember("I take my tea without sugar")
    await services.outbox_delivery.drain()
    plain = (await call("search_memory", query="tea"))["structuredContent"]
    full = await call("search_memory", query="tea", explain=True)
    answer = full["structuredContent"]
    assert json.loads(full["content"][0]["text"])["explanation"] == answer["explanation"]
    [result] = answer["results"]
    why = result["explanation"]
    logit = sum(feature["adds"] for feature in why["features"])
    assert result["score"] == pytest.approx(1 / (1 + math.exp(-logit)))
    assert answer["explanation"]["embedded"] == "tea"
    assert "recency" not in result["parts"]
    assert plain["results"][0].pop("score") == pytest.approx(result.pop("score"), abs=1e-6)
    del answer["explanation"], result["explanation"], result["parts"]
    assert answer == plain


async def test_an_empty_answer_is_one_line_and_an_overview_has_no_scores(call: Call, remember: Remember) -> None:
    await remember("My name is Ada")
    nothing = await call("search_memory", query="quasar redshift", format="compact")
    note = "Nothing was found for “quasar redshift” in the only memory that you may read"
    assert [content["text"] for content in nothing["content"]] == [f"Note: {note}"]
    answer = (await call("search_memory", query="quasar redshift"))["structuredContent"]
    assert (answer["results"], answer["note"]) == ([], note)
    overview = (await call("search_memory", query="what do you know about me?", explain=True))["structuredContent"]
    [only] = overview["results"]
    assert (overview["search_method"], only["memory"], only["score"]) == ("overview", "My name is Ada", None)


async def test_what_was_said_comes_below_the_memories_and_within_the_limit(call: Call, lines: Lines) -> None:
    await call("add_memories", text="The bakery opens at six.")
    said = [
        "The bakery opens at six.",
        "The bakery at the harbour bakes rye bread on Fridays.",
        "x" * 900 + " rye bread",
    ]
    messages = [{"role": "user", "content": text} for text in said]
    await call("log_messages", thread_id="breakfast", messages=messages)
    found = await lines("search_memory", query="which bread does the bakery bake?")
    assert "The bakery opens at six." in found[0]
    assert not found[0].startswith("passage")
    assert found[1].startswith("passage breakfast#2 ")
    assert found[1].endswith("user: The bakery at the harbour bakes rye bread on Fridays.")
    assert sum("opens at six" in line for line in found) == 1  # said once, not twice
    assert all(len(line) < 700 for line in found)
    assert len(await lines("search_memory", query="which bread does the bakery bake?", limit=1)) == 1

    data = (await call("search_memory", query="which bread does the bakery bake?", format="json"))["structuredContent"]
    assert data["passages"][0]["source"] == "breakfast#2"
    only = await lines("search_memory", query="which bread does the bakery bake?", corpus="memories")
    assert len(only) == 1
    [first, *_] = await lines("search_memory", query="which bread does the bakery bake?", corpus="passages")
    assert first.startswith("passage breakfast#2 ")
    filtered = await lines("search_memory", query="bread in the bakery", filter={"app": "claude"})
    assert not any(line.startswith("passage") for line in filtered)
