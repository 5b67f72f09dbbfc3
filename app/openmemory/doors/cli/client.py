"""Connects a command to the service: over HTTP if a service owns the data folder, otherwise in this process.

This module must be cheap to import, because `--help` imports every command. Imports for connecting happen on connect.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from openmemory.doors.cli import scope
from openmemory.doors.cli.options import ConfigFile, DataDir, Json, Url, load_settings
from openmemory.doors.cli.output import CommandAnswer, note, plain
from openmemory.errors import (
    BatchRefused,
    ConflictError,
    Forbidden,
    Invalid,
    NotFound,
    OpenMemoryError,
    SetupError,
    Unauthenticated,
    Unavailable,
)
from openmemory.identity.names import PERSON
from openmemory.serialization.surrogates import replace_in

if TYPE_CHECKING:
    from httpx import AsyncClient, Response

    from openmemory.config.settings import Settings

P = ParamSpec("P")

_INVALID = (400, 413, 415, 422)
_DRAIN = 10
"""Seconds that a command that opened the stores itself continues indexing at its end. The next start does the rest."""


@dataclass(frozen=True, slots=True)
class Client:
    """The REST API of one service. An error response becomes the exception that the service raised."""

    http: AsyncClient
    settings: Settings

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] = {},
        body: Any = None,
        whole: bool = False,
        patient: bool = False,
    ) -> Any:
        """Calls the API and returns the decoded response. Parameters and fields that are None are not sent.

        `whole`: all fields of the body are sent. `patient`: no time limit for the response.

        Raises:
            OpenMemoryError: the service rejected the request, failed or did not answer.
        """
        import httpx

        await self._tell_slips(body if isinstance(body, Mapping) else params)
        timeout = httpx.Timeout(5, read=None) if patient else httpx.USE_CLIENT_DEFAULT
        # Arguments that are not UTF-8, and texts that were cut, have halves of surrogate pairs.
        body = replace_in(body if body is None or whole else _without_none(body))
        params = replace_in(_without_none(params))
        try:
            with self._transport():
                answer = await self.http.request(method, path, params=params, json=body, timeout=timeout)
        except ValueError as error:
            raise Invalid("body", f"must be valid JSON: {error}") from error
        if not answer.is_success:
            raise refusal(answer)
        try:
            return answer.json() if answer.content else None
        except ValueError as error:
            raise Unavailable(f"{self.http.base_url} is not OpenMemory: its answer to {path} is not JSON") from error

    async def _tell_slips(self, request: Mapping[str, Any]) -> None:
        """Asks the user if they meant another project, where an option names one that is not known.

        `request`: the parameters, the body or the form of the next request, which names the user.
        """
        for name in scope.take_option_projects():
            if name == PERSON:
                continue
            try:
                params = {"user_id": request.get("user_id"), "like": name}
                answer = await self.call("GET", "/api/v1/projects", params=params)
            except (Forbidden, Invalid, NotFound):  # the request of the command says why
                continue
            for one in answer["projects"]:
                note(f"Nothing was known of the project {plain(name)}. Did you mean {plain(one['namespace'])}?")

    @asynccontextmanager
    async def stream(self, method: str, path: str, **request: Any) -> AsyncIterator[Response]:
        """Calls the API and yields a response to be read in chunks, without a time limit for bodies.

        Raises:
            OpenMemoryError: the service rejected the request or failed, or the response ended early.
        """
        import httpx

        parts = (request.get(part) for part in ("params", "json", "data"))
        await self._tell_slips(next((one for one in parts if isinstance(one, Mapping)), {}))
        timeout = httpx.Timeout(30, read=None, write=None)
        with self._transport():
            async with self.http.stream(method, path, timeout=timeout, **request) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise refusal(answer)
                yield answer

    @contextmanager
    def _transport(self) -> Iterator[None]:
        import httpx

        try:
            yield
        except httpx.TransportError as error:
            raise Unavailable(f"{self.http.base_url}: {error or type(error).__name__}") from error

    async def user(self, name: str | None) -> str:
        """The user of a command: the given name, or the one that the service means."""
        return name or str((await self.call("GET", "/api/v1/me"))["user"])

    async def apps(self, user: str | None) -> list[dict[str, Any]]:
        """All apps of a user, by name."""
        entries: list[dict[str, Any]] = []
        while True:
            params = {"user_id": user, "page": len(entries) // 100 + 1, "page_size": 100, "activity": True}
            answer = await self.call("GET", "/api/v1/apps", params=params)
            entries += answer["apps"]
            if len(answer["apps"]) < 100:
                return entries

    async def app_id(self, user: str | None, name: str) -> str:
        """The id of a user's app.

        Raises:
            NotFound: the user has no app of this name.
        """
        for app in await self.apps(user):
            if app["name"] == name:
                return str(app["id"])
        raise NotFound(f"{await self.user(user)} has no app {name!r}", code="app_not_found")

    async def category_id(self, user: str | None, name: str) -> str:
        """The id of a category of a user's memories.

        Raises:
            NotFound: none of the user's memories has such a category.
        """
        answer = await self.call("GET", "/api/v1/memories/categories", params={"user_id": user})
        for category in answer["categories"]:
            if category["name"].casefold() == name.strip().casefold():
                return str(category["id"])
        raise NotFound(f"{await self.user(user)} has no memories of the category {name!r}", code="category_not_found")


def path_part(text: str) -> str:
    """A text of the user as a part of a path. A part of only dots would lead to another path."""
    from urllib.parse import quote

    return quote(replace_in(text), safe="").replace(".", "%2E")


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@asynccontextmanager
async def service(settings: Settings, url: str | None = None, *, existing: bool = False) -> AsyncIterator[Client]:
    """A client of the service at `url`, or of the one on the data folder, or of one in this process.

    Raises:
        NotFound: `existing`, and the data folder is missing or empty, so that one in this process would fill it.
    """
    import asyncio

    import httpx

    from openmemory.config.settings import client_key
    from openmemory.doors.cli.finding import data_folder, is_empty, reachable_service

    local_url = None if url is not None else await asyncio.to_thread(reachable_service, settings)
    address = url or local_url
    if address is None:
        if existing and await asyncio.to_thread(is_empty, settings):
            raise NotFound(f"{data_folder(settings)}: there is no data folder; `openmemory serve` makes one")
        async with _in_process(settings) as http:
            yield Client(http, settings)
        return
    async with httpx.AsyncClient(
        base_url=address,
        headers=_bearing(client_key() if local_url is None else credential(settings)) | _in_timezone(),
        timeout=60,
        # Proxies from the environment apply only to a given URL, never to a service on this machine.
        trust_env=local_url is None,
        # Loading all CA certificates takes as long as the request, so it is done only for https.
        verify=address.startswith("https://"),
    ) as http:
        yield Client(http, settings)


def where_to(config: Any, data_dir: Any, url: str | None) -> Settings:
    """The settings of a command, including the options that select the service.

    Raises:
        SetupError: one of the options cannot be used.
    """
    if url is not None:
        checked_url(url)
    return load_settings(config, data_dir=data_dir)


def checked_url(url: str, option: str = "--url") -> str:
    """The URL of a service, unchanged.

    Raises:
        SetupError: it is not an HTTP URL.
    """
    if not url.startswith(("http://", "https://")):
        raise SetupError(f"{option}: {url!r} must begin with http:// or https://")
    return url


def connected(
    command: Callable[Concatenate[Client, P], Awaitable[CommandAnswer | None]], *, existing: bool = False
) -> Callable[..., None]:
    """Turns a coroutine function into a command: passes a client, shows the answer, and adds the options that select
    the service. A command that returns an answer also has `--json`. `existing`: the command makes no data folder."""
    signature = inspect.signature(command, eval_str=True)
    extra_parameters: dict[str, tuple[Any, Any]] = (
        {"json": (Json, False)} if signature.return_annotation is CommandAnswer else {}
    )
    extra_parameters |= {"data_dir": (DataDir, None), "config": (ConfigFile, None), "url": (Url, None)}

    @functools.wraps(command)
    def run(
        *, json: bool = False, data_dir: Any = None, config: Any = None, url: str | None = None, **arguments: Any
    ) -> None:
        import asyncio

        settings = where_to(config, data_dir, url)

        async def go() -> None:
            async with service(settings, url, existing=existing) as client:
                answer = await command(client, **arguments)  # type: ignore[call-arg]
                if answer is not None:
                    answer.show(json=json)
                    answer.exit()

        asyncio.run(go())

    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in list(signature.parameters.values())[1:]]
    parameters = own + [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in extra_parameters.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__
    return run


@asynccontextmanager
async def _in_process(settings: Settings) -> AsyncIterator[AsyncClient]:
    import asyncio

    import httpx

    from openmemory.doors.cli.streaming import StreamingTransport
    from openmemory.doors.server.application import create_app
    from openmemory.services import open_services
    from openmemory.telemetry import logging

    quiet = settings.log
    if "level" not in quiet.model_fields_set:
        quiet = quiet.model_copy(update={"level": "warning"})
    logging.set_up_logging(quiet)
    async with open_services(settings, listen="no port (a command has the stores open itself)") as services:
        app = create_app(services)
        logging.set_up_logging(quiet)
        async with httpx.AsyncClient(
            base_url="http://localhost",
            transport=StreamingTransport(app),
            headers=_bearing(services.stores.local_key) | _in_timezone(),
            timeout=60,
        ) as http:
            yield http
        try:
            async with asyncio.timeout(_DRAIN):
                await services.outbox_delivery.drain()
        except TimeoutError:
            return


def credential(settings: Settings) -> str | None:
    """The credential for the service of the data folder: a key from the environment or the settings, otherwise the
    local key, which only accounts that may read the folder have. A key is never an option, because every account could
    see it in `ps`."""
    from openmemory.config.settings import client_key
    from openmemory.doors.cli.finding import data_folder
    from openmemory.embedded.folder import local_key

    return client_key() or settings.access.api_key.get_secret_value() or local_key(data_folder(settings))


def _bearing(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _in_timezone() -> dict[str, str]:
    """The header with the time zone of this machine, if it is known."""
    from openmemory.serialization.zones import HEADER, machine_zone

    zone = machine_zone()
    return {} if zone is None else {HEADER: zone.key}


def refusal(answer: Response, body: Any = None) -> OpenMemoryError:
    """The exception that the service raised, from its error response. `body`: the error, if it is not the whole
    response."""
    try:
        body = answer.json() if body is None else body
    except ValueError:
        body = {}
    if not isinstance(body, dict):
        body = {}
    message = str(body.get("detail") or f"{answer.status_code} {answer.reason_phrase}")
    code, hint = body.get("error"), body.get("hint")
    if answer.status_code in _INVALID:
        field, problem = _split_message(message)
        if isinstance(rejections := body.get("refused"), list):
            each = {one["index"]: Invalid(*_split_message(one["detail"]), code=one["error"]) for one in rejections}
            return BatchRefused(field, problem, refused=each, code=code, hint=hint)
        return Invalid(field, problem, code=code, hint=hint)
    if answer.status_code == 401:
        return Unauthenticated(message, code=code, hint="set OPENMEMORY_API_KEY to a key of that service")
    if answer.status_code in (502, 503, 504):
        return Unavailable(message, retry_after=_retry_after(answer), code=code, hint=hint)
    bases: dict[int, type[OpenMemoryError]] = {403: Forbidden, 404: NotFound, 409: ConflictError}
    return bases.get(answer.status_code, OpenMemoryError)(message, code=code, hint=hint)


def _split_message(message: str) -> tuple[str, str]:
    """The field name and the problem from an error message about a field."""
    field, separator, problem = message.partition(": ")
    return (field, problem) if separator else ("request", message)


def _retry_after(answer: Response) -> float:
    try:
        return min(30.0, max(0.1, float(answer.headers.get("retry-after", "1"))))
    except ValueError:
        return 1.0
