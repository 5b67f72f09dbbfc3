"""Connects MCP on standard input and output to the running service over streamable HTTP.

Each message is one POST, whose answer may come after notifications. The service keeps no session, so the bridge
outlives a restart of the service: a call that does not reach the service is retried for a while, and a call whose
answer was lost gets an error instead of hanging.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeGuard
from urllib.parse import quote, unquote, urlsplit

import httpx

from openmemory.config.addresses import is_loopback
from openmemory.config.settings import Settings
from openmemory.doors.mcp.formats import AnswerFormat, default_format
from openmemory.doors.mcp.toolsets import choose_tools
from openmemory.embedded.folder import default_data_dir, running_service
from openmemory.errors import OpenMemoryError
from openmemory.identity.names import one_word
from openmemory.serialization.exact_json import no_number
from openmemory.serialization.surrogates import replace_in_json
from openmemory.serialization.zones import HEADER, machine_zone

# The names below are the protocol's. The SDK has them too, but importing it takes longer than the rest of a start.
VERSION_HEADER, METHOD_HEADER, NAME_HEADER = "mcp-protocol-version", "mcp-method", "mcp-name"
SESSION_HEADER = "mcp-session-id"

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
"""The key inside `params._meta` that holds the version of a message in the sessionless protocol."""

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Methods whose target a header must repeat in the sessionless protocol, and the parameter that holds it."""

BATCHING = "2025-03-26"
"""The only revision of the protocol in which a line may be an array of messages."""

PARSE_ERROR, INVALID_REQUEST, CONNECTION_CLOSED = -32700, -32600, -32000

PATIENCE = 15.0
"""Seconds that a call waits for an unreachable service: the time of a restart."""

ANSWER = 120.0
"""Seconds that an answer may take."""

FAREWELL = 10.0
"""Seconds that pending calls get to be answered after standard input has ended."""

Message = dict[str, Any]

PACKS = {"mem_get_context", "mem_explain"}
"""Tools that leave out memories of commits that are not in the history of the checkout."""

_BRANCH = 200
"""The characters of a branch's name that are sent to the service."""

COMPARED = 60.0
"""Seconds after which commits are compared again with the same checkout, because there may be new ones."""


class GitCheckout(Protocol):
    """The Git repository of the folder in which the bridge was started."""

    def describe(self) -> Mapping[str, str]:
        """Returns the checked-out commit (`head`) and branch. A value that is not known is left out."""

    def compare(self, head: str, commits: Sequence[str]) -> tuple[list[str], list[str]]:
        """Splits commits into those in the history of `head` and the others."""


@dataclass(slots=True)
class HereProject:
    """The project of the folder in which the bridge was started."""

    namespace: str
    folder: str
    checkout: GitCheckout
    note: str | None = None
    """A note for the assistant, which gets it with the instructions of the server."""
    compared: tuple[str | None, float] = (None, 0.0)
    """The last commit with which the commits of memories were compared, and when."""


async def bridge(
    url: str,
    settings: Settings,
    key: str | None,
    *,
    client: str | None = None,
    user: str | None = None,
    own: bool = True,
    toolsets: str | None = None,
    only: str | None = None,
    project: HereProject | None = None,
) -> None:
    """Forwards messages until standard input ends; pending calls are still answered.

    `url` is the address of the service and `key` a credential for it. `own` means that it is the service of the data
    folder: when nobody listens at the address any more, the folder names the address of its successor. Only the
    protocol is written to standard output.

    `toolsets`: those to offer besides the usual tools. `only`: those to offer alone. `project`: what the tools mean if
    a call names no project.

    Without a `user` it is the one that the service means, and without either the app has the client's own name.
    """
    path = "/mcp"
    if client or user:
        path += f"/{quote(client or settings.access.default_app, safe='')}/http/{quote(user or '', safe='')}"
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    # Assistants are at the other end, whatever the address looks like.
    choice = choose_tools(settings.mcp, toolsets, only)
    headers["X-MCP-Format"] = default_format(settings.mcp, choice, AnswerFormat.COMPACT)
    headers |= {name: value for name, value in (("X-MCP-Toolsets", toolsets), ("X-MCP-As", only)) if value is not None}
    if project is not None:
        headers["X-MCP-Project"] = quote(project.namespace, safe="")
        headers["X-MCP-Folder"] = quote(project.folder, safe="")
    if (zone := machine_zone()) is not None:
        headers[HEADER] = zone.key
    if key:
        headers["Authorization"] = f"Bearer {key}"
    timeout = httpx.Timeout(ANSWER, connect=5)
    try:
        # A stream of our own: at its exit the interpreter would complain about data that a closed pipe left in
        # sys.stdout.
        with open(sys.stdout.fileno(), "wb", closefd=False) as out:  # noqa: ASYNC230
            # A proxy from the environment may lead to another machine, but never to this one.
            here = own or is_loopback(urlsplit(url).hostname or "")
            async with httpx.AsyncClient(headers=headers, timeout=timeout, trust_env=not here) as http:
                carrier = _Bridge(http, url, path, settings if own else None, out, app=client, project=project)
                await carrier.run(_lines(sys.stdin.fileno()))
    except* BrokenPipeError:
        pass  # nobody reads the answers any more


