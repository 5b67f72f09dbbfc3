"""Logging to standard error: lines for people, or JSON for collectors."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import orjson

from openmemory.config.settings import LogSettings

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    code: f"\\u{code:04x}" for code in (0x2028, 0x2029)
}
"""Escapes for control characters: a client's path must not start a new line or control the screen of a reader."""


class _TextFormatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = record.message.translate(_CONTROL)
        return super().formatMessage(record)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def set_up_logging(settings: LogSettings) -> None:
    """Sends every logger to standard error. Call it after importing libraries that install their own handlers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JsonFormatter()
        if settings.format == "json"
        else _TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    # At debug level the SDKs of providers log what they send: the texts of memories.
    for name in ("openai", "qdrant_client", "mem0"):
        logging.getLogger(name).setLevel(max(logging.INFO, root.level))
    for name in ("mcp", "httpx", "httpcore", "apscheduler", "uvicorn.access", "sse_starlette", "alembic"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(max(logging.WARNING, root.level))
    # It only logs messages that were refused, and repeats parts of them.
    logging.getLogger("mcp.server.sse").setLevel(logging.CRITICAL)
