"""Authenticates requests: checks the credential that a request carries, and counts and logs wrong ones."""

from __future__ import annotations

import asyncio
import hmac
import math
import time
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from openmemory.access.browser_sessions import BrowserSessions
from openmemory.access.keys import ApiKeys
from openmemory.access.rate_limits import RateLimiter
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.config.addresses import is_loopback, network_of
from openmemory.config.settings import Settings
from openmemory.database.engine import Database
from openmemory.errors import TooMany, Unauthenticated
from openmemory.identity.principal import LOCAL, Principal

if TYPE_CHECKING:
    from openmemory.access.oauth.tokens import Tokens

SETTINGS_ID = "settings"
_MAX_SHUT_OUT = 10_000
_LOOKED_UP_AT_ONCE = 2
"""The limit on concurrent lookups of keys from all addresses that sent too many wrong ones. It keeps most PostgreSQL
connections free for other callers."""


@dataclass(frozen=True, slots=True)
class PresentedCredentials:
    """The credentials of a request, the most binding first, and where the request came from.

    `forwarded`: a proxy states that it forwarded the request. `outage`: the response describes the service and contains
    no memories, so it is available even while PostgreSQL is down. `session`: the credential is the id of a browser's
    session.
    """

    credentials: Sequence[str] = field(repr=False)
    address: str | None
    request: str
    forwarded: bool = False
    outage: bool = False
    session: bool = False


class Authenticator:
    """Checks credentials. Where none is required, a request without one is treated as local."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        keys: ApiKeys,
        sessions: BrowserSessions,
        rates: RateLimiter,
        *,
        tokens: Tokens | None = None,
        local_key: str | None = None,
    ) -> None:
        self.required = credentials_required(settings)
        self._static = settings.access.api_key.get_secret_value()
        self._local = local_key
        self._database = database
        self._keys = keys
        self.sessions = sessions
        self._tokens = tokens
        self._rates = rates
        self._shut_out: dict[str, float] = {}
        self._looking_up = asyncio.Semaphore(_LOOKED_UP_AT_ONCE)

    async def principal(self, request: PresentedCredentials) -> Principal:
        """Returns the principal behind a request. If the request has several credentials, the first counts.

        Raises:
            Unauthenticated: a credential is required and missing, or it is wrong, expired or revoked.
            TooMany: the credential is wrong, and too many wrong ones came from that address. A valid credential is
                accepted from any address, because many clients may share one.
            Unavailable: PostgreSQL does not answer.
        """
        if not request.credentials:
            if self.required:
                words = "An access token or an API key is needed." if self._tokens else "An API key is needed."
                raise Unauthenticated(words, hint=_HOW)
            if request.forwarded:
                words = "A proxy passed this on, so it may come from another machine: an API key is needed."
                raise Unauthenticated(words, hint=_BEHIND)
            return LOCAL
        credential: str | None = request.credentials[0]
        if not request.session and (principal := self._resolve_in_memory(request.credentials[0])) is not None:
            return principal
        shut = self._shut_out.get(network_of(request.address), 0.0) - time.monotonic()
        async with self._looking_up if shut > 0 else nullcontext():
            if request.session:
                credential = await self.sessions.credential(request.credentials[0])
            principal = None if credential is None else self._resolve_in_memory(credential)
            if principal is None and credential is not None:
                principal = await self._keys.find(credential, outage=request.outage)
        if principal is not None:
            return principal
        message = "The sign-in of this browser has ended." if credential is None else _INVALID
        refusal = Unauthenticated(message, code="invalid_credential", hint=_HOW)
        if self._tokens is not None and credential is not None and not credential.startswith("om_"):
            try:
                return await self._tokens.verify(credential)
            except Unauthenticated as error:
                refusal = error
        if shut > 0:
            raise TooMany("Too many wrong credentials from this address.", retry_after=shut, hint=_later(shut))
        await self._note_wrong(request, refusal.code)
        raise refusal

    async def still_valid(self, principal: Principal) -> bool:
        """Returns True if the credential that opened a session is still valid."""
        if principal.ends is not None and time.time() >= principal.ends:
            return False
        kind, _, id_ = principal.id.partition(":")
        return kind != "key" or await self._keys.in_force(UUID(id_))

    async def ended(self, principals: Collection[Principal]) -> set[Principal]:
        """Returns those of the principals whose credential is no longer valid. One lookup serves all of them."""
        keys = {UUID(each.id.partition(":")[2]) for each in principals if each.id.startswith("key:")}
        revoked_ids = {f"key:{key}" for key in await self._keys.ended(keys)}
        now = time.time()
        return {each for each in principals if each.id in revoked_ids or (each.ends is not None and now >= each.ends)}

    def _resolve_in_memory(self, credential: str) -> Principal | None:
        """Resolves a credential without querying PostgreSQL."""
        as_bytes = credential.encode("utf-8", "surrogatepass")
        if self._local and hmac.compare_digest(as_bytes, self._local.encode()):
            return LOCAL
        if self._static and hmac.compare_digest(as_bytes, self._static.encode()):
            return Principal(SETTINGS_ID, "access.api_key")
        if self._tokens is not None and (principal := self._tokens.from_cache(credential)) is not None:
            return principal
        return self._keys.from_cache(credential)

    async def _note_wrong(self, request: PresentedCredentials, code: str) -> None:
        try:
            await self._rates.failure(request.address)
        except TooMany as error:
            network = network_of(request.address)
            self._shut_out.pop(network, None)
            while len(self._shut_out) >= _MAX_SHUT_OUT:
                del self._shut_out[next(iter(self._shut_out))]
            self._shut_out[network] = time.monotonic() + error.retry_after
            raise
        nobody = Principal("nobody", _prefix(request.credentials[0]), address=request.address, request=request.request)
        async with self._database.statement() as tx:
            await audit_log.record(tx, nobody, AuditAction.CREDENTIAL_REFUSED, result=code)


_INVALID = "The API key is invalid, revoked or expired."
_BEHIND = (
    "Make one with `openmemory keys create`, and name the proxy in http.trusted_proxies and its public name in "
    "http.allowed_hosts."
)
_HOW = "Send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`; MCP clients may append ?key=KEY to the URL."


def credentials_required(settings: Settings) -> bool:
    """Returns True if every request must carry a credential. This is the case whenever the service can be reached
    under a name other than this machine's, or through a proxy."""
    return (
        settings.access.require == "always"
        or bool(settings.access.api_key.get_secret_value())
        or bool(settings.oauth.issuer)
        or bool(settings.http.trusted_proxies)
        or beyond_loopback(settings)
    )


def beyond_loopback(settings: Settings) -> bool:
    """Returns True if other machines can reach the service, directly or through a proxy that uses a public name."""
    names = (settings.host, *settings.http.allowed_hosts)
    return not all(is_here(name) for name in names)


def is_here(name: str) -> bool:
    """Returns True if a name or an address, with or without a port, means this machine and no other."""
    host = name[: name.find("]") + 1] if name.startswith("[") else name
    if host.count(":") == 1:
        host = host.partition(":")[0]
    return is_loopback(host.strip("[]").lower().rstrip("."))


def _prefix(credential: str) -> str:
    """Returns the part of a wrong credential that may be logged: its public prefix, if it looks like a key of ours."""
    name, _, rest = credential.removeprefix("om_").partition("_")
    return f"om_{name}" if credential.startswith("om_") and len(name) == 8 and name.isalnum() and rest else "unknown"


def _later(seconds: float) -> str:
    return f"Try again in {math.ceil(seconds)} s."
