"""A server of `/rerank` whose answers a test writes down."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RerankServer:
    """Serves in threads of this process. `score` judges a text; `asked` lists every body in order, `heads` their
    headers. `answer`, where it is set, is sent as it is, with `status`; while `hanging` is set nothing is."""

    def __init__(self, score: Callable[[str], float], *, tei: bool = False) -> None:
        self.score = score
        self.status = 200
        self.answer: bytes | None = None
        self.hanging = threading.Event()
        self.released = threading.Event()
        self.asked: list[dict[str, Any]] = []
        self.heads: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append(body | {"path": self.path})
                outer.heads.append({name.lower(): value for name, value in self.headers.items()})
                if outer.hanging.is_set():
                    outer.released.wait(30)
                texts = body["texts"] if tei else body["documents"]
                name = "score" if tei else "relevance_score"
                found: Any = [{"index": n, name: outer.score(text)} for n, text in enumerate(texts)]
                # As servers do: best first, whatever the order of the texts.
                found.sort(key=lambda one: -one[name])
                answer = outer.answer or json.dumps(found if tei else {"id": "1", "results": found}).encode()
                self.send_response(outer.status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="rerank server")
        self._thread.start()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
