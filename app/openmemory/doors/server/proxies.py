"""Reads what trusted proxies say about a request: the client's address, the scheme, and a path prefix."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from openmemory.identity.request import bind_prefix

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

_PREFIX = re.compile(rb"(?:/[A-Za-z0-9._~-]{1,100}){1,10}")


class TrustedProxies(ProxyHeadersMiddleware):
    """uvicorn's middleware for `X-Forwarded-For` and `X-Forwarded-Proto`, and `X-Forwarded-Prefix` besides.

    The prefix is what the proxy removed from the path. Anything but one plain path is ignored, and so is every header
    of a proxy that is not trusted.
    """

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Pass one request on."""
        if scope["type"] == "http" and (client := scope.get("client")) and client[0] in self.trusted_hosts:
            prefixes = [value.rstrip(b"/") for name, value in scope["headers"] if name == b"x-forwarded-prefix"]
            if len(prefixes) == 1 and _PREFIX.fullmatch(prefixes[0]):
                bind_prefix(cast(dict[str, Any], scope), prefixes[0].decode())
        await super().__call__(scope, receive, send)
