"""Tests a configuration before it is saved: calls each model once and stores nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable

from pydantic import BaseModel, Field

from openmemory.errors import Invalid
from openmemory.identity.principal import Principal
from openmemory.llm.port import LanguageModel, LlmUnavailable, Reply
from openmemory.llm.providers import Llms
from openmemory.saved_settings import document
from openmemory.saved_settings.document import Part
from openmemory.saved_settings.embedders import Embedders
from openmemory.saved_settings.saved import SavedDocument
from openmemory.saved_settings.schemas import ConfigPatch
from openmemory.saved_settings.service import Configuration

_SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
_ASKED = 'Answer with the JSON object {"ok": true} and with nothing else.'


class Tried(BaseModel):
    """The answer of one model."""

    ok: bool
    model: str = Field(description="Provider and model.")
    detail: str | None = Field(default=None, description="What is wrong with it.")
    seconds: float


class Trial(BaseModel):
    """The answers of the models; null: not tried."""

    llm: Tried | None = None
    embedder: Tried | None = None


class Trials:
    """Calls the models of a configuration before it is saved."""

    def __init__(self, configuration: Configuration, embedders: Embedders, llms: Llms) -> None:
        self._configuration = configuration
        self._embedders = embedders
        self._llms = llms

    async def run(self, principal: Principal, sent: ConfigPatch) -> Trial:
        """Call each model that was sent, or the effective ones if none was sent.

        Raises:
            Forbidden: the principal is not an administrator.
            Invalid: a field is invalid.
        """
        stored = await self._configuration.proposed(principal, sent)
        given = sent.mem0.model_fields_set if sent.mem0 is not None else set()
        trial = Trial()
        if "llm" in given or (not given and self._configuration.chosen(stored)):
            trial.llm = await self._tried("llm", stored, self._ask(stored))
        if "embedder" in given or not given:
            trial.embedder = await self._tried("embedder", stored, self._embedders.tried(stored))
        return trial

    async def ask_language_model(self) -> str | None:
        """Calls the language model in use. Returns its name, or None if there is none.

        Raises:
            LlmUnavailable: it does not answer.
            Invalid: its key is not in the environment.
        """
        model = (await self._configuration.effective()).llm
        if model is not None:
            await self._asked(model)
        return None if model is None else model.name

    async def _asked(self, model: LanguageModel) -> Reply:
        llm = self._llms.another(model)
        try:
            return await llm.ask([{"role": "user", "content": _ASKED}], _SCHEMA)
        finally:
            await llm.close()

    async def _tried(self, part: Part, stored: SavedDocument, asking: Awaitable[str | None]) -> Tried:
        started = time.monotonic()
        wrong = await asking
        name = document.name_of(document.present(part, stored, self._configuration.baseline))
        return Tried(ok=wrong is None, model=name, detail=wrong, seconds=time.monotonic() - started)

    async def _ask(self, stored: SavedDocument) -> str | None:
        """Calls the language model once. Returns the error, or None if it works."""
        try:
            reply = await self._asked(self._configuration.language_model(stored))
        except LlmUnavailable as error:
            return str(error)
        except Invalid as error:
            return error.message
        return None if _is_object(reply.text) else "it answers, but with no JSON; facts may be extracted badly"


def _is_object(text: str) -> bool:
    start, end = text.find("{"), text.rfind("}")
    try:
        return isinstance(json.loads(text[start : end + 1]), dict)
    except (ValueError, RecursionError):
        return False
