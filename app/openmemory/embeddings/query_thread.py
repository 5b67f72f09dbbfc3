"""A thread that embeds queries. Those that wait at the same time share a run.

It reads its work from a queue and passes results to the event loop directly. This saves two hops of an executor, each
of which would leave the thread idle until a busy loop responds.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from openmemory.embeddings.port import EmbedderUnavailable, QueryEmbedding


class _Waiting:
    """A text, and the future for its embedding."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[QueryEmbedding] = self._loop.create_future()

    def resolve(self, outcome: QueryEmbedding | EmbedderUnavailable) -> None:
        """Called in the thread. The answer arrives in the loop, if that still runs."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._resolve, outcome)

    def _resolve(self, outcome: QueryEmbedding | EmbedderUnavailable) -> None:
        if self.answer.done():
            return
        if isinstance(outcome, EmbedderUnavailable):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


class Network(Protocol):
    """A loaded tokenizer and network."""

    def encode(self, texts: Sequence[str]) -> Sequence[Any]:
        """Returns the tokens of each text."""
        ...

    def run(self, encodings: Sequence[Any]) -> Sequence[QueryEmbedding]:
        """Returns the embedding of each text."""
        ...


class QueryThread:
    """The queue and its thread, which starts with the first query.

    `network` returns the loaded network and may load it; `runs` selects which rows of a batch are embedded together.
    """

    def __init__(self, network: Callable[[], Network], runs: Callable[[Sequence[Any]], list[list[int]]]) -> None:
        self._network = network
        self._runs = runs
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def ask(self, text: str) -> QueryEmbedding:
        """Returns the embedding of a query.

        Raises:
            EmbedderUnavailable: the network cannot be loaded or fails, or this object is closed.
        """
        if self._closed:
            raise EmbedderUnavailable("the packaged model is closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="embed-query", daemon=True)
            self._thread.start()
        waiting = _Waiting(text)
        self._queue.put(waiting)
        return await waiting.answer

    async def close(self) -> None:
        """Ends the thread after it has answered all queries."""
        self._closed = True
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, ended = [first], False
            with suppress(Empty):
                while (more := self._queue.get_nowait()) is not None:
                    batch.append(more)
                ended = True
            self._answer([waiting for waiting in batch if not waiting.answer.done()])
            if ended:
                return

    def _answer(self, batch: Sequence[_Waiting]) -> None:
        try:
            network = self._network()
            encodings = network.encode([waiting.text for waiting in batch])
            for rows in self._runs(encodings):
                for row, output in zip(rows, network.run([encodings[row] for row in rows]), strict=True):
                    # Copies, so that a kept vector does not keep its whole batch in memory.
                    tokens = None if output.tokens is None else output.tokens.copy()
                    batch[row].resolve(QueryEmbedding(output.vector.copy(), tokens, output.unread))
        except BaseException as error:  # the tokenizer may panic, which is not an Exception; the thread must survive
            words = str(error) if isinstance(error, EmbedderUnavailable) else failed(error)
            for waiting in batch:  # a separate exception for each: tracebacks grow with every raise
                waiting.resolve(EmbedderUnavailable(words))


def failed(error: BaseException) -> str:
    """The error message for a failure of the network itself."""
    return f"the packaged model failed: {type(error).__name__}: {error}"
