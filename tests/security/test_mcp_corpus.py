"""Whatever is sent to the MCP doors is answered soon, in the protocol's words, and does no harm to who comes after."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from openmemory.config.settings import Settings
from openmemory.services import open_services
from tests.clusters import furnish
from tests.doors.mcp.conftest import ACCEPT, serving
from tests.doors.mcp.streams import CLIENT, Stream, stream_of
from tests.journeys.bridging import Bridge, bridged
from tests.journeys.service import Service, short_parent, starting
from tests.security.corpus import Due, Hostile, corpus

MUTATIONS = int(os.environ.get("OPENMEMORY_TEST_MUTATIONS", "150"))
IN_STEPS = pytest.mark.parametrize(
    "step",
    [
        pytest.param(19, id="every nineteenth", marks=pytest.mark.part),
        pytest.param(1, id="all", marks=[pytest.mark.slow, pytest.mark.timeout(400)]),
    ],
)
"""A quick run sends every nineteenth message through each door."""

SOME = 19
"""The doors but one get every nineteenth of the arguments of tools, and all other messages."""
DEADLINE = 20.0
JSON = {"Content-Type": "application/json"}
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
UNLIMITED = {"saves": 0, "searches": 0, "requests": 0, "failures": 0}
INNARDS = re.compile(r'Traceback|site-packages|File \\?"/|\.py\b|pydantic|/tmp/|/root/|psycopg|sqlalchemy')
NAMELESS, NAMED = "/mcp", "/mcp/claude/http/bob"

Eventually = Any


@pytest.fixture(scope="module")
async def http(short_folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings.model_validate({"data_dir": str(furnish(short_folder / "corpus")), "rates": UNLIMITED})
    opened: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def serve() -> None:
        async with open_services(settings) as services, serving(services) as address:
            opened.set_result(address)
            await over.wait()

    living = asyncio.create_task(serve())
    url = await asyncio.wait_for(opened, 60)
    async with httpx.AsyncClient(base_url=url, headers=ACCEPT, timeout=DEADLINE) as client:
        yield client
    over.set()
    await living


def decoded(text: str | bytes) -> Any:
    """An answer, which must be JSON in the strict sense."""

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def look_at(message: Any, sent: Hostile) -> None:
    """An answer is an answer of the protocol, under the id of the request if it had one, and tells nothing of us."""
    shown = (sent.body[:300], message)
    assert message["jsonrpc"] == "2.0", shown
    assert ("result" in message) != ("error" in message), shown
    if "error" in message:
        assert isinstance(message["error"]["code"], int), shown
        assert isinstance(message["error"]["message"], str), shown
    told = json.dumps(message)
    assert not INNARDS.search(told.replace(json.dumps(sent.id), "")), shown
    if sent.due is Due.ANSWER:
        assert message["id"] == sent.id, shown
        assert type(message["id"]) is type(sent.id), shown
    elif sent.due is not Due.EITHER:
        assert "error" in message, shown


async def posted(http: httpx.AsyncClient, path: str, sent: Hostile, **headers: str) -> httpx.Response:
    """What comes of a message, or of a batch of them, over streamable HTTP."""
    if sent.body.lstrip().startswith(b"["):
        sent = replace(sent, due=Due.EITHER)  # each message of a batch has an answer of its own, or none
    answer = await http.post(path, content=sent.body, headers=JSON | headers)
    assert answer.status_code < 500, (sent, answer.text)
    assert not INNARDS.search(answer.text.replace(json.dumps(sent.id), "")) or answer.is_success, (sent, answer.text)
    if answer.status_code == 202:
        assert sent.due in (Due.NOTHING, Due.EITHER), sent
        assert answer.text in ("", "null"), answer.text
    else:
        assert sent.due is not Due.NOTHING or answer.status_code >= 400, (sent, answer.text)
        told = decoded(answer.content)
        for message in told if isinstance(told, list) else [told]:
            look_at(message, sent)
    return answer


async def assert_well(http: httpx.AsyncClient, path: str) -> None:
    """A well-meaning client is served as ever."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_memories", "arguments": {}}}
    answer = await http.post(path, json=call)
    assert (answer.status_code, answer.json()["result"].get("isError", False)) == (200, False)


async def assert_nothing_is_left(eventually: Eventually, before: int) -> None:
    """No task of a hostile request goes on."""

    async def gone() -> bool:
        return len(asyncio.all_tasks()) <= before + 2

    await eventually(gone)


