"""What a request carries to prove itself, wherever its client can put it, and the cookie of a browser.

A key in the address is taken out of it before anything else looks, however `key` is spelt there: in capitals,
percent-encoded or between doubled slashes. So no route, log, error or audit line ever holds one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, unquote_plus

from starlette.responses import Response
from starlette.types import Scope

from openmemory.rest.hardening import QUESTION

COOKIE = "openmemory_key"
SIGN_OUT = frozenset({"/logout", "/logout/"})
HEADERS = frozenset({b"authorization", b"x-api-key", b"cookie"})
"""The headers that are looked at here."""

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
<form method="post" action="/?key={key}">
<p>Sign this browser in with the key in the address?</p>
<p>Only if the address is your own: with somebody else's key you would see their memories and add to them.</p>
<button>Sign in</button>
</form>
</body>
</html>
"""
_KEPT_SECONDS = 30 * 24 * 60 * 60
_NAME = rb"(?:k|%[46]b)(?:e|%[46]5)(?:y|%[57]9)"
_IN_QUERY = re.compile(rb"(?:^|&)" + _NAME + rb"=([^&]*)", re.IGNORECASE)
_IN_PATH = re.compile(rb"(?:/|%2f)+" + _NAME + rb"(?:/|%2f)+([^/]*)/*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Carried:
    """The credentials of one request, each list the most binding first.

    `headers` come with every request of a client; `address` are those of `?key=` and of `/key/…/`, which a client may
    send only when it connects; `cookie` is what a browser sends by itself, whoever made it ask.
    """

    headers: tuple[str, ...] = field(repr=False)
    address: tuple[str, ...] = field(repr=False)
    cookie: str | None = field(repr=False)

    @property
    def spoken(self) -> tuple[str, ...]:
        """What the client itself sent. The first of them counts, and the cookie only where there is none."""
        return self.headers + self.address


def taken(scope: Scope, headers: Mapping[bytes, bytes]) -> Carried:
    """What a request carries. What stands in its address is there no longer."""
    scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
    sent = (bearer.strip() if scheme.lower() == b"bearer" else b"", headers.get(b"x-api-key", b""))
    in_headers = tuple(each.decode("utf-8", "replace") for each in sent if each)
    in_address = tuple(each for each in (_of_query(scope), _of_path(scope)) if each)
    return Carried(in_headers, in_address, _of_cookie(headers.get(b"cookie", b"")))


def _of_query(scope: Scope) -> str | None:
    query: bytes = scope["query_string"]
    if not query or not (found := _IN_QUERY.findall(query)):
        return None
    scope["query_string"] = _IN_QUERY.sub(b"", query).lstrip(b"&")
    return unquote_plus(found[-1].decode("latin-1"))


def _of_path(scope: Scope) -> str | None:
    """The key of `/key/KEY/api/v1/…`, for programs that only append paths to an address they were given.

    The path is read as it was sent: decoded, a slash within the key would end it.
    """
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    found = _IN_PATH.match(raw)
    if found is None:
        return None
    rest = b"/" + raw[found.end() :]
    scope["raw_path"] = rest
    scope["path"] = unquote(rest.decode("latin-1"))
    return unquote(found[1].decode("latin-1"))


def _of_cookie(header: bytes) -> str | None:
    for pair in header.split(b";"):
        name, _, value = pair.strip().partition(b"=")
        if name == COOKIE.encode():
            return unquote(value.strip(b'"').decode("latin-1")) or None
    return None


def signed_in(scope: Scope, key: str) -> Response:
    """Leads a browser to the page, with the key as a cookie that no script can read and no other site makes it send."""
    answer = _to_the_page()
    answer.set_cookie(
        COOKIE, quote(key, safe=""), max_age=_KEPT_SECONDS, httponly=True, samesite="strict", secure=_is_secure(scope)
    )
    return answer


def asked(key: str) -> Response:
    """Asks a person whether to sign the browser in. It sends the answer with its origin (for which the page's referrer
    policy must not be the strictest), so that no page but this one can give it."""
    return Response(_QUESTION.format(key=quote(key, safe="")), media_type="text/html", headers=QUESTION)


def signed_out(scope: Scope) -> Response:
    """Leads a browser to the page, without the cookie."""
    answer = _to_the_page()
    without_cookie(scope, answer)
    return answer


def without_cookie(scope: Scope, answer: Response) -> None:
    """Have a browser forget the cookie: a key that has ended would otherwise be refused, and counted, for ever."""
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=_is_secure(scope))


def _to_the_page() -> Response:
    return Response(status_code=303, headers={"Location": "/"})


def _is_secure(scope: Scope) -> bool:
    return scope.get("scheme") == "https"
