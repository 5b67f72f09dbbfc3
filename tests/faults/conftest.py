"""What the tests of several faults share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Protocol

import pytest

from tests.faults.outage import Outage


class Stack(Protocol):
    """A running service and what it depends on; the modules have a fixture `stack` of their own."""

    url: str


@pytest.fixture
def outage(stack: Stack) -> Iterator[Outage]:
    """The memories of a new user of the stack, whole at first."""
    with closing(Outage(stack.url)) as outage:
        outage.begin()
        yield outage
