"""Daemon threads, which end with the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_daemon(function: Callable[[], T], *, name: str, ended: Callable[[], None] = lambda: None) -> T:
    """Run a function in a separate thread, and call `ended` on the loop when it ends, even if nobody waits any more.

    It is a daemon thread: unlike pool threads, one that hangs in third-party code cannot keep the process alive.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        ended()
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        failure: Exception | None = None
        try:
            result = function()
        except BaseException as error:  # a compiled library's panic is no Exception, and futures reject StopIteration
            passed_on = isinstance(error, Exception) and not isinstance(error, StopIteration)
            failure = error if passed_on else RuntimeError(type(error).__name__)  # type: ignore[assignment]
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            return  # the loop is closed: nobody waits

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:
        ended()
        raise
    return await answer
