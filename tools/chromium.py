"""Chromium of this machine, in which tests try the pages and `make screenshots` takes pictures of them."""

from __future__ import annotations

import shutil

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
"""The names of the program. The first one opens no windows, and takes a third of the processor time for a page."""


def chromium_program() -> str | None:
    """Returns the path of the first program that is installed; None if none is."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)
