"""Security headers that restrict what a browser may do with a response."""

from __future__ import annotations

from collections.abc import Iterable

Header = tuple[bytes, bytes]

_POLICY = b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_ALWAYS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)
_OWN: Header = (b"cross-origin-resource-policy", b"same-origin")
_NOTHING_LOADED: Header = (b"content-security-policy", _POLICY)
_NOT_KEPT: Header = (b"cache-control", b"no-store")

_FULL = (*_ALWAYS, _OWN, _NOTHING_LOADED, _NOT_KEPT)

PAGE = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
"""The policy of our pages: files of the same origin only, and nothing inline."""

FORMS = PAGE | {
    "Content-Security-Policy": PAGE["Content-Security-Policy"].replace("form-action 'none'", "form-action 'self'"),
}
"""The policy of pages that may also submit forms to this service."""

QUESTION = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""The policy of a page that only asks a question: it may submit its own form."""


def harden(original: Iterable[Header], extra: Iterable[Header], shared: bool) -> list[Header]:
    """Returns the headers of a response, with the security headers added unless the response sets them itself.

    `shared` is True if a page of another origin may read the response.
    """
    cached = framed = False
    for name, _ in original:
        if name == b"cache-control":
            cached = True
        elif name == b"content-security-policy":
            framed = True
    if not (cached or framed or shared):
        return [*original, *extra, *_FULL]
    headers = [*original, *extra, *_ALWAYS]
    if not shared:
        headers.append(_OWN)
    if not framed:
        headers.append(_NOTHING_LOADED)
    if not cached:
        headers.append(_NOT_KEPT)
    return headers