class _Bridge:
    def __init__(
        self,
        http: httpx.AsyncClient,
        url: str,
        path: str,
        own: Settings | None,
        out: BinaryIO,
        *,
        app: str | None,
        project: HereProject | None,
    ) -> None:
        """`path` ends with a slash until the service has said which user it means."""
        self._http = http
        self._url = url
        self._path = path
        self._own = own
        self._out = out
        self._app = app
        self._project = project
        self._version: str | None = None
        self._session: dict[str, str] = {}
        self._under_way: dict[str | int, asyncio.Task[None]] = {}

    async def run(self, lines: asyncio.Queue[bytes | None]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
                while (line := await lines.get()) is not None:
                    if line.strip():
                        await self._take(line, group)
                limit.reschedule(asyncio.get_running_loop().time() + FAREWELL)

    async def _take(self, line: bytes, group: asyncio.TaskGroup) -> None:
        line = replace_in_json(line)
        try:
            message = json.loads(line.decode(), parse_constant=no_number)
        except (ValueError, RecursionError):
            self._fail(None, PARSE_ERROR, "Parse error: a line must be one JSON-RPC message")
            return
        if isinstance(message, list) and self._version == BATCHING:
            task = group.create_task(self._carry_batch(message, line))
            if not any(_asks(each) for each in message):
                await asyncio.wait([task])
            return
        if not isinstance(message, dict):
            words = f"Invalid request: a line must be one JSON-RPC message, or under {BATCHING} an array of them"
            self._fail(None, INVALID_REQUEST, words)
            return
        method, id_ = message.get("method"), message.get("id")
        if method == "notifications/cancelled" and "id" not in message:
            self._cancel(message)
            return
        task = group.create_task(self._carry(message, line))
        if method == "initialize" or id_ is None:
            await asyncio.wait([task])  # what follows a handshake or a notification must not overtake it
        elif _is_id(id_):
            self._under_way[id_] = task
            task.add_done_callback(lambda _: self._over(id_, task))

    def _over(self, id_: str | int, task: asyncio.Task[None]) -> None:
        if self._under_way.get(id_) is task:  # a client may use an id twice
            del self._under_way[id_]

    def _cancel(self, message: Message) -> None:
        """Cancels a call by closing its HTTP connection. The call gets no answer."""
        params = message.get("params")
        id_ = params.get("requestId") if isinstance(params, dict) else None
        if _is_id(id_) and (task := self._under_way.get(id_)) is not None:
            task.cancel()

    async def _carry(self, message: Message, line: bytes) -> None:
        notifies = "method" in message and "id" not in message
        answers = "method" not in message and ("result" in message or "error" in message)
        id_ = message.get("id") if "method" in message else None
        id_ = id_ if _is_id(id_) else None
        headers = self._headers(message)
        if message.get("method") == "tools/call" and (head := self._checked_out(headers)):
            params = message.get("params")
            if isinstance(params, dict) and params.get("name") in PACKS:
                await self._compare(head)
        body = await self._answer(line, headers)
        if notifies or body is None:
            return
        if isinstance(body, dict) and "jsonrpc" in body:
            self._note_version(message, body)
            self._add_note(body)
            # An error found before the id was read carries none, but the client that waits for this id must get it.
            self._write(body if body.get("id") is not None else body | {"id": id_})
        elif isinstance(body, str) and not answers:
            self._fail(id_, CONNECTION_CLOSED, body)

    def _checked_out(self, headers: dict[str, str]) -> str | None:
        """Adds the commit and the branch of the folder to the headers. Returns the commit, if there is one."""
        description = {} if self._project is None else self._project.checkout.describe()
        if (branch := description.get("branch")) is not None and len(branch) <= _BRANCH:
            headers["X-MCP-Branch"] = quote(branch, safe="")
        if (head := description.get("head")) is not None:
            headers["X-MCP-Head"] = head
        return head

    async def _compare(self, head: str) -> None:
        """Compares the commits of the project's memories with the checkout, which the service cannot. The pack
        itself reports a failure, which notes that commits were not compared."""
        project, clock = self._project, asyncio.get_running_loop().time
        assert project is not None
        before, when = project.compared
        if before == head and clock() - when < COMPARED:
            return
        place = {"namespace": project.namespace, "head": head} | ({"app": self._app} if self._app else {})
        _, name, user = self._path.partition("/http/")
        if name and user:
            place["user_id"] = unquote(user)
        with suppress(httpx.HTTPError):
            body = _json(await self._http.get(f"{self._url}/api/v1/anchors", params=place))
            if not isinstance(body, dict) or "anchors" not in body:
                return
            unknown = [one["commit"] for one in body["anchors"] if one["reachable"] is None]
            if unknown:
                reachable, orphaned = await asyncio.to_thread(project.checkout.compare, head, unknown)
                comparison = {"reachable": reachable, "orphaned": orphaned}
                answer = await self._http.post(f"{self._url}/api/v1/anchors", json=place | comparison)
                if not answer.is_success:
                    return
            project.compared = head, clock()

    async def _carry_batch(self, messages: list[Any], line: bytes) -> None:
        """Forwards an array of messages, whose answers come in one array."""
        body = await self._answer(line, {VERSION_HEADER: BATCHING})
        if isinstance(body, str):
            body = [_error(message["id"], CONNECTION_CLOSED, body) for message in messages if _asks(message)]
        if body:
            self._write(body)

    async def _answer(self, line: bytes, headers: dict[str, str]) -> Message | list[Any] | str | None:
        """Posts a line and returns the message or the array that came back, or the reason why none did. Returns None if
        the answer was a stream, which is forwarded as it comes."""
        try:
            async with aclosing(await self._post(line, headers)) as response:
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    await self._follow(response)
                    return None
                await response.aread()
        except httpx.ConnectError:
            return "The OpenMemory service is not running; start it and call again."
        except httpx.HTTPError as error:
            return f"The OpenMemory service went away during the call ({type(error).__name__})."
        body = _json(response)
        if isinstance(body, list) or (isinstance(body, dict) and "jsonrpc" in body):
            return body
        return _explain(response, body)

    def _headers(self, message: Message) -> dict[str, str]:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        version = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
        if not isinstance(version, str):
            return {VERSION_HEADER: self._version} if self._version else {}
        method = str(message.get("method", ""))
        headers = {VERSION_HEADER: _header(version), METHOD_HEADER: _header(method)}
        name = params.get(NAMED_BY.get(method, ""))
        if isinstance(name, str):
            headers[NAME_HEADER] = _header(name)
        return headers

    async def _follow(self, response: httpx.Response) -> None:
        """Forwards each message of a streamed answer: first notifications, and last the answer to the request.

        Raises:
            httpx.HTTPError: the stream ended before the answer.
        """
        last: Message = {}
        async for line in response.aiter_lines():
            if line.startswith("data:") and line.strip() != "data:":
                try:
                    last = json.loads(line[5:])
                except ValueError:
                    raise httpx.RemoteProtocolError("the answer contains something that is not a message") from None
                self._write(last)
        if "result" not in last and "error" not in last:
            raise httpx.RemoteProtocolError("the answer ended early")

    async def _post(self, body: bytes, headers: dict[str, str]) -> httpx.Response:
        """Sends a POST and returns the unread response. Retries only while nobody listens, because then nothing was
        done."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + PATIENCE
        pause = 0.05
        while True:
            try:
                if self._path.endswith("/"):
                    answer = await self._http.get(f"{self._url}/api/v1/me")
                    me = _json(answer)
                    if not isinstance(me, dict) or "user" not in me:
                        return answer
                    self._path += quote(me["user"], safe="")
                request = self._http.build_request(
                    "POST", self._url + self._path, content=body, headers=headers | self._session
                )
                response = await self._http.send(request, stream=True)
            except httpx.ConnectError:
                if clock() > deadline:
                    raise
            else:
                if session := response.headers.get(SESSION_HEADER):
                    self._session = {SESSION_HEADER: session}
                return response
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 2)
            if self._own is not None:
                successor = await asyncio.to_thread(_successor, self._own)
                self._url = successor or self._url

    def _note_version(self, message: Message, answer: Message) -> None:
        if message.get("method") == "initialize" and isinstance(answer.get("result"), dict):
            version = answer["result"].get("protocolVersion")
            self._version = version if isinstance(version, str) else None

    def _add_note(self, answer: Message) -> None:
        """Adds what the assistant should know of the folder to the instructions of the server."""
        result = answer.get("result")
        if self._project and isinstance(result, dict) and isinstance(result.get("instructions"), str):
            note = f"\n{self._project.note}" if self._project.note else ""
            name = one_word(self._project.namespace, "that of the folder")
            result["instructions"] += f"\nThe project is {name}.{note}"

    def _fail(self, id_: Any, code: int, text: str) -> None:
        self._write(_error(id_, code, text))

    def _write(self, message: Message | list[Any]) -> None:
        self._out.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        self._out.flush()


def _successor(settings: Settings) -> str | None:
    """Returns the current address of the data folder's service; None if it does not run."""
    try:
        service = running_service(Path(settings.data_dir) if settings.data_dir else default_data_dir())
    except OpenMemoryError:
        return None
    return service.url if service is not None and service.url.startswith("http") else None


def _is_id(value: Any) -> TypeGuard[str | int]:
    """Returns True if an answer can carry this id. In Python True is an integer, in JSON it is not."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def _asks(message: Any) -> bool:
    """Returns True if a message of a batch is a request, which gets an answer."""
    return isinstance(message, dict) and "method" in message and _is_id(message.get("id"))


def _error(id_: Any, code: int, text: str) -> Message:
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": text}}


def _json(response: httpx.Response) -> Message | list[Any] | None:
    try:
        body = json.loads(response.content)
    except ValueError:
        return None
    return body if isinstance(body, dict | list) else None


def _explain(response: httpx.Response, body: Message | None) -> str:
    """Returns the words of an answer that is not JSON-RPC: those of the guard, such as that a key is needed."""
    words = [str(body[part]) for part in ("detail", "hint") if body.get(part)] if body is not None else []
    if response.status_code == httpx.codes.UNAUTHORIZED:
        words[1:] = ["Set OPENMEMORY_API_KEY to a key of that service where this program is started."]
    return " ".join(words) or f"The OpenMemory service answered {response.status_code} and no message."


def _header(value: str) -> str:
    """Returns a value as a header of the sessionless protocol: unchanged, or in base64 if HTTP could not carry it."""
    if value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="


def _lines(descriptor: int) -> asyncio.Queue[bytes | None]:
    """Returns a queue of the lines of a blocking stream; None marks its end.

    A daemon thread reads the descriptor and bypasses sys.stdin, whose lock the interpreter would wait for at its exit.
    A read that nothing answers therefore blocks nothing.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    def put(*lines: bytes | None) -> None:
        with suppress(RuntimeError):  # the loop has ended before the input
            for line in lines:
                loop.call_soon_threadsafe(queue.put_nowait, line)

    def read() -> None:
        rest = b""
        while chunk := os.read(descriptor, 1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            put(*lines)
        put(rest, None)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    return queue