def sessionless(sent: Hostile) -> tuple[Hostile, dict[str, str]]:
    """A message as it is sent without a handshake: with what the protocol of 2026 wants in it and before it."""
    headers = {"MCP-Protocol-Version": "2026-07-28"}
    if sent.due is not Due.ANSWER:
        return sent, headers
    message = json.loads(sent.body)
    params = message.get("params") or {}
    params["_meta"] = MODERN | (params["_meta"] if isinstance(params.get("_meta"), dict) else {})
    message["params"] = params
    for header, value in (("Mcp-Method", message["method"]), ("Mcp-Name", params.get("name"))):
        if (
            isinstance(value, str)
            and value.isascii()
            and value.isprintable()
            and value == value.strip()
            and len(value) < 1_000
        ):
            headers[header] = value
    text = json.dumps(message).replace("Infinity", "1e400")
    return Hostile(text.encode(), Due.ANSWER, sent.id), headers


@pytest.mark.parametrize(
    ("path", "step", "every"),
    [
        pytest.param(NAMED, 1, 1, marks=pytest.mark.slow),
        pytest.param(NAMED, 19, 1, marks=pytest.mark.part),
        (NAMELESS, 7, SOME),
        pytest.param(NAMELESS, 1, SOME, marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(400)
async def test_streamable_http_answers_whatever_comes(
    http: httpx.AsyncClient, eventually: Eventually, path: str, step: int, every: int
) -> None:
    await assert_well(http, path)
    before = len(asyncio.all_tasks())
    statuses: Counter[int] = Counter()
    for sent in corpus(1, MUTATIONS, every=every)[::step]:
        statuses[(await posted(http, path, sent)).status_code] += 1
    assert statuses[200] > 300 // step
    assert statuses[400] > 200 // step
    await assert_well(http, path)
    await assert_nothing_is_left(eventually, before)


@IN_STEPS
async def test_the_sessionless_protocol_answers_whatever_comes(
    http: httpx.AsyncClient, eventually: Eventually, step: int
) -> None:
    await assert_well(http, NAMED)
    before = len(asyncio.all_tasks())
    statuses: Counter[int] = Counter()
    for each in corpus(2, MUTATIONS, every=SOME)[::step]:
        sent, headers = sessionless(each)
        statuses[(await posted(http, NAMED, sent, **headers)).status_code] += 1
    assert statuses[200] > 300 // step
    await assert_well(http, NAMED)
    await assert_nothing_is_left(eventually, before)


HEADERS: list[dict[str, str]] = [
    {"Content-Type": kind}
    for kind in ("", "text/plain", "application/jsonp", "multipart/form-data", "application/json; charset=utf-16",
    "x" * 5_000)
] + [
    {"Accept": kind} for kind in ("", "text/html", "*/*;q=0", "application/json;q=0, */*", ",,,", "a" * 5_000)
] + [
    {"MCP-Protocol-Version": version} for version in ("", "0", "9999-99-99", "../..", "2025-06-18, 2026-07-28",
    "v" * 5_000)
] + [
    {"Mcp-Session-Id": id_} for id_ in ("", "../..", "0" * 5_000, "' OR 1=1 --")
] + [
    {"MCP-Protocol-Version": "2026-07-28", **more}
    for more in (
        {}, {"Mcp-Method": "ping"}, {"Mcp-Method": "tools/call"}, {"Mcp-Method": "tools/call",
        "Mcp-Name": "add_memories"},
        {"Mcp-Method": "tools/call", "Mcp-Name": "=?base64?!!!?="}, {"Mcp-Method": "tools/call",
        "Mcp-Name": "=?base64?/w==?="},
        {"Mcp-Method": "tools/list", "Mcp-Name": "list_memories"}, {"Mcp-Param-Limit": "x", "Mcp-Method": "tools/call"},
    )
] + [
    {"Content-Encoding": "gzip"}, {"Expect": "100-continue"}, {"X-HTTP-Method-Override": "DELETE"},
    {"Last-Event-ID": "1"}, {"X-Forwarded-For": "' OR 1=1"}, {"Authorization": "Bearer"},
    {"Authorization": "Basic Og=="},
]  # fmt: skip


@pytest.mark.parametrize("headers", HEADERS, ids=range(len(HEADERS)))
async def test_headers_that_contradict_the_message_break_nothing(
    http: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    for modern in (False, True):
        params: dict[str, Any] = {"name": "list_memories", "arguments": {}} | ({"_meta": MODERN} if modern else {})
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        async with httpx.AsyncClient(base_url=http.base_url, headers=ACCEPT | JSON, timeout=DEADLINE) as apart:
            answer = await apart.post(NAMED, content=json.dumps(message).encode(), headers=headers)
        assert answer.status_code < 500, answer.text
        assert not INNARDS.search(answer.text), answer.text
        assert answer.status_code == 200 or answer.status_code >= 400, answer.text
    await assert_well(http, NAMED)


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%00", "a%00b", "%ff", "%ed%a0%80", "%20", "%0d%0aX:%201",
    "__proto__",
             "x" * 300, "%F0%9F%98%80", "%5c", "~", ";a=1", "%3Fkey%3D1", "%E2%80%AE", "{user}", "%7B7*7%7D"],
)  # fmt: skip
async def test_names_in_the_address_are_names_or_refused(http: httpx.AsyncClient, name: str) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_memories", "arguments": {}}}
    for path in (f"/mcp/{name}/http/bob", f"/mcp/claude/http/{name}", f"/mcp/{name}/http/{name}/"):
        answer = await http.post(path, json=call)
        assert answer.status_code in (200, 400, 404, 405), (path, answer.text)
        assert not INNARDS.search(answer.text), answer.text
        refused = await http.post(path.replace("/http/", "/sse/"), json=call)
        assert 400 <= refused.status_code < 500, (path, refused.text)
    await assert_well(http, NAMED)


async def said(http: httpx.AsyncClient, stream: Stream, sent: Hostile) -> int:
    """What comes of a message over SSE."""
    accepted = await http.post(stream.messages, content=sent.body, headers=JSON)
    assert accepted.status_code < 500, (sent, accepted.text)
    if accepted.status_code != 202:
        assert sent.due in (Due.ERROR, Due.REFUSAL, Due.EITHER), (sent, accepted.text)
        look_at(decoded(accepted.content), sent)
    elif sent.due is Due.ANSWER:
        name, data = await stream.event()
        assert name == "message"
        look_at(decoded(data), sent)
    else:
        assert sent.due in (Due.NOTHING, Due.EITHER), sent
    return accepted.status_code


@IN_STEPS
async def test_a_session_over_sse_answers_whatever_comes_and_lives_on(
    http: httpx.AsyncClient, eventually: Eventually, step: int
) -> None:
    await assert_well(http, NAMED)
    before = len(asyncio.all_tasks())
    async with stream_of(http, "/mcp/claude/sse/bob") as stream, stream_of(http, "/mcp/cursor/sse/eve") as other:
        await stream.shake_hands()
        await other.shake_hands()
        rng = random.Random(3)
        for sent in corpus(3, MUTATIONS, every=SOME)[::step]:
            if sent.due is Due.EITHER:
                continue  # whether an answer is to be waited for could not be told
            await said(http, stream, sent)
            if rng.random() < 0.05:
                assert (await other.answer({"id": "between", "method": "ping"}))["result"] == {}
        for each in (stream, other):
            assert (await each.answer({"id": "last", "method": "ping"}))["result"] == {}
    await assert_well(http, NAMED)
    await assert_nothing_is_left(eventually, before)


@pytest.fixture(scope="module")
def served() -> Iterator[Service]:
    with short_parent() as parent, starting(furnish(parent / "data")) as start:
        service = start(OPENMEMORY_RATES_SAVES="0", OPENMEMORY_RATES_SEARCHES="0")
        service.ready()
        yield service


async def carried(bridge: Bridge, number: int, sent: Hostile) -> None:
    """What comes of a line on standard input: its answer, if one is due, and nothing else before that of a ping."""
    await bridge.say(sent.body.replace(b"\n", b" "))
    ping = {"jsonrpc": "2.0", "id": f"after {number}", "method": "ping"}
    if sent.due in (Due.ANSWER, Due.ERROR) and sent.body.strip():
        try:
            look_at(await bridge.hear(), sent)
        except TimeoutError:
            raise AssertionError(f"no answer to {sent.body[:300]!r}") from None
    await bridge.say(json.dumps(ping).encode())
    answer = await bridge.hear()
    assert (answer["id"], answer.get("result")) == (ping["id"], {}), (sent, answer)


@pytest.mark.journey
@IN_STEPS
async def test_standard_input_may_hold_whatever_it_likes(served: Service, step: int) -> None:
    async with bridged(served.folder, "bob") as bridge:
        opening = {"protocolVersion": "2025-11-25"} | CLIENT
        await bridge.ask({"id": 0, "method": "initialize", "params": opening})
        for number, sent in enumerate(corpus(4, MUTATIONS, every=SOME)[::step]):
            if sent.due is Due.EITHER:
                continue
            await carried(bridge, number, sent)
        assert await bridge.end() == 0
    assert "Traceback" not in served.err
