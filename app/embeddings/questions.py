"""A thread that embeds queries, those that wait together in one run.

It takes its work from a queue and hands each vector to the event loop itself: two hops fewer than an executor's, each
of which would leave the thread idle until a busy loop gets round to it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from app.embeddings.port import EmbedderUnavailable, Vectors

Vector: TypeAlias = npt.NDArray[np.float32]


class Network(Protocol):
    """What turns texts into vectors, by way of token ids in a form of its own."""

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """Token ids of each text."""

    def run(self, encodings: Sequence[Any]) -> Vectors:
        """Vectors of the texts, shape (texts, dimension)."""


class _Question:
    """A text, and who waits for its vector."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Vector] = self._loop.create_future()

    def settle(self, outcome: Vector | EmbedderUnavailable) -> None:
        """Called in the thread; the answer arrives in the loop, if that still runs."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, outcome)

    def _settle(self, outcome: Vector | EmbedderUnavailable) -> None:
        if self.answer.done():
            return
        if isinstance(outcome, EmbedderUnavailable):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


class Questions:
    """The queue and its thread, which starts with the first query.

    `network` gives the loaded network and may load it; `runs` says which rows of a batch are embedded together.
    """

    def __init__(self, network: Callable[[], Network], runs: Callable[[Sequence[Any]], list[list[int]]]) -> None:
        self._network = network
        self._runs = runs
        self._queue: SimpleQueue[_Question | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def ask(self, text: str) -> Vector:
        """The vector of a query, shape (dimension,).

        Raises:
            EmbedderUnavailable: the network cannot be loaded or fails, or this is closed.
        """
        if self._closed:
            raise EmbedderUnavailable("the packaged model is closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="embed-query", daemon=True)
            self._thread.start()
        question = _Question(text)
        self._queue.put(question)
        return await question.answer

    async def close(self) -> None:
        """End the thread once it has answered what it was asked."""
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
            self._answer([question for question in batch if not question.answer.done()])
            if ended:
                return

    def _answer(self, batch: Sequence[_Question]) -> None:
        try:
            network = self._network()
            encodings = network.encode([question.text for question in batch])
            for rows in self._runs(encodings):
                for row, vector in zip(rows, network.run([encodings[row] for row in rows]), strict=True):
                    # A copy, so that a kept vector does not keep its whole batch.
                    batch[row].settle(vector.copy())
        except BaseException as error:  # the tokenizer may panic, which is no Exception; the thread must live on
            words = str(error) if isinstance(error, EmbedderUnavailable) else failed(error)
            for question in batch:  # each its own exception: tracebacks grow with every raise
                question.settle(EmbedderUnavailable(words))


def failed(error: BaseException) -> str:
    """What is said when the network itself fails."""
    return f"the packaged model failed: {type(error).__name__}: {error}"
