"""Checks the host names that the service answers to and the web pages that may call it. This blocks other sites' pages
in a browser that can reach the service."""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Scope

from openmemory.access.authentication import credentials_required, is_here
from openmemory.access.oauth.sign_in import REDIRECT_PATH
from openmemory.config.addresses import parsed
from openmemory.config.sections import origins
from openmemory.config.settings import Settings
from openmemory.doors.rest.http.errors import problem

LIVE, READY = "/health/live", "/health/ready"
PROBES = frozenset({LIVE, READY})
PAGES = frozenset({"/", "/docs", "/ui", "/ui/", REDIRECT_PATH})
"""The paths that a link on another site may lead to: they show nobody's data, and no read is logged. The authorization
server leads back to the last one."""

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:@/?#]+)(:[0-9]*)?")
_REMEMBERED = 100
"""The maximum number of Host headers remembered as ours, in the spelling in which they came."""
_METHODS = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
_EXPOSED = b"X-Request-ID, Retry-After, Mcp-Session-Id, Mcp-Protocol-Version, WWW-Authenticate"
_FOREIGN = frozenset({b"cross-site", b"same-site"})
"""The values that browsers send for requests between two origins. A site is any port of one host, so `same-site` is no
protection."""

HEADERS = frozenset(
    {
        b"host", b"origin", b"referer", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest",
        b"access-control-request-method", b"access-control-request-headers", b"access-control-request-private-network",
    }
)  # fmt: skip
"""The headers that this module reads."""

Headers = Mapping[bytes, bytes]


