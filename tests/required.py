"""What tests need of the machine beside the packages: programs, rights, a kernel."""

from __future__ import annotations

import os
import subprocess
from typing import NoReturn

import pytest

EVERYTHING = "OPENMEMORY_TEST_REQUIRE_ALL"
"""Set to 1, it fails the tests that would be skipped because the machine lacks something."""


def required(*command: str) -> None:
    """Skip the test if this command does not work here; fail it where nothing may be lacking."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    except OSError as error:
        problem = str(error)
    else:
        if done.returncode == 0:
            return
        problem = done.stderr.strip() or f"exit code {done.returncode}"
    lacking(f"`{command[0]}` does not work here: {problem}")


def lacking(reason: str) -> NoReturn:
    """Skip the test for this reason; fail it where nothing may be lacking."""
    if os.environ.get(EVERYTHING) == "1":
        pytest.fail(reason)
    pytest.skip(reason)
