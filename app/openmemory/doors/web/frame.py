"""The frame around every page: the bar at the top with its links, and the files that the page loads."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from openmemory.doors.web.links import address, links, upward
from openmemory.doors.web.static import path as static_path
from openmemory.identity.principal import Principal, Scope
from openmemory.services import VERSION

NAVIGATION = {
    "memories": "Memories",
    "apps": "Apps",
    "activity": "Activity",
    "time": "Time",
    "connect": "Connect",
    "settings": "Settings",
    "system": "System",
}
"""The pages in the bar at the top: path and label."""


def frame(request: Request, principal: Principal | None, *, chosen: bool = True) -> dict[str, Any]:
    """Returns the values that the frame needs. Without a principal, nobody is signed in and the bar leads nowhere.

    `chosen`: links keep the user whom the address names.
    """
    first = request.scope["path"].removeprefix("/ui/").partition("/")[0]
    to = links(request, chosen=chosen)
    navigation = {path: label for path, label in NAVIGATION.items() if principal and may_open(principal, path)}
    return {
        "link": lambda path, **parameters: to(path, parameters),
        "static": lambda name: upward(request) + static_path(name),
        "tab": {"memory": "memories"}.get(first, first),
        "navigation": navigation,
        "signed_in": principal is not None and principal.id != "local",
        "version": VERSION,
        "address": address(request),
        "chosen": request.query_params.get("user", ""),
    }


def may_open(principal: Principal, path: str) -> bool:
    """Returns True if a page, such as `apps`, shows the credential anything. The navigation omits the others."""
    everything = principal.app is None and principal.namespaces is None
    rights = {
        "apps": everything,
        "activity": everything,
        "system": principal.operates,
        "settings/models": principal.administers,
        "settings/categories": everything,
        "settings/policies": everything,
        "settings/archives": everything,
        "settings/keys": Scope.ADMIN in principal.scopes,
    }
    return rights.get(path, True)
