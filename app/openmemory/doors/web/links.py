"""Addresses of pages. They are relative, so that they hold behind a proxy that adds a path in front."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

ROOT = "/ui/"


def upward(request: Request) -> str:
    """Returns the relative address of the pages' root, as seen from the page that was requested."""
    path: str = request.scope["path"]
    depth = path.removeprefix(ROOT).count("/") if path.startswith(ROOT) else 0
    return "../" * depth or "./"


def link(request: Request, to: str, parameters: Mapping[str, Any] | None = None) -> str:
    """Returns the address of a page below the root, such as `memories`. The chosen user stays chosen.

    A parameter that is None, empty or False is left out; a list is repeated.
    """
    return links(request)(to, parameters)


def links(request: Request, *, chosen: bool = True) -> Callable[[str, Mapping[str, Any] | None], str]:
    """Returns `link` for one request, as a function of the other two parameters. The user who was chosen in the address
    stays so if `chosen`."""
    root, user = upward(request), request.query_params.get("user") if chosen else None
    user_parameters = [("user", user)] if user else []
    plain = f"?{urlencode(user_parameters)}" if user_parameters else ""

    def to(path: str, parameters: Mapping[str, Any] | None = None) -> str:
        if not parameters:
            return f"{root}{path}{plain}"
        pairs = [
            (name, "1" if each is True else str(each))
            for name, value in parameters.items()
            for each in (value if isinstance(value, list | tuple) else [value])
            if each not in (None, "", False)
        ]
        query = urlencode([*([] if "user" in parameters else user_parameters), *pairs])
        return f"{root}{path}?{query}" if query else root + path

    return to


def address(request: Request) -> str:
    """Returns the address of the requested page below the root, with its query."""
    query = request.scope["query_string"].decode("latin-1")
    path: str = request.scope["path"]
    return path.removeprefix(ROOT) + (f"?{query}" if query else "")


def is_page(to: str) -> bool:
    """Returns True for an address below the root of our pages, and for nothing that leads elsewhere."""
    path = to.partition("?")[0]
    return to[:1].isalpha() and not set(path) & set(":\\") and ".." not in path and "//" not in path
