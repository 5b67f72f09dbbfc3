"""Parameters that operations share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Project = Annotated[str, Field(description="The project.")]
"""The namespace. The commands take that of the folder, if none is given."""

PageNumber = Annotated[int, Field(ge=1, le=1_000_000)]
PageSize = Annotated[int, Field(ge=1, le=100)]
