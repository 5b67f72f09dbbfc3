"""An embedding server with OpenAI's protocol, whose vectors follow from the words of a text."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from zlib import crc32

import numpy as np


class EmbeddingServer:
    """Serves in threads of this process. `dimension` may change while it runs; `embedded` lists every text in order,
    and `keys` which credentials came.

    Servers of different `model`s make different vectors of the same text. While `away` every answer is a 500.
    """

    def __init__(self, dimension: int, model: str = "") -> None:
        self.dimension = dimension
        self.model = model
        self.away = False
        self.embedded: list[str] = []
        self.keys: set[str] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer.keys.add(self.headers.get("authorization", "").removeprefix("Bearer "))
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                body = json.dumps({"error": {"message": "away"}} if outer.away else outer.answer(asked)).encode()
                self.send_response(500 if outer.away else 200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="embedding server")
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """One vector for each text: the sum of the directions of its words."""
        texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
        self.embedded += texts
        data = []
        for index, text in enumerate(texts):
            vector = self.vector(text)
            encoded: Any = vector.tolist()
            if asked.get("encoding_format") == "base64":
                encoded = base64.b64encode(vector.astype("<f4").tobytes()).decode()
            data.append({"object": "embedding", "index": index, "embedding": encoded})
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "model": asked["model"], "data": data, "usage": usage}

    def vector(self, text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The vector of a text, of unit length."""
        seeds = [crc32(f"{self.model}{word}".encode()) for word in text.split()]
        words = [np.random.default_rng(seed).standard_normal(self.dimension) for seed in seeds]
        total = np.sum(words, axis=0) if words else np.ones(self.dimension)
        unit: np.ndarray[Any, np.dtype[np.float32]] = (total / np.linalg.norm(total)).astype(np.float32)
        return unit
