"""The language model interface: a prompt in, a text out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import SecretStr

Message = Mapping[str, str]
"""One message: `role` (system, user or assistant) and `content`."""


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """The configured language model.

    An address that is not `trusted` is subject to the egress rules for unknown servers. `by_settings`: the settings of
    the service name the model, not a configuration saved over REST. `timeout` is in seconds. `concurrency` is the
    number of concurrent calls of one process.
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
        """The name in logs and answers."""
        return f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a model.

    `cut`: the answer is incomplete because it reached `max_tokens`. `refused`: the model declined to answer. `counted`:
    the provider counted the tokens; otherwise they are estimated from the characters.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    counted: bool
    seconds: float
    cut: bool = False
    refused: bool = False


class LlmUnavailable(Exception):
    """The model cannot be used, or does not answer in time. The message contains no secret.

    `retry_after`: the seconds to wait, as the provider requested. `setup`: it cannot answer until the configuration
    changes. `broke`: it broke or hung while it worked on the request, which may be the cause.
    """

    def __init__(
        self, message: str, *, retry_after: float | None = None, setup: bool = False, broke: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.setup = setup
        self.broke = broke


class PromptRefused(LlmUnavailable):
    """The provider refuses this request, and would refuse it again."""


class PromptTooLong(PromptRefused):
    """The request is longer than the model's context."""


def estimated_tokens(text: str) -> int:
    """Estimates the tokens of a text, rather too high: four English letters are one token, a non-ASCII character is
    one.

    Digits and signs are often tokens of their own, so each counts as one.
    """
    plain = sum(char.isascii() and (char.isalpha() or char == " ") for char in text)
    return -(-plain // 4) + len(text) - plain
