"""Logging to standard error: lines for people, or JSON for collectors."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import orjson

from app.config import Log


class _Json(logging.Formatter):
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


def set_up(settings: Log) -> None:
    """Send every logger to standard error; call after importing libraries that install handlers of their own."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _Json() if settings.format == "json" else logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    for name in ("mcp", "httpx", "httpcore", "apscheduler", "uvicorn.access", "sse_starlette", "alembic"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(max(logging.WARNING, root.level))
    # Whatever it says is about a message that a client was refused, and repeats parts of that.
    logging.getLogger("mcp.server.sse").setLevel(logging.CRITICAL)
