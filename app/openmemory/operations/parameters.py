"""Parameters that operations share."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field

from openmemory.operations.description import MemoryReference

Project = Annotated[str, Field(description="The project.")]
"""The namespace. The commands take that of the folder, if none is given."""

PageNumber = Annotated[int, Field(ge=1, le=1_000_000)]
PageSize = Annotated[int, Field(ge=1, le=100)]

Memory = Annotated[UUID, MemoryReference()]
"""The id of a memory, or in a request its first characters."""
