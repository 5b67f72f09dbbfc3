"""Every table of the schema; importing this module fills `metadata`."""

from __future__ import annotations

from app.access.models import AccessControl, ApiKey, App, AuditEvent, RateLimit, User
from app.audit.models import MemoryAccessLog
from app.capture.models import Capture, CaptureUsage
from app.configuration.models import Config
from app.database import Base
from app.index.models import Embedding, EmbeddingTokens, IndexGeneration, IndexLease, IndexMark, SyncRun
from app.memories.models import (
    ArchivePolicy,
    Category,
    CategoryMark,
    IdempotencyKey,
    Memory,
    MemoryCategory,
    MemoryRevision,
    MemoryStatusHistory,
)
from app.search.models import LexicalStatistics
from app.sessions.models import McpMessage, McpSession

metadata = Base.metadata

__all__ = [
    "AccessControl", "ApiKey", "App", "ArchivePolicy", "AuditEvent", "Capture", "CaptureUsage", "Category",
    "CategoryMark", "Config", "Embedding", "EmbeddingTokens", "IdempotencyKey", "IndexGeneration", "IndexLease",
    "IndexMark", "LexicalStatistics", "McpMessage", "McpSession", "Memory", "MemoryAccessLog", "MemoryCategory",
    "MemoryRevision", "MemoryStatusHistory", "RateLimit", "SyncRun", "User", "metadata",
]  # fmt: skip
