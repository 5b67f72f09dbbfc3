"""Retries transactions that PostgreSQL aborted because of a deadlock or serialization conflict."""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from openmemory.errors import WriteConflict

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_ATTEMPTS = 4
_PAUSE = 0.1
"""The maximum delay before the second attempt in seconds; it doubles for each further one. The other transaction needs
some time to take the released locks."""


def retry_on_conflict(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Retries work that raises `WriteConflict`, up to four attempts in all; the last error is raised.

    For work that is a single transaction with nothing before it. An aborted transaction is rolled back completely, but
    anything sent, counted or committed before it would happen again. What follows the commit runs only once.
    """

    @functools.wraps(work)
    async def with_retries(*arguments: P.args, **options: P.kwargs) -> T:
        for attempt in range(1, _ATTEMPTS):
            try:
                return await work(*arguments, **options)
            except WriteConflict:
                log.debug("%s met a write conflict, attempt %d of %d", work.__qualname__, attempt, _ATTEMPTS)
            # Two transactions that collided would collide again if they waited equally long.
            await asyncio.sleep(_PAUSE * 2 ** (attempt - 1) * random.uniform(0.25, 1))  # noqa: S311 - hides nothing
        return await work(*arguments, **options)

    return with_retries
