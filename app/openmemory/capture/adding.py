"""The use case of adding a text or a conversation: the one place that decides what becomes of it."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from openmemory.capture.schemas import Added, CaptureCreate, Outcome
from openmemory.capture.service import Captures
from openmemory.capture.status import UNREAD, Status
from openmemory.capture.waiting import Moved, nobody
from openmemory.dedup import key_values
from openmemory.dedup.key_value_merge import KeyValueMerge
from openmemory.dedup.near_changes import NearChanges
from openmemory.dedup.near_duplicates import Duplicates
from openmemory.dedup.supersedes import Supersedes
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.memories.deduplication import DedupPolicy
from openmemory.memories.schemas import Event, MemoryRowAdded
from openmemory.memories.service import Memories

NO_LLM = "Stored verbatim: no language model is configured to extract facts."
LATER = "The text is kept, and facts are extracted from it in the background. Do not add it again."
FAILED = "The language model could not read the text. It is tried again later. Do not add it again."
VERBATIM = "The language model could not read the text, so it is stored as it is until a later attempt succeeds."


class Adding:
    """Adds texts and conversations."""

    def __init__(
        self, memories: Memories, captures: Captures, pairs: KeyValueMerge, duplicates: Duplicates, near: NearChanges
    ) -> None:
        self._memories = memories
        self._captures = captures
        self._pairs = pairs
        self._duplicates = duplicates
        self._near = near

    async def add(self, caller: Caller, new: CaptureCreate, *, infer: bool, moved: Moved = nobody) -> Added:
        """Add a text or a conversation. The first of these that applies decides what happens:

        1. A text that names the memories that it supersedes is stored as it is, and archives them.
        2. `infer`, and a language model is configured: the text is stored as a capture, from which the model extracts
           facts. The request waits for them, or they are extracted in the background (`new.wait`).
        3. A conversation without a language model is refused.
        4. A text of key-value facts is merged into the memory that has its keys (`dedup.key_values`).
        5. Any other text is stored verbatim, after a comparison with its near duplicates (`dedup.near_duplicates`).

        The answer to a text that is stored as it is names memories that it may change (`dedup.near_changes`).

        `moved` is called for every step of a capture while the request waits.

        Raises:
            Invalid: a field cannot be used, `capture` refuses the text, or the key was given to another request.
            NotFound: a memory to supersede does not exist, or the caller may not read it.
            Forbidden: the app is paused, or the credential may not write there.
            TooMany: an assistant's app saves too often.
        """
        if infer and not new.supersedes and await self._captures.possible():
            outcome = await self._captures.add(caller, new, moved)
            first = await self._memories.row(caller, outcome.results[0].id) if outcome.results else None
            return Added.captured(outcome, first, _later(outcome))
        if new.messages:
            raise Invalid(
                "messages",
                "need a language model, with infer=true",
                code="no_language_model",
                hint="Choose one (llm.provider in openmemory.toml, or PUT /api/v1/config/mem0/llm), or send texts.",
            )
        memory = self._memories.intake.created(new.like)
        policy: DedupPolicy = self._pairs if self._pairs.concerns(caller, memory) else self._duplicates
        if new.supersedes:
            policy = Supersedes(new.supersedes)
        async with self._near.looking(caller, memory) as look:
            row = await self._memories.add(caller, memory, policy=policy, explicit=bool(new.supersedes), once=new.once)
            near = await look(row.id) if row.event in (Event.ADD, Event.SUPERSEDE) else []
        return Added.verbatim(row, _verbatim_note(row, caller.timezone, infer=infer and not new.supersedes), near)


def _verbatim_note(row: MemoryRowAdded, zone: ZoneInfo, *, infer: bool) -> str | None:
    """Returns the note on a text that no language model read."""
    verbatim = NO_LLM if infer and row.event is Event.ADD else None
    changed = key_values.described(row.changed, zone) if row.changed else None
    return " ".join(part for part in (verbatim, row.note, changed) if part) or None


def _later(outcome: Outcome) -> str | None:
    """Returns the note on a text that the language model has not worked on to the end."""
    if outcome.status in UNREAD and outcome.results:
        return VERBATIM
    if outcome.status is Status.FAILED:
        return FAILED
    return LATER if outcome.status in (Status.PENDING, Status.WORKING) else None
