"""Wraps any language model of mem0: with a deadline, limited concurrency, no telemetry, and requests through
`egress`."""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openmemory.egress.clients import Egress
from openmemory.egress.policy import EgressRefused
from openmemory.embeddings.providers import configure_mem0, secrets_of
from openmemory.llm import catalogue
from openmemory.llm.catalogue import WEAKER, Form, LlmProviderSpec
from openmemory.llm.completions import INSTEAD, refused_parameter, reply, too_long
from openmemory.llm.port import LanguageModel, LlmUnavailable, Message, PromptRefused, PromptTooLong, Reply
from openmemory.resilience.daemon_threads import in_daemon

log = logging.getLogger(__name__)

MAX_RETRY_AFTER = 3_600.0
"""The longest `Retry-After` that is respected, in seconds."""

MAX_ANSWER_LENGTH = 200_000
"""The maximum number of characters of an answer; the rest is dropped."""


class ProviderLlm:
    """Calls one model through mem0's `LlmFactory`. The constructor returns at once: the first call imports mem0.

    `environ`: contains the provider's own key and address, as its library would read them.
    """

    def __init__(
        self, model: LanguageModel, data_dir: Path, egress: Egress, environ: Mapping[str, str] | None = None
    ) -> None:
        self.model = model
        self._data_dir = data_dir
        self._egress = egress
        self._environ = environ or {}
        self._slots = asyncio.Semaphore(model.concurrency)
        self._opening = threading.Lock()
        self._opened: Any = None
        self._closed = False
        self._form: Form | None = None
        self._left_out: dict[str, str | None] = {}

    async def ask(self, messages: Sequence[Message], schema: Mapping[str, Any]) -> Reply:
        """Sends one request for an answer in JSON that follows the schema. If a server does not accept the requested
        JSON format, it gets another request with a weaker one; if it does not accept a parameter, one without it. Both
        are remembered for the model.

        Raises:
            LlmUnavailable: the model does not answer.
            PromptRefused: the server refuses the request for another reason.
            PromptTooLong: the request is longer than the model's context.
        """
        provider = catalogue.provider_of(self.model)
        self._check_address()
        while True:
            form = self._form or provider.form
            response_format = catalogue.response_format_of(form, dict(schema))
            try:
                return await self._ask(provider, [dict(message) for message in messages], response_format)
            except _FormRefused as refused:
                self._form = WEAKER[form]
                log.info("%s rejects the JSON mode %s: %s", self.model.name, form, refused)
            except _ParameterRefused as refused:
                self._leave_out(refused.name, str(refused))

    async def close(self) -> None:
        """Closes the provider's connections. Running calls end by their deadline."""
        self._closed = True
        # A thread that imports native libraries while the interpreter exits would abort the process.
        await asyncio.to_thread(self._opening.acquire)
        self._opening.release()
        close = getattr(getattr(self._opened, "client", None), "close", None)
        self._opened = None
        if callable(close):
            await asyncio.to_thread(close)

    def _leave_out(self, name: str, words: str) -> None:
        older = {instead: name for name, instead in INSTEAD.items()}.get(name, name)
        instead = INSTEAD.get(name)
        self._left_out[older] = instead if instead is not None and instead in words else None
        log.info("%s rejects the parameter %s: %s", self.model.name, name, words)

    async def _ask(
        self, provider: LlmProviderSpec, messages: list[dict[str, str]], response_format: dict[str, Any] | None
    ) -> Reply:
        failure: Exception
        parameters: set[str] = set()
        try:
            async with asyncio.timeout(self.model.timeout):
                await self._slots.acquire()
                return await in_daemon(
                    lambda: self._call(provider, messages, response_format, parameters),
                    name="llm",
                    ended=self._slots.release,
                )
        except TimeoutError:
            failure = LlmUnavailable(f"{self.model.name}: no answer within {self.model.timeout:g} s", broke=True)
        except LlmUnavailable as error:
            failure = error
        except Exception as error:
            failure = self._failure(error, response_format, parameters)
        # Raised outside the handler: a chained exception of the provider would contain its message, and so the key.
        raise failure

    def _call(
        self,
        provider: LlmProviderSpec,
        messages: list[dict[str, str]],
        response_format: dict[str, Any] | None,
        parameters: set[str],
    ) -> Reply:
        """Makes one call, in a thread. Adds the names of what it sends to `parameters`."""
        opened = self._open(provider)
        llm = copy.copy(opened)
        client = getattr(opened, "client", None)
        recorded = None
        if hasattr(client, "chat") or hasattr(client, "messages"):
            llm.client = recorded = _Recording(client, self._left_out, parameters)
        options = {} if response_format is None else {"response_format": response_format}
        started = time.monotonic()
        text = llm.generate_response(messages, **options)
        seconds = time.monotonic() - started
        return reply(text, messages, None if recorded is None else recorded.answer, seconds, MAX_ANSWER_LENGTH)

    def _open(self, provider: LlmProviderSpec) -> Any:
        with self._opening:
            if self._closed:
                raise LlmUnavailable("closed")
            if self._opened is None:
                configure_mem0(self._data_dir)
                from mem0.utils.factory import LlmFactory  # type: ignore[import-untyped]

                try:
                    opened = LlmFactory.create(provider.factory, catalogue.config(self.model, provider))
                except ImportError:
                    raise LlmUnavailable(_missing(self.model.provider, provider), setup=True) from None
                if provider.guarded:
                    opened.client = self._guard(opened.client, provider)
                self._opened = opened
            return self._opened

    def _guard(self, client: Any, provider: LlmProviderSpec) -> Any:
        """The provider's client with our HTTP client, which enforces the egress rules and the timeout.

        The caller handles retries.
        """
        options: dict[str, Any] = {}
        if provider.factory == "openai":
            # mem0 would use OpenRouter instead if the environment contains a key for it.
            config = catalogue.config(self.model, provider)
            own = self._environ.get("OPENAI_BASE_URL") or catalogue.PROVIDERS["openai"].own_address
            options["base_url"] = catalogue.address_of(self.model) or own
            if key := config.get("api_key") or self._environ.get("OPENAI_API_KEY"):
                options["api_key"] = key
            else:
                raise LlmUnavailable("llm.api_key: openai needs a key", setup=True)
        address = str(options.get("base_url") or client.base_url)
        # Without a configured address, the address comes from the provider or the environment.
        trusted = self.model.trusted or not self.model.base_url
        http = self._egress.client([address] if trusted else [], redirects=True)
        return client.with_options(http_client=http, timeout=self.model.timeout, max_retries=0, **options)

    def _check_address(self) -> None:
        """Rejects at once an address that no request could reach. Names are resolved on use."""
        try:
            if address := catalogue.address_of(self.model):
                self._egress.check_literal(address, trusted=self.model.trusted or not self.model.base_url)
        except EgressRefused as error:
            raise LlmUnavailable(f"llm.base_url: {error}", setup=True) from None

    def _failure(self, error: Exception, response_format: object, parameters: set[str]) -> Exception:
        """A failure in one line, without secrets."""
        for cause in (error.__cause__, error.__context__):
            if isinstance(cause, EgressRefused):  # OpenAI's client reports it as a connection error
                return LlmUnavailable(f"{self.model.name}: {cause}", setup=True)
        status = getattr(error, "status_code", None)
        if status in (401, 403):  # such answers often quote parts of the key
            return LlmUnavailable(f"{self.model.name}: the key was refused ({status})", setup=True)
        words = " ".join(str(error).split())
        for secret in secrets_of(self.model.api_key, self.model.base_url, self._environ):
            words = words.replace(secret, "***")
        message = f"{self.model.name}: {type(error).__name__}: {words[:300]}"
        if status not in (400, 413, 422):
            broke = status in (500, 504)
            return LlmUnavailable(message, retry_after=_retry_after(error), setup=status in (404, 405), broke=broke)
        name = refused_parameter(error, words, parameters)
        if response_format is not None and (name == "response_format" or _about_form(words)):
            return _FormRefused(words[:200])
        if name is not None:
            return _ParameterRefused(name, words[:200])
        kind = PromptTooLong if too_long(error, words) else PromptRefused
        return kind(message, setup=True)


