"""Table: the configuration saved over `/api/v1/config`. Unsaved parts follow the settings and are not stored."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.database.columns import NEW_ID, NOW
from openmemory.database.engine import Base


class Config(Base):
    """One saved configuration. The service uses the one with the key `main`. It may contain API keys."""

    __tablename__ = "configs"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    key: Mapped[str] = mapped_column(unique=True)
    value: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=text("'{}'"))
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)
