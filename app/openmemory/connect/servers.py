"""The way of an assistant to the service: a command that it starts, or a URL."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from openmemory.connect.clients import AssistantClient, ServerAddress


@dataclass(frozen=True, slots=True)
class Offered:
    """The tools that an assistant is to be offered, besides the usual ones or alone.

    Usage: `Offered(only="mempack").options`.
    """

    toolsets: str | None = None
    only: str | None = None

    @property
    def options(self) -> list[str]:
        """The options of `openmemory mcp`."""
        return [part for name, value in self.query.items() for part in (f"--{name}", value)]

    @property
    def query(self) -> dict[str, str]:
        """The parameters of an address."""
        parameters = {"toolsets": self.toolsets, "as": self.only}
        return {name: value for name, value in parameters.items() if value is not None}


USUAL = Offered()
"""The usual tools."""


def program() -> tuple[str, ...]:
    """The command that assistants start: this program. Those with a window do not have the PATH of a shell."""
    own = Path(sys.executable).with_name("openmemory.exe" if os.name == "nt" else "openmemory")
    # -P: do not import from the working folder.
    return (str(own),) if own.exists() else (sys.executable, "-P", "-m", "openmemory")


def shared_program() -> tuple[str, ...]:
    """The command in files that others share: the bare name, where it starts this program; otherwise as `program`."""
    own, path = program(), shutil.which("openmemory")
    same = path is not None and len(own) == 1 and os.path.realpath(path) == os.path.realpath(own[0])
    return ("openmemory",) if same else own


def server(
    client: AssistantClient,
    command: Sequence[str],
    url: str | None,
    *,
    key: str | None,
    user: str | None,
    offered: Offered = USUAL,
) -> ServerAddress:
    """The way of this assistant to the service, under its own name. `url`: None if the service is on this machine."""
    command = (*command, "--client", client.app, *offered.options)
    if url is None:
        return ServerAddress(command=command)
    if client.remote is None:
        return ServerAddress(command=(*command, "--url", url), env={"OPENMEMORY_API_KEY": key} if key else {})
    path = f"/mcp/{quote(client.app, safe='')}/http/{quote(user, safe='')}" if user else "/mcp"
    query = offered.query if not user or offered.only else {"format": "compact"} | offered.query
    path += f"?{urlencode(query, safe=',')}" if query else ""
    return ServerAddress(url=url + path, headers={"Authorization": f"Bearer {key}"} if key else {})
