from __future__ import annotations

import logging

import pytest

from app import logs
from app.config import Log


def test_what_a_client_sends_to_a_session_is_not_repeated_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "level", root.level)
    logs.set_up(Log(level="debug"))
    assert not logging.getLogger("mcp.server.sse").isEnabledFor(logging.ERROR)
    assert logging.getLogger("mcp.server.streamable_http").isEnabledFor(logging.ERROR)
