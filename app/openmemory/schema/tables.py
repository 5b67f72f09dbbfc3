"""Every table of the schema; importing this module fills `metadata`."""

from __future__ import annotations

import openmemory.access.models
import openmemory.audit.models
import openmemory.capture.models
import openmemory.dedup.models
import openmemory.index.models
import openmemory.memories.models
import openmemory.projects.models
import openmemory.saved_settings.models
import openmemory.search.models
import openmemory.sessions.models
import openmemory.sources.models
import openmemory.tidying.models  # noqa: F401 - they are imported for their tables
from openmemory.database.engine import Base

metadata = Base.metadata
