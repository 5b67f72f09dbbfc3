"""Asks the language model: finds related memories, sends one request, and a second one if the answer is unusable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from openmemory.capture import answers, applying, prompt
from openmemory.capture.answers import Edit, Malformed
from openmemory.capture.decisions import decided
from openmemory.capture.schemas import ModelDecisions, PromptMemory, Turn
from openmemory.config.settings import Settings
from openmemory.content_policy import injection, secrets
from openmemory.database.engine import Database
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Scope
from openmemory.llm.port import LlmUnavailable, Message, PromptTooLong, Reply
from openmemory.llm.providers import Llms, ProviderLlm
from openmemory.saved_settings.service import Configuration
from openmemory.search.schemas import SearchQuery
from openmemory.search.service import Search

log = logging.getLogger(__name__)

NEAREST = 12
"""Maximum number of memories shown to the model."""

PIECES = 3
"""Searches for one long text or conversation. A single search would find only its main topic."""

PIECE = 1_000
"""Maximum number of characters in one search."""

LOGGED = 2_000
"""Maximum number of characters of an unusable answer that are logged."""


class NoModel(LlmUnavailable):
    """No language model is configured."""


class BadAnswer(Exception):
    """The model answered twice, and neither answer could be used."""


@dataclass(slots=True)
class Cost:
    """Language model cost: calls, tokens and seconds."""

    model: str | None = None
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    def add(self, other: Cost | Reply) -> None:
        """Adds another cost, or that of a reply, whose call was counted when it began."""
        self.calls += other.calls if isinstance(other, Cost) else 0
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.seconds += other.seconds


@dataclass(frozen=True, slots=True)
class CaptureInput:
    """The input from which memories are made, and its time. `verbatim`: memories that hold it in the meantime."""

    what: str | tuple[Turn, ...]
    namespace: str
    at: datetime
    verbatim: tuple[UUID, ...] = ()

    @property
    def texts(self) -> list[str]:
        """The texts of the input."""
        return [self.what] if isinstance(self.what, str) else [turn.content for turn in self.what]


class Extractor:
    """Extracts the facts of a text with a language model."""

    def __init__(
        self, database: Database, configuration: Configuration, llms: Llms, search: Search, settings: Settings
    ) -> None:
        self._database = database
        self._configuration = configuration
        self._llms = llms
        self._search = search
        self._settings = settings

    async def configured(self) -> bool:
        """Returns True if a language model is configured.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        try:
            return (await self._configuration.effective()).llm is not None
        except Invalid:  # the key is missing; the error is reported on use
            return True

    async def extract(self, caller: Caller, capture_input: CaptureInput, cost: Cost) -> ModelDecisions:
        """Decides which changes to make for an input. Adds to `cost` even if it fails.

        Raises:
            LlmUnavailable: no language model is configured, or it does not answer.
            PromptTooLong: the input is longer than its context.
            BadAnswer: its answers cannot be used.
            Unavailable: PostgreSQL does not answer.
        """
        try:
            effective = await self._configuration.effective()
        except Invalid as error:
            raise LlmUnavailable(error.message, setup=True) from None
        if effective.llm is None:
            raise NoModel("no language model is configured any more", setup=True)
        near = await self._near(caller, capture_input)
        feels, zone = self._settings.capture.emotion, caller.timezone
        form = prompt.schema(emotion=feels, messages=not isinstance(capture_input.what, str))
        cost.model = effective.llm.name
        llm, instructions = self._llms.of(effective.llm), effective.custom_instructions
        try:
            operations = await self._ask(
                llm,
                prompt.first(capture_input.what, near, capture_input.at, instructions, emotion=feels, zone=zone),
                cost,
                zone,
                form,
            )
        except PromptTooLong as error:
            log.info("%s: asked again without memories: %s", cost.model, error)
            near = []
            operations = await self._ask(
                llm,
                prompt.first(capture_input.what, near, capture_input.at, instructions, emotion=feels, zone=zone),
                cost,
                zone,
                form,
            )
        policy = self._settings.capture.injection
        orders = policy != "store" and any(map(injection.instructs, capture_input.texts))
        return decided(operations, near, datetime.now(UTC), orders=orders, emotion=feels)

    @staticmethod
    async def _ask(
        llm: ProviderLlm, messages: list[Message], cost: Cost, zone: ZoneInfo, form: dict[str, Any]
    ) -> list[Edit]:
        """The operations that the model answers with. `form` is the schema of the answer."""
        for attempt in (1, 2):
            cost.calls += 1
            reply = await llm.ask(messages, form)
            cost.add(reply)
            try:
                return await asyncio.to_thread(answers.operations, reply, zone)
            except Malformed as error:
                problem = str(error)
                raw = secrets.redacted(reply.text[:LOGGED])
                log.warning("%s: an answer that cannot be used (%d of 2): %s: %r", cost.model, attempt, problem, raw)
            messages = prompt.repaired(messages, reply.text, problem)
        raise BadAnswer(f"the language model answered what cannot be used: {problem}")

    async def _near(self, caller: Caller, capture_input: CaptureInput) -> Sequence[PromptMemory]:
        """The memories nearest to the input that the caller may read and change.

        If few are near, the newest ones are added: "I am with Globex now" shares no word with "Alice works at Acme".
        """
        if Scope.READ not in caller.principal.scopes:
            return []
        best: dict[UUID, float] = {}
        limit = self._search.at_most(NEAREST)
        for piece in pieces(capture_input.texts, min(PIECE, self._settings.limits.query)):
            query = SearchQuery(piece, limit=limit, namespaces=(capture_input.namespace,), everything=True)
            for result in (await self._search.search(caller, query)).results:
                if result.score is not None:  # an overview has none
                    best[result.id] = max(best.get(result.id, 0.0), result.score)
        ids = sorted(best.keys() - set(capture_input.verbatim), key=lambda id_: -best[id_])[:NEAREST]
        besides = [*ids, *capture_input.verbatim]
        async with self._database.statement() as tx:
            near = await applying.readable_memories(tx, caller, ids)
            return near + await applying.newest(
                tx, caller, capture_input.namespace, besides=besides, limit=NEAREST - len(near)
            )


def pieces(texts: Sequence[str], size: int) -> list[str]:
    """Search queries from the input, each of at most `size` characters: its end, its middle and its beginning.

    The end matters most. A short text is one piece.
    """
    whole = "\n".join(text.strip() for text in texts if text.strip())
    if len(whole) <= size:
        return [whole] if whole else []
    last = len(whole) - size
    starts = sorted({0, last, last // 2})[-PIECES:]
    return [piece for start in reversed(starts) if (piece := whole[start : start + size].strip())]
