"""Doing again what PostgreSQL ended because it and another transaction waited for each other."""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from openmemory.errors import Overtaken

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_ATTEMPTS = 4
_PAUSE = 0.1
"""Seconds before the second attempt at most; twice as long before each following one. The other one needs some time to
take what was given up."""


def again(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Makes work be done again, four times in all, while it is `Overtaken`; the last one is raised.

    For work that is one transaction and nothing before it: what was overtaken is rolled back wholly, but whatever was
    sent, counted or committed before would be so once more. What comes after the commit comes once.
    """

    @functools.wraps(work)
    async def until_done(*arguments: P.args, **named: P.kwargs) -> T:
        for attempt in range(1, _ATTEMPTS):
            try:
                return await work(*arguments, **named)
            except Overtaken:
                log.debug("%s was overtaken, attempt %d of %d", work.__qualname__, attempt, _ATTEMPTS)
            # Two that met once meet again if they wait equally long.
            await asyncio.sleep(_PAUSE * 2 ** (attempt - 1) * random.uniform(0.25, 1))  # noqa: S311 - hides nothing
        return await work(*arguments, **named)

    return until_done
