"""Adds texts under policies of the test's own."""

from __future__ import annotations

from openmemory.capture.adding import Adding
from openmemory.capture.schemas import Added, CaptureCreate
from openmemory.config.sections import CaptureSettings, DedupSettings
from openmemory.dedup.key_value_merge import KeyValueMerge
from openmemory.dedup.near_changes import NearChanges
from openmemory.dedup.near_duplicates import Duplicates
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.memories.service import Memories
from openmemory.services import Services
from openmemory.sources.passages import erase_of_user


def memories_with(services: Services, **capture: object) -> Memories:
    """The memories of these services, with other settings of `capture`."""
    return Memories(
        services.database, services.directory, services.outbox_delivery, limits=services.settings.limits,
        analyze_after_writes=services.analyze_after_writes, rates=services.rates, keys=services.keys,
        capture=CaptureSettings.model_validate(capture), erase_sources=erase_of_user,
    )  # fmt: skip


def adding_with(services: Services, **changes: object) -> Adding:
    """The adding of texts, with other settings of `dedup` and `capture`."""
    settings = DedupSettings(**{name: changes.pop(name) for name in DedupSettings.model_fields if name in changes})
    memories = memories_with(services, **changes)
    duplicates = Duplicates(services.database, services.spaces, settings, memories.intake)
    near = NearChanges(services.database, services.spaces)
    return Adding(memories, services.captures, KeyValueMerge(settings, memories.intake), duplicates, near)


async def add_verbatim(adding: Adding, caller: Caller, new: MemoryCreate) -> Added:
    """Adds a text that no language model is asked about."""
    return await adding.add(caller, CaptureCreate(new), infer=False)
