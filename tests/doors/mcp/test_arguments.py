"""Arguments as models and proxies send them: empty, as JSON text, or of another type."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from openmemory.doors.mcp.server import TOOLS
from openmemory.doors.mcp.tool import Arguments, Tool
from openmemory.doors.mcp.tools.threads import LoggedMessage
from openmemory.services import Services

Ask = Callable[..., Awaitable[httpx.Response]]
Call = Callable[..., Awaitable[dict[str, Any]]]
Failure = Callable[..., Awaitable[str]]

EMPTY: tuple[Any, ...] = ("", [], {}, 0, 0.0, None)


def required(model: type[Arguments]) -> dict[str, Any]:
    """A value for each required argument."""
    values: dict[str, Any] = {"session_num": 3, "state_json": {"a": 1}, "memory_ids": ["x"]}
    values["messages"] = [{"role": "user", "content": "hello"}]
    return {name: values.get(name, "some text") for name, field in model.model_fields.items() if field.is_required()}


@pytest.mark.parametrize("empty", EMPTY, ids=repr)
@pytest.mark.parametrize("tool", TOOLS.values(), ids=list(TOOLS))
def test_an_optional_argument_that_is_empty_is_one_that_is_left_out(tool: Tool[Any], empty: Any) -> None:
    model, given = tool.arguments, required(tool.arguments)
    plain = model.model_validate(given)
    optional = model.model_fields.keys() - given.keys()
    flags = {name for name in optional if model.model_fields[name].annotation is bool}
    values = optional if not isinstance(empty, int | float) else optional - flags - model.zeros
    filled = dict.fromkeys(values, empty)
    assert model.model_validate(filled | given) == plain
    for name in values:
        assert model.leaves_out(name, empty)


@pytest.mark.parametrize("tool", TOOLS.values(), ids=list(TOOLS))
def test_a_required_argument_that_is_left_out_is_named(tool: Tool[Any]) -> None:
    given = required(tool.arguments)
    for name in given:
        with pytest.raises(ValidationError, match=rf"(?m)^{name}$"):
            tool.arguments.model_validate(given | {name: None})


def test_values_that_mean_something_stay() -> None:
    explain = TOOLS["search_memory"].arguments.model_validate({"query": "", "explain": True})
    assert (explain.query, explain.explain) == ("", True)
    for no in (False, 0):
        assert TOOLS["add_memories"].arguments.model_validate({"text": "x", "infer": no}).infer is False
    first = TOOLS["mem_checkpoint"].arguments.model_validate(
        {"reason": "x", "state_json": {}, "expected_revision": 0, "thread": ""}
    )
    assert (first.state_json, first.expected_revision, first.thread) == ({}, 0, None)
    assert TOOLS["list_memories"].arguments.model_validate({"offset": 0}).offset == 0
    assert LoggedMessage.model_validate({"content": "x", "id": "", "created_at": ""}) == LoggedMessage(content="x")


async def test_a_call_with_every_optional_argument_empty_is_the_call_without_them(
    call: Call, services: Services
) -> None:
    added = await call(
        "add_memories", text="I like jazz", infer="", namespace="", categories=[], kind="", thread_id="", key="",
        metadata={}, ttl_days=0, expires_at="", format="", confirmed="",
    )  # fmt: skip
    assert added["structuredContent"]["results"][0]["event"] == "ADD"
    assert "Unknown" not in json.dumps(added)
    await services.outbox_delivery.drain()
    plain = await call("search_memory", query="jazz")
    filled = await call(
        "search_memory", query="jazz", limit=0, namespace="", thread_id="", kind="", categories=[], filter={},
        as_of="", explain="", invented="",
    )  # fmt: skip
    answers = [filled["structuredContent"], plain["structuredContent"]]
    for answer in answers:
        [result] = answer["results"]
        del result["score"]  # the statistics of words may have been counted meanwhile
    assert answers[0] == answers[1]
    listed = await call("list_memories", limit="", offset=0, namespace="")
    assert listed == await call("list_memories")
    logged = await call(
        "log_messages", thread_id="t", messages=[{"content": "hello", "id": "", "created_at": "", "role": ""}],
        namespace="", title="",
    )  # fmt: skip
    assert logged.get("isError", False) is False


async def test_an_empty_summary_stays_and_a_dash_removes_it(call: Call) -> None:
    note = await call("mem_add_memory", title="Old", summary="More.", tags=["a"], repo="", workspace="")
    id_ = note["structuredContent"]["id"]
    changed = await call("mem_update_memory", id=id_, title="New", summary="", tags=[], entities=[], tags_add=[])
    assert (changed["structuredContent"]["title"], changed["structuredContent"]["summary"]) == ("New", "More.")
    removed = await call("mem_update_memory", id=id_, summary="-")
    assert removed["structuredContent"]["summary"] == ""


@pytest.mark.parametrize("headers", [{}, {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"}])
async def test_arguments_as_json_text_are_read(http: httpx.AsyncClient, new_user: str, headers: dict[str, str]) -> None:
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in {
        "protocolVersion": "2026-07-28", "clientInfo": {"name": "x", "version": "1"}, "clientCapabilities": {},
    }.items()}  # fmt: skip

    async def send(name: str, arguments: Any) -> dict[str, Any]:
        params = {"name": name, "arguments": arguments} | ({"_meta": meta} if headers else {})
        named = headers | ({"Mcp-Name": name} if headers else {})
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer: dict[str, Any] = (await http.post(f"/mcp/claude/http/{new_user}", json=message, headers=named)).json()
        return answer

    added = await send("add_memories", '{"text": "I like jazz", "metadata": "{\\"n\\": 123456789012345678901}"}')
    assert added["result"]["structuredContent"]["results"][0]["memory"] == "I like jazz"
    listed = await send("list_memories", "")
    assert listed["result"]["structuredContent"]["result"][0]["metadata"]["n"] == 123456789012345678901
    for wrong in (5, "query", ["jazz"], "[1]", True):
        refused = await send("search_memory", wrong)
        assert refused["error"]["code"] == -32602
        assert refused["error"]["message"].startswith("arguments: must be a JSON object"), refused


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"query": "a", "as_of": "noon"}, "as_of: "),
        ({"query": "a", "as_of": {"a": 1}}, "as_of: "),
        ({"query": "a", "limit": [1]}, "limit: "),
        ({"query": "a", "explain": "perhaps"}, "explain: "),
        ({"query": ["a"]}, "query: "),
        ({"query": "a", "namespace": {"a": 1}}, "namespace: "),
    ],
)
async def test_a_wrong_type_names_the_argument(failure: Failure, arguments: dict[str, Any], said: str) -> None:
    assert said in await failure("search_memory", **arguments)
