from __future__ import annotations

import logging

import pytest

from openmemory.config.settings import LogSettings
from openmemory.telemetry import logging as logs


def test_what_a_client_sends_to_a_session_is_not_repeated_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "level", root.level)
    logs.set_up_logging(LogSettings(level="debug"))
    assert not logging.getLogger("mcp.server.sse").isEnabledFor(logging.ERROR)
    assert logging.getLogger("mcp.server.streamable_http").isEnabledFor(logging.ERROR)
    assert not logging.getLogger("openai._base_client").isEnabledFor(logging.DEBUG)


def test_a_message_stays_on_its_line_and_an_exception_below_it(monkeypatch, capsys) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    logs.set_up_logging(LogSettings())
    try:
        raise ValueError("x")
    except ValueError:
        root.exception("failed: %s", "/a\n2026-01-01 00:00:00 INFO app: forged\x1b[2J")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith(r"failed: /a\x0a2026-01-01 00:00:00 INFO app: forged\x1b[2J")
    assert lines[1].startswith("Traceback")
