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
_PROMPT = 'Answer with the JSON object {"ok": true} and with nothing else.'


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

    async def run(self, principal: Principal, patch: ConfigPatch) -> Trial:
        """Call each model of a patch, or the effective ones if it has none.

        Raises:
            Forbidden: the principal is not an administrator.
            Invalid: a field is invalid.
        """
        stored_settings = await self._configuration.proposed(principal, patch)
        parts = patch.mem0.model_fields_set if patch.mem0 is not None else set()
        trial = Trial()
        if "llm" in parts or (not parts and self._configuration.is_llm_chosen(stored_settings)):
            trial.llm = await self._trial_of("llm", stored_settings, self._probe(stored_settings))
        if "embedder" in parts or not parts:
            trial.embedder = await self._trial_of("embedder", stored_settings, self._embedders.probe(stored_settings))
        return trial

    async def probe_language_model(self) -> str | None:
        """Calls the language model in use. Returns its name, or None if there is none.

        Raises:
            LlmUnavailable: it does not answer.
            Invalid: its key is not in the environment.
        """
        model = (await self._configuration.effective()).llm
        if model is not None:
            await self._request(model)
        return None if model is None else model.name

    async def _request(self, model: LanguageModel) -> Reply:
        llm = self._llms.another(model)
        try:
            return await llm.ask([{"role": "user", "content": _PROMPT}], _SCHEMA)
        finally:
            await llm.close()

    async def _trial_of(self, part: Part, stored_settings: SavedDocument, probe: Awaitable[str | None]) -> Tried:
        start = time.monotonic()
        error = await probe
        name = document.name_of(document.effective_section(part, stored_settings, self._configuration.baseline))
        return Tried(ok=error is None, model=name, detail=error, seconds=time.monotonic() - start)

    async def _probe(self, stored_settings: SavedDocument) -> str | None:
        """Calls the language model once. Returns the error, or None if it works."""
        try:
            reply = await self._request(self._configuration.language_model(stored_settings))
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
