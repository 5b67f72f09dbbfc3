"""Connecting assistants, and what those that are connected do with the memory."""

from __future__ import annotations

import asyncio
import shlex
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter
from starlette.responses import Response

from openmemory.access.schemas import AppSummary
from openmemory.connect.clients import AssistantClient, assistants
from openmemory.connect.connections import entry
from openmemory.connect.links import link
from openmemory.connect.servers import program, server
from openmemory.doors.web.page import PageRequest, ThePage
from openmemory.errors import Invalid
from openmemory.identity.principal import LOCAL

router = APIRouter(include_in_schema=False)

_MOST_APPS = 100

_KEY = "KEY"
"""Stands for a key in commands and links: the page has none."""


class Assistant(NamedTuple):
    """An assistant: the way to connect it, and what it did. `link`: opens it and offers to add the server."""

    name: str
    title: str
    connected: bool
    installed: bool
    command: str = ""
    link: str | None = None
    then: str = ""
    app: AppSummary | None = None

    @property
    def last_read(self) -> datetime | None:
        """The last time that it read a memory."""
        return self.app.last_accessed if self.app else None

    @property
    def in_use(self) -> bool:
        """True if it wrote or read in the last days."""
        return self.app is not None and bool(self.app.recently_created or self.app.recently_accessed)

    @property
    def seen(self) -> bool:
        """True if it is connected, or did something with the memory."""
        count = self.app and (self.app.total_memories_created or self.app.total_memories_accessed)
        return self.connected or bool(count)


class _Way(NamedTuple):
    """The way to this service. `url`: None if the assistants are on its own machine and start a command."""

    command: list[str]
    url: str | None
    key: str | None
    user: str | None

    def connecting(self, name: str) -> str:
        """Returns the command that connects an assistant."""
        options = [f"--remote={self.url}", f"--key={self.key}"] if self.url else self.command[2:]
        user = [f"--user={self.user}"] if self.url and self.user else []
        return shlex.join(["openmemory", "connect", *([name] if name else []), *options, *user])


@router.get("/ui/connect")
async def show(page: ThePage) -> Response:
    """Show the assistants, and the addresses for every other client."""
    base = page.services.settings.oauth.resource or str(page.request.base_url).rstrip("/")
    way = _way(page, base)
    apps = await _apps(page)
    here = way.url is None
    ours = await asyncio.to_thread(_our_assistants, way, apps, here=here)
    names = {one.name for one in ours}
    names.add(page.services.settings.access.default_app)  # what the user did themself
    others = [Assistant(name, name, connected=False, installed=False, app=app) for name, app in apps.items()]
    assistants = ours + [one for one in others if one.name not in names and one.seen]
    return page.render(
        "connect.html",
        local=here,
        used=sorted((one for one in assistants if one.seen), key=lambda one: (not one.in_use, one.title.lower())),
        others=sorted(
            (one for one in ours if not one.seen), key=lambda one: (not one.installed, not one.link, one.title.lower())
        ),
        all_at_once=way.connecting(""),
        http=f"{base}/mcp",
        sse=f"{base}/mcp/sse",
        command=shlex.join(way.command),
        named=way.user,
    )


def _way(page: PageRequest, base: str) -> _Way:
    """Returns the way that assistants of whoever looks at the page have to the service."""
    settings = page.services.settings
    me = page.services.directory.me(page.principal)
    user = None if page.caller.user == me.user else page.caller.user
    command = [*program(), "mcp"]
    if page.principal.id != LOCAL.id:
        return _Way(command, base, _KEY, user)
    if settings.data_dir:
        command.append(f"--data-dir={Path(settings.data_dir).expanduser().absolute()}")
    return _Way(command + ([f"--user={user}"] if user else []), None, None, user)


async def _apps(page: PageRequest) -> dict[str, AppSummary]:
    """Returns the apps of the user with what they did lately, by name; none if the credential may not see them."""
    if not page.everything:
        return {}
    result = await page.services.apps.list(
        page.caller, activity=True, sort="memories", descending=True, page_size=_MOST_APPS
    )
    return {app.name: app for app in result.apps}


def _our_assistants(way: _Way, apps: dict[str, AppSummary], *, here: bool) -> list[Assistant]:
    """Returns the assistants that we know. `here`: their files are on this machine."""
    return [
        Assistant(
            it.app,
            it.title,
            connected=here and _is_connected(it),
            installed=here and it.installed,
            command=way.connecting(it.app),
            link=link(it, server(it, way.command, way.url, key=way.key, user=way.user)),
            then=it.then,
            app=apps.get(it.app),
        )
        for it in assistants()
    ]


def _is_connected(client: AssistantClient) -> bool:
    try:
        return entry(client, client.file) is not None
    except Invalid:
        return False
