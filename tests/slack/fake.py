"""A server that speaks Slack's Web API over HTTP, and Socket Mode over a web socket, about one workspace."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any
from urllib.parse import parse_qs

from tests.slack.workspace import Workspace

BOT, APP_LEVEL = "xoxb-a-bot-of-the-tests", "xapp-an-app-of-the-tests"
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class FakeSlack:
    """The server. `page`: the objects of a page at most. `throttle`, `break_cursors`, `fail`: so many of the next
    requests (with a cursor) are refused. `calls`: the methods that were called, with their parameters. `sent`: the
    messages and files. `uploaded`: the authorization and the content of each file."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.page = 200
        self.throttle = 0
        self.retry_after = "0"
        self.break_cursors = 0
        self.fail = 0
        self.refuse: str | None = None
        self.without_scopes = False
        self.calls: list[tuple[str, dict[str, str]]] = []
        self.sent: list[dict[str, str]] = []
        self.uploaded: list[tuple[str | None, bytes]] = []
        self.upload_url = ""
        self.acknowledged: Queue[str] = Queue()
        self.connections: Queue[WebSocket] = Queue()
        self.url = ""

    @property
    def base_url(self) -> str:
        """The address of the Web API."""
        return f"{self.url}/api/"

    def answer(self, method: str, token: str, given: dict[str, str]) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Status, headers and body."""
        self.calls.append((method, given))
        if self.fail:
            self.fail -= 1
            return 503, {}, {"ok": False}
        if self.throttle:
            self.throttle -= 1
            return 429, {"Retry-After": self.retry_after}, {"ok": False, "error": "ratelimited"}
        if self.refuse:
            return 200, {}, {"ok": False, "error": self.refuse}
        if token != (APP_LEVEL if method == "apps.connections.open" else BOT):
            return 200, {}, {"ok": False, "error": "invalid_auth"}
        if given.get("cursor") and self.break_cursors:
            self.break_cursors -= 1
            return 200, {}, {"ok": False, "error": "invalid_cursor"}
        found = getattr(self, "_" + method.replace(".", "_"))(given)
        return 200, {}, {"ok": "error" not in found} | found

    def _auth_test(self, _: dict[str, str]) -> dict[str, Any]:
        return {
            "team": "Analytical Engines",
            "user": "openmemory",
            "url": self.url,
            "user_id": "U0BOT",
            "bot_id": "B0M",
        }

    def _users_list(self, given: dict[str, str]) -> dict[str, Any]:
        return self._paged("members", self.workspace.users, given)

    def _conversations_list(self, given: dict[str, str]) -> dict[str, Any]:
        types = given.get("types", "public_channel").split(",")
        if self.without_scopes and types != ["public_channel"]:
            return {"error": "missing_scope", "needed": "groups:read"}
        return self._paged("channels", [one for one in self.workspace.channels if _type(one) in types], given)

    def _conversations_history(self, given: dict[str, str]) -> dict[str, Any]:
        if (messages := self.workspace.messages.get(given["channel"])) is None:
            return {"error": "channel_not_found"}
        oldest, latest = _key(given.get("oldest", "0.0")), _key(given.get("latest", "99999999999.0"))
        inclusive = given.get("inclusive") == "true"
        found = [one for one in messages if one.get("thread_ts", one["ts"]) == one["ts"]]
        found = [
            one for one in found
            if oldest < _key(one["ts"]) < latest or (inclusive and _key(one["ts"]) in (oldest, latest))
        ]  # fmt: skip
        found.sort(key=lambda one: _key(one["ts"]), reverse=True)
        return self._paged("messages", found, given)

    def _conversations_replies(self, given: dict[str, str]) -> dict[str, Any]:
        messages = sorted(self.workspace.messages[given["channel"]], key=lambda one: _key(one["ts"]))
        first = [one for one in messages if one["ts"] == given["ts"]]
        if not first:
            return {"error": "thread_not_found"}
        replies = [one for one in messages if one.get("thread_ts") == given["ts"] != one["ts"]]
        paged = self._paged("messages", replies, given)
        return paged | {"messages": [*first, *paged["messages"]]}  # each page begins with the first message

    def _users_lookupByEmail(self, given: dict[str, str]) -> dict[str, Any]:
        found = [one for one in self.workspace.users if one.get("profile", {}).get("email") == given["email"]]
        return {"user": found[0]} if found else {"error": "users_not_found"}

    def _conversations_open(self, given: dict[str, str]) -> dict[str, Any]:
        return {"channel": {"id": f"D{given['users']}"}}

    def _chat_postMessage(self, given: dict[str, str]) -> dict[str, Any]:
        self.sent.append(given)
        return {"channel": given["channel"], "ts": "1700000000.000100"}

    def _files_getUploadURLExternal(self, given: dict[str, str]) -> dict[str, Any]:
        return {"upload_url": f"{self.upload_url or self.url}/upload/1", "file_id": f"F{given['length']}"}

    def _files_completeUploadExternal(self, given: dict[str, str]) -> dict[str, Any]:
        self.sent.append(given)
        return {"files": json.loads(given["files"])}

    def _apps_connections_open(self, _: dict[str, str]) -> dict[str, Any]:
        return {"url": self.url.replace("http", "ws") + "/link/?ticket=1"}

    def _paged(self, field: str, found: list[dict[str, Any]], given: dict[str, str]) -> dict[str, Any]:
        size = min(self.page, int(given.get("limit", 100)))
        start = int(base64.b64decode(given["cursor"])) if given.get("cursor") else 0
        more = start + size < len(found)
        cursor = base64.b64encode(str(start + size).encode()).decode() if more else ""
        return {field: found[start : start + size], "has_more": more, "response_metadata": {"next_cursor": cursor}}


class WebSocket:
    """The server's side of a web socket that is open."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._handler = handler
        self._sending = threading.Lock()

    def event(self, id_: str, event: dict[str, Any]) -> None:
        """Sends an event."""
        payload = {"type": "event_callback", "event": event}
        self.send({"envelope_id": id_, "type": "events_api", "accepts_response_payload": False, "payload": payload})

    def send(self, message: dict[str, Any]) -> None:
        """Sends a text."""
        self._frame(1, json.dumps(message).encode())

    def drop(self) -> None:
        """Breaks the connection off, without a farewell."""
        self._handler.connection.shutdown(2)

    def _frame(self, code: int, body: bytes) -> None:
        size = struct.pack(">B", len(body)) if len(body) < 126 else struct.pack(">BH", 126, len(body))
        with self._sending:
            self._handler.wfile.write(bytes([0x80 | code]) + size + body)
            self._handler.wfile.flush()

    def serve(self, acknowledged: Queue[str]) -> None:
        """Reads what the client sends until it goes."""
        file = self._handler.rfile
        while head := file.read(2):
            code, size = head[0] & 15, head[1] & 127
            size = struct.unpack(">H", file.read(2))[0] if size == 126 else size
            mask, body = file.read(4), bytearray(file.read(size))
            for place in range(size):
                body[place] ^= mask[place % 4]
            if code == 8:
                return
            if code == 9:
                self._frame(10, bytes(body))
            elif code == 1:
                acknowledged.put(json.loads(body)["envelope_id"])


@contextmanager
def slack_of(workspace: Workspace) -> Iterator[FakeSlack]:
    """Starts the server about a workspace."""
    fake = FakeSlack(workspace)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path.startswith("/upload/"):
                fake.uploaded.append((self.headers.get("Authorization"), content))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = content.decode()
            given = {name: values[-1] for name, values in parse_qs(body, keep_blank_values=True).items()}
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            status, headers, found = fake.answer(self.path.removeprefix("/api/"), token, given)
            content = json.dumps(found).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": len(content), **headers}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            key = self.headers["Sec-WebSocket-Key"] + _GUID
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
            self.end_headers()
            socket = WebSocket(self)
            socket.send({"type": "hello", "num_connections": 1})
            fake.connections.put(socket)
            socket.serve(fake.acknowledged)
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    class Listening(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Connections that are dropped are what some tests are about."""

    server = Listening(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _type(channel: dict[str, Any]) -> str:
    if channel.get("is_im"):
        return "im"
    return "mpim" if channel.get("is_mpim") else "private_channel" if channel.get("is_private") else "public_channel"


def _key(ts: str) -> tuple[int, int]:
    seconds, _, rest = ts.partition(".")
    return int(seconds), int(rest.ljust(6, "0"))