class Llms:
    """Holds the client of the configured model, and replaces it when the configuration changes."""

    def __init__(self, data_dir: Path, egress: Egress, environ: Mapping[str, str] | None = None) -> None:
        self._data_dir = data_dir
        self._egress = egress
        self._environ = environ or {}
        self._present: ProviderLlm | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def of(self, model: LanguageModel) -> ProviderLlm:
        """The client of this model, the same one for the same configuration."""
        before = self._present
        if before is None or before.model != model:
            self._present = ProviderLlm(model, self._data_dir, self._egress, self._environ)
            if before is not None:
                task = asyncio.create_task(before.close(), name="close llm")
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        assert self._present is not None
        return self._present

    def another(self, model: LanguageModel) -> ProviderLlm:
        """A client for a test. The caller closes it."""
        return ProviderLlm(model, self._data_dir, self._egress, self._environ)

    async def close(self) -> None:
        """Closes all open clients."""
        if self._closing:
            await asyncio.wait(self._closing)
        if self._present is not None:
            await self._present.close()


class _FormRefused(Exception):
    """The server does not support the requested JSON format."""


class _ParameterRefused(Exception):
    """The server does not support a parameter of the request, or its value."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(words)
        self.name = name


class _Recording:
    """A client of OpenAI or Anthropic, of which only `chat.completions.create` or `messages.create` is called.

    Keeps the answer for its token counts. `left_out`: the parameters that are not sent, with the one that takes the
    place of each, if any. `parameters`: gets the names of the others.
    """

    def __init__(self, client: Any, left_out: Mapping[str, str | None], parameters: set[str]) -> None:
        self._client = client
        self._left_out = dict(left_out)
        self._parameters = parameters
        self.answer: Any = None
        self.chat = self.completions = self.messages = self

    def create(self, **parameters: Any) -> Any:
        for name in self._left_out.keys() & parameters.keys():
            value, instead = parameters.pop(name), self._left_out[name]
            if instead is not None:
                parameters[instead] = value
        self._parameters.update(parameters)
        chat = getattr(self._client, "chat", None)
        calls = self._client.messages if chat is None else chat.completions
        self.answer = calls.create(**parameters)
        return self.answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def _about_form(words: str) -> bool:
    lowered = words.lower()
    return any(name in lowered for name in ("response_format", "json_schema", "json_object", "structured output"))


def _retry_after(error: Exception) -> float | None:
    """The seconds of `Retry-After`, if the answer has them. A date is ignored."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return min(MAX_RETRY_AFTER, max(0.0, float(headers.get("retry-after", ""))))
    except ValueError:
        return None


def _missing(name: str, provider: LlmProviderSpec) -> str:
    if not provider.package:
        return f"llm.provider: the library of {name} cannot be loaded"
    return (
        f"llm.provider: {name} needs the package {provider.package}, which is not installed: "
        f"pip install 'openmemory-server[{provider.extra}]'"
    )
