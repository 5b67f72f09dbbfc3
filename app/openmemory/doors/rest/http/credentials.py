"""Extracts the credentials of a request, wherever its client can put them, and manages the cookie of a browser.

A key in the address is removed before anything else reads the address, however `key` is spelled: in capitals,
percent-encoded or between doubled slashes. No route, log, error or audit entry ever holds a key.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, unquote_plus

from starlette.responses import Response
from starlette.types import Scope

from openmemory.access.browser_sessions import LASTING, BrowserSessions
from openmemory.access.oauth.sign_in import REDIRECT_PATH
from openmemory.doors.rest.http.hardening import QUESTION
from openmemory.identity.principal import Principal

COOKIE = "openmemory_session"
"""The cookie with the id of a browser's session. Over TLS its name has a prefix, with which browsers take it only from
this host, and only over TLS."""
SIGN_OUT = frozenset({"/logout", "/logout/"})
FORMS = frozenset({"/ui/sign-in", "/ui/sign-out"})
"""The forms that set and delete the cookie. They need no credential."""
OAUTH = frozenset({"/ui/sign-in/start", REDIRECT_PATH})
"""The addresses that lead to the authorization server and back. They need no credential."""
HEADERS = frozenset({b"authorization", b"x-api-key", b"cookie"})
"""The headers that this module reads."""

_QUESTION = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="strict-origin">
<title>OpenMemory</title>
<link rel="icon" href="data:,">
</head>
<body>
<form method="post" action="?key={key}">
<p>Sign this browser in with the key in the address?</p>
<p>Only if the address is your own: with somebody else's key you would see their memories and add to them.</p>
<button>Sign in</button>
</form>
</body>
</html>
"""
_UP = "openmemory.up"
"""The scope's entry with the relative address of the root, if a key was taken out of the path."""
_KEPT_SECONDS = LASTING.total_seconds()
_NAME = rb"(?:k|%[46]b)(?:e|%[46]5)(?:y|%[57]9)"
_IN_QUERY = re.compile(rb"(?:^|&)" + _NAME + rb"=([^&]*)", re.IGNORECASE)
_IN_PATH = re.compile(rb"(?:/|%2f)+" + _NAME + rb"(?:/|%2f)+([^/]*)/*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """The credentials of one request; in each tuple, the one that takes precedence comes first.

    `headers` come with every request of a client. `address` holds those of `?key=` and of `/key/…/`, which a client may
    send only when it connects. `cookie` is sent by the browser itself, whichever page caused the request.
    """

    headers: tuple[str, ...] = field(repr=False)
    address: tuple[str, ...] = field(repr=False)
    cookie: str | None = field(repr=False)

    @property
    def explicit(self) -> tuple[str, ...]:
        """The credentials that the client itself sent. The first one counts; the cookie counts only without any."""
        return self.headers + self.address


def take(scope: Scope, headers: Mapping[bytes, bytes]) -> RequestCredentials:
    """Returns the credentials of a request and removes those in its address."""
    scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
    values = (bearer.strip() if scheme.lower() == b"bearer" else b"", headers.get(b"x-api-key", b""))
    in_headers = tuple(each.decode("utf-8", "replace") for each in values if each)
    in_address = tuple(each for each in (_of_query(scope), _of_path(scope)) if each)
    return RequestCredentials(in_headers, in_address, _of_cookie(scope, headers.get(b"cookie", b"")))


def _of_query(scope: Scope) -> str | None:
    query: bytes = scope["query_string"]
    if not query or not (values := _IN_QUERY.findall(query)):
        return None
    scope["query_string"] = _IN_QUERY.sub(b"", query).lstrip(b"&")
    return unquote_plus(values[-1].decode("latin-1"))


def _of_path(scope: Scope) -> str | None:
    """Returns the key of `/key/KEY/api/v1/…`, for programs that only append paths to a given address.

    The path is parsed before decoding: after decoding, a slash within the key would end it.
    """
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    match = _IN_PATH.match(raw)
    if match is None:
        return None
    rest = b"/" + raw[match.end() :]
    scope[_UP] = "../" * raw.count(b"/", 1, match.end())
    scope["raw_path"] = rest
    scope["path"] = unquote(rest.decode("latin-1"))
    return unquote(match[1].decode("latin-1"))


def _of_cookie(scope: Scope, header: bytes) -> str | None:
    cookie_name = cookie_of(scope).encode()
    for pair in header.split(b";"):
        name, _, value = pair.strip().partition(b"=")
        if name == cookie_name:
            return unquote(value.strip(b'"').decode("latin-1")) or None
    return None


def signed_in(scope: Scope) -> Response:
    """Redirects a browser to the page. `remember` signs it in."""
    return _to_the_page(scope)


async def remember(
    scope: Scope, answer: Response, credential: str, principal: Principal, sessions: BrowserSessions
) -> None:
    """Opens a session for a valid credential, for 30 days or until a token ends, and sets its id as a cookie that no
    script can read and no other site can make the browser send."""
    seconds = _KEPT_SECONDS if principal.ends is None else min(principal.ends - time.time(), _KEPT_SECONDS)
    id_ = await sessions.open(credential, principal, seconds)
    answer.set_cookie(
        cookie_of(scope), id_, max_age=int(seconds), httponly=True, samesite="strict", secure=_is_secure(scope)
    )


def cookie_of(scope: Scope) -> str:
    """The name of the cookie for a request."""
    return f"__Host-{COOKIE}" if _is_secure(scope) else COOKIE


def sign_in_page(key: str) -> Response:
    """Returns a page that asks whether to sign the browser in. The answer is sent with its origin, so that only this
    page can give it; the page's referrer policy must therefore not be the strictest."""
    return Response(_QUESTION.format(key=quote(key, safe="")), media_type="text/html", headers=QUESTION)


def signed_out(scope: Scope) -> Response:
    """Redirects a browser to the page and deletes the cookie."""
    answer = _to_the_page(scope)
    without_cookie(scope, answer)
    return answer


def without_cookie(scope: Scope, answer: Response) -> None:
    """Deletes the browser's cookie. Otherwise a key that has ended would be refused, and counted, for ever."""
    answer.delete_cookie(cookie_of(scope), httponly=True, samesite="strict", secure=_is_secure(scope))


def _to_the_page(scope: Scope) -> Response:
    # Relative, because a proxy may add a path in front.
    up = scope.get(_UP, "") + ("../" if scope["path"] == "/logout/" else "")
    return Response(status_code=303, headers={"Location": up or "./"})


def _is_secure(scope: Scope) -> bool:
    return scope.get("scheme") == "https"
