"""What tests need of the machine beside the packages: programs, rights, a kernel."""

from __future__ import annotations

import os

import pytest

EVERYTHING = "OPENMEMORY_TEST_REQUIRE_ALL"
"""Set to 1, it fails the tests that would be skipped because the machine lacks something."""


def required(there: bool, reason: str) -> None:
    """Skip the test if the machine lacks what it needs; fail it where nothing may be lacking."""
    if there:
        return
    if os.environ.get(EVERYTHING) == "1":
        pytest.fail(reason)
    pytest.skip(reason)