class Origins:
    """Checks, in this order: the Host header (against DNS rebinding), preflights, the Origin header, and requests that
    a browser makes without one (pictures, scripts, frames, links) for another origin's page."""

    def __init__(self, settings: Settings) -> None:
        self._hosts = _accepted_hosts(settings)
        self._host_cache: set[bytes] = set()
        self._pages = _each(settings.http.cors_origins)
        self._named_origins = _each(settings.http.named_origins)
        self._any = "*" in self._pages
        self._open = not credentials_required(settings)

    def may_call(self, headers: Headers) -> bool:
        """Returns True if the request comes from a page that may call the service."""
        origin = headers.get(b"origin")
        return origin is not None and (self._any or origin.decode("latin-1").lower() in self._pages)

    def vouched(self, scope: Scope, headers: Headers) -> bool:
        """Returns True if credentials that a browser sends by itself count: the request comes from one of our pages,
        from a named origin ('*' names none), or from a person who typed the address.

        A browser sends the origin with every request that is not a GET. With a GET it may send only the referrer, over
        plain HTTP between two machines, and not even that if the page forbids it. Then SameSite keeps other sites from
        sending the cookie.
        """
        origin = headers.get(b"origin")
        if origin is not None:
            return self._is_ours(scope, headers, origin)
        reads = scope["method"] in ("GET", "HEAD")
        site = headers.get(b"sec-fetch-site", b"").lower()
        if site:
            return site == b"same-origin" or (reads and site == b"none")
        referer = headers.get(b"referer")
        return reads and (referer is None or self._is_ours(scope, headers, _origin_of(referer)))

    def _is_ours(self, scope: Scope, headers: Headers, origin: bytes) -> bool:
        return self._is_named(origin) or _is_own(scope, headers, origin)

    def _is_named(self, origin: bytes) -> bool:
        return origin.decode("latin-1").lower() in self._named_origins

    def cors(self, headers: Headers, is_allowed: bool) -> list[tuple[bytes, bytes]]:
        """Returns the CORS headers of the response. A page may call without the credentials that a browser stores; with
        them only if its origin is named, or if no credential is required."""
        if b"origin" not in headers:
            return []
        if not is_allowed:
            return [(b"vary", b"Origin")]
        if self._any:
            return [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", _EXPOSED)]
        answer = [
            (b"vary", b"Origin"),
            (b"access-control-allow-origin", headers[b"origin"]),
            (b"access-control-expose-headers", _EXPOSED),
        ]
        if self._open or self._is_named(headers[b"origin"]):
            answer.append((b"access-control-allow-credentials", b"true"))
        return answer

    def refusal(self, scope: Scope, headers: Headers, is_allowed: bool) -> Response | None:
        """Returns the response to a request that goes no further; None if it may pass."""
        return (
            self._wrong_host(scope["path"], headers)
            or (self._preflight(headers) if is_allowed and scope["method"] == "OPTIONS" else None)
            or (None if is_allowed else self._wrong_origin(scope, headers))
        )

    def accepts_host(self, headers: Headers) -> bool:
        """Returns True if the Host header is a name of this service."""
        header = headers.get(b"host", b"")
        if header in self._host_cache or self._hosts is None:
            return True
        host = header.decode("latin-1").lower()
        if host not in self._hosts and _without_port(host) not in self._hosts:
            return False
        if len(self._host_cache) < _REMEMBERED:
            self._host_cache.add(header)
        return True

    def _wrong_host(self, path: str, headers: Headers) -> Response | None:
        if self.accepts_host(headers) or path == LIVE:
            return None
        host = headers.get(b"host", b"").decode("latin-1").lower()
        # Containers and load balancers probe by an address that is not known beforehand, or without a Host. A rebound
        # page always sends a name: the one that it was loaded from.
        if path == READY and (not host or parsed(_without_port(host).strip("[]")) is not None):
            return None
        return problem(
            421,
            "host_not_allowed",
            f"Host: {host[:200]!r} is not a name of this service",
            "Add the name to http.allowed_hosts.",
        )

    def _preflight(self, headers: Headers) -> Response | None:
        if b"access-control-request-method" not in headers:
            return None
        request_headers = headers.get(b"access-control-request-headers", b"").decode("latin-1")
        response_headers = {
            "Access-Control-Allow-Methods": _METHODS,
            "Access-Control-Allow-Headers": request_headers or "Content-Type",
            "Access-Control-Max-Age": "600",
        }
        if b"access-control-request-private-network" in headers and not self._any:
            # A page of the public network that calls a private one must be a named origin.
            response_headers["Access-Control-Allow-Private-Network"] = "true"
        return Response(status_code=204, headers=response_headers)

    def _wrong_origin(self, scope: Scope, headers: Headers) -> Response | None:
        origin = headers.get(b"origin")
        if origin is None:
            return None if b"sec-fetch-site" not in headers else self._foreign(scope, headers)
        if _is_own(scope, headers, origin):
            return None
        return problem(
            403,
            "origin_not_allowed",
            f"Origin: pages of {origin.decode('latin-1')[:200]!r} may not call this service",
            "Add the origin to http.cors_origins.",
        )

    def _foreign(self, scope: Scope, headers: Headers) -> Response | None:
        if self._any or headers[b"sec-fetch-site"].lower() not in _FOREIGN:
            return None
        navigates = headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
        if navigates and scope["method"] == "GET" and scope["path"] in PAGES:
            return None
        return problem(
            403,
            "origin_not_allowed",
            "Sec-Fetch-Site: a page of another origin made the browser ask for this, without saying which (Origin)",
            "Type the address yourself, or call with fetch() from an origin of http.cors_origins.",
        )


def _each(settings: tuple[str, ...]) -> frozenset[str]:
    return frozenset(each for setting in settings for each in origins(setting))


def states_origin(headers: Headers) -> bool:
    """Returns True if a browser says where the request comes from. Without that, a link on any site looks like a typed
    address."""
    return any(name in headers for name in (b"origin", b"sec-fetch-site", b"referer"))


def _origin_of(address: bytes) -> bytes:
    scheme, separator, rest = address.partition(b"://")
    return scheme + separator + re.split(rb"[/?#]", rest, maxsplit=1)[0]


def _is_own(scope: Scope, headers: Headers, origin: bytes) -> bool:
    """Returns True if one of our pages makes the request, under the same host name that it requests."""
    scheme, separator, host = origin.lower().partition(b"://")
    # Behind a proxy that terminates TLS, one of our pages has https where we see http; never the other way round.
    downgraded = scheme != b"https" and scope.get("scheme") == "https"
    return bool(separator) and host == headers.get(b"host", b"").lower() and not downgraded


def _accepted_hosts(settings: Settings) -> frozenset[str] | None:
    """Returns the host names that the service accepts; None for any.

    Beyond loopback a credential protects the service, and a rebound page does not have one; there only an explicit list
    restricts the names.
    """
    names = [name.lower() for name in settings.http.allowed_hosts]
    if "*" in names or (not is_here(settings.host) and not names and credentials_required(settings)):
        return None
    own = f"[{settings.host}]" if ":" in settings.host else settings.host
    return frozenset([*_LOOPBACK, own.lower(), *names])


def _without_port(host: str) -> str:
    match = _AUTHORITY.fullmatch(host)
    return match[1].rstrip(".") if match else ""
