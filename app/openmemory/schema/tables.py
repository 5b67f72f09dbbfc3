"""Every table of the schema; importing this module fills `metadata`."""

from __future__ import annotations

from openmemory.access.models import AccessControl, ApiKey, App, AuditEvent, RateLimit, User
from openmemory.audit.models import MemoryAccessLog
from openmemory.capture.models import Capture, CaptureUsage
from openmemory.database.engine import Base
from openmemory.index.models import Embedding, EmbeddingTokens, IndexGeneration, IndexLease, OutboxEntry, SyncRun
from openmemory.memories.models import (
    ArchivePolicy,
    Category,
    IdempotencyKey,
    Memory,
    MemoryCategory,
    MemoryRevision,
    MemoryStatusHistory,
    PendingCategorization,
)
from openmemory.saved_settings.models import Config
from openmemory.search.models import LexicalStatistics
from openmemory.sessions.models import McpMessage, McpSession

metadata = Base.metadata

__all__ = [
    "AccessControl",
    "ApiKey",
    "App",
    "ArchivePolicy",
    "AuditEvent",
    "Capture",
    "CaptureUsage",
    "Category",
    "Config",
    "Embedding",
    "EmbeddingTokens",
    "IdempotencyKey",
    "IndexGeneration",
    "IndexLease",
    "LexicalStatistics",
    "McpMessage",
    "McpSession",
    "Memory",
    "MemoryAccessLog",
    "MemoryCategory",
    "MemoryRevision",
    "MemoryStatusHistory",
    "OutboxEntry",
    "PendingCategorization",
    "RateLimit",
    "SyncRun",
    "User",
    "metadata",
]  # fmt: skip
