"""A prompt in, a text out: what is known of a language model, what it answers, and why it may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import SecretStr

Message = Mapping[str, str]
"""One turn: `role` (system, user or assistant) and `content`."""


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """The language model that somebody chose. An address that is not `trusted` must be let out like any stranger's.

    `by_settings`: the settings of the service name it, rather than what was saved over REST. `timeout` in seconds;
    `concurrency`: calls of one process at once.
    """

    provider: str
    model: str
    temperature: float
    max_tokens: int
    api_key: SecretStr
    base_url: str
    trusted: bool
    by_settings: bool = True
    timeout: float = 60.0
    concurrency: int = 4

    @property
    def name(self) -> str:
        """How it is called in logs and answers."""
        return f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered. `cut`: its end is missing, for it reached `max_tokens`; `refused`: it would not answer.

    `counted`: the tokens are the provider's count; else they are estimated from the characters.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    counted: bool
    seconds: float
    cut: bool = False
    refused: bool = False


class LlmUnavailable(Exception):
    """The model cannot be asked, or does not answer in time. The words hold no secret.

    `retry_after`: seconds that the provider asked to wait. `setup`: it will not answer before somebody changes the
    configuration.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, setup: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.setup = setup


class Llm(Protocol):
    """A model that can be asked."""

    async def ask(self, messages: Sequence[Message], schema: Mapping[str, Any]) -> Reply:
        """Ask once for an answer in JSON after this schema.

        Raises:
            LlmUnavailable: it does not answer.
        """
        ...


def estimated_tokens(text: str) -> int:
    """Tokens that a text may take, rather too many: four letters of English are one, a character beyond ASCII is one.

    Digits and signs are often tokens of their own; both are counted so.
    """
    plain = sum(char.isascii() and (char.isalpha() or char == " ") for char in text)
    return -(-plain // 4) + len(text) - plain
