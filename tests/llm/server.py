"""A language model with OpenAI's protocol that answers as a test tells it to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """One answer. `raw`: the whole body, whatever it is; `message`: fields of the message that replace the usual ones;
    `error`: fields of the error in the same way; `delay` in seconds before it."""

    text: str | None = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    finish: str = "stop"
    refusal: str | None = None
    raw: bytes | None = None
    counted: bool = True
    message: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] = field(default_factory=dict)


def says(value: Any, **more: Any) -> Answer:
    """An answer in JSON."""
    return Answer(json.dumps(value), **more)


Script = Callable[[dict[str, Any]], Answer]


class LlmServer:
    """Serves in threads of this process. `script` makes the answer to a request, and may be replaced at any time."""

    def __init__(self, script: Script = lambda _: says({"operations": []})) -> None:
        self.script = script
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with outer._lock:
                    outer.asked.append(asked | {"path": self.path})
                    outer.keys.append(self.headers.get("authorization", "").removeprefix("Bearer "))
                    outer._at_once += 1
                    outer.most_at_once = max(outer.most_at_once, outer._at_once)
                try:
                    answer = outer.script(asked)
                    time.sleep(answer.delay)
                    self._send(answer, asked)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True
                finally:
                    with outer._lock:
                        outer._at_once -= 1

            def _send(self, answer: Answer, asked: dict[str, Any]) -> None:
                body = answer.raw if answer.raw is not None else json.dumps(_completion(answer, asked)).encode()
                self.send_response(answer.status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="language model")
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def _completion(answer: Answer, asked: dict[str, Any]) -> dict[str, Any]:
    if answer.status != 200:
        return {"error": {"message": answer.text or "no", "type": "error"} | answer.error}
    message = {"role": "assistant", "content": answer.text, "refusal": answer.refusal} | answer.message
    prompt = "".join(turn["content"] for turn in asked["messages"])
    done: dict[str, Any] = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": asked["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": answer.finish, "logprobs": None}],
    }  # fmt: skip
    if answer.counted:
        spent, made = len(prompt) // 4, len(answer.text or "") // 4
        done["usage"] = {"prompt_tokens": spent, "completion_tokens": made, "total_tokens": spent + made}
    return done
