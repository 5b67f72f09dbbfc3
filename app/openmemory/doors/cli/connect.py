"""`openmemory connect`, `disconnect` and `clients`: the assistants of this machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openmemory.doors.cli.assistants import DryRun, Names, Yes, adding, change_files, chosen_from, removing, with_hooks
from openmemory.doors.cli.client import Client, checked_url, connected
from openmemory.doors.cli.options import ConfigFile, DataDir, Json, OnlyTools, Toolsets, User, location_options
from openmemory.doors.cli.output import CommandAnswer, Table, local_time, note

if TYPE_CHECKING:
    from collections.abc import Callable

    from openmemory.connect.clients import AssistantClient
    from openmemory.connect.connections import FileChange
    from openmemory.doors.cli.assistants import Plan


Project = Annotated[bool, typer.Option("--project", help="Write into this folder's project files instead.")]


def connect(
    names: Names = None,
    *,
    remote: Annotated[
        str | None, typer.Option(metavar="URL", help="Connect to a service elsewhere.", show_default=False)
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar="OPENMEMORY_API_KEY", help="A key of that service.", show_default=False),
    ] = None,
    user: User = None,
    toolsets: Toolsets = None,
    only: OnlyTools = None,
    project: Project = False,
    hooks: Annotated[
        bool, typer.Option("--hooks", help="Also show them a brief when a session starts: see `openmemory hooks add`.")
    ] = False,
    links: Annotated[bool, typer.Option("--links", help="Print links that add the server when opened.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Connect the assistants of this machine to the memory.

    Adds one entry to the configuration file of each assistant. Comments and all other settings stay, and a backup is
    kept beside the file. Each assistant starts `openmemory mcp`, which starts the service if none runs.

    With `--as mempack`, an assistant that is used to the tools of Mempack finds those, and no others.
    """
    from openmemory.config.settings import McpSettings
    from openmemory.connect import connections
    from openmemory.connect.links import link
    from openmemory.connect.servers import Offered, program, server, shared_program
    from openmemory.doors.mcp.toolsets import choose_tools
    from openmemory.errors import Invalid

    if project and remote and key:
        raise Invalid("--key", "does not belong into a project's files, which others read; leave it out")
    if project and hooks:
        raise Invalid("--hooks", "belong to the user's own files; leave out --project")
    clients = _select_clients(names, project)
    more = ["--user", user] if user else []
    if remote is None:
        # The environment of this machine does not belong into a project's files, which others read.
        more += location_options(data_dir, config, environ={} if project else None)
    url = None if remote is None else checked_url(remote, "--remote").rstrip("/")
    start = shared_program() if project else program()
    command = [*start, "mcp", *more]
    choice = choose_tools(McpSettings(), toolsets, only)  # refuses unknown names before they are written
    offered = Offered(only=",".join(choice.names)) if choice.alone else Offered(toolsets)
    servers = {it.app: server(it, command, url, key=key, user=user, offered=offered) for it in clients}
    if links:
        addresses = {it.app: address for it in clients if (address := link(it, servers[it.app]))}
        CommandAnswer(addresses, Table(["client", "link"], list(addresses.items()), wide="link")).show(json=json)
        return
    plans: list[Plan] = [
        (it, partial(_plan_change, it, project, partial(connections.connecting, server=servers[it.app])))
        for it in clients
    ]
    if hooks:
        plans += adding(with_hooks(clients), data_dir, config, user=user, url=url)
    change_files(plans, dry_run=dry_run, yes=yes, json=json)
    if project and remote is None and start != ("openmemory",) and not json:
        note(
            f"The project's files start {start[0]}, a path of this machine, because no openmemory on the PATH is this"
            " program. Before you share them, put it on the PATH and run this again."
        )


def disconnect(
    names: Names = None, project: Project = False, dry_run: DryRun = False, yes: Yes = False, json: Json = False
) -> None:
    """Take out what `connect` and `hooks add` have added, and nothing else."""
    from openmemory.connect import connections

    clients = _select_clients(names, project)
    files = [it for it in clients if names or _file(it, project).exists()]
    plans: list[Plan] = [(it, partial(_plan_change, it, project, connections.disconnecting)) for it in files]
    plans += [] if project else removing(with_hooks(clients))
    change_files(plans, dry_run=dry_run, yes=yes, json=json)


@connected
async def clients(client: Client, user: User = None) -> CommandAnswer:
    """List the assistants of this machine: which are connected, and how each uses the memory.

    An assistant is in use if it wrote or read in the last seven days. In brackets: how much in these days.
    """
    from openmemory.connect.clients import assistants
    from openmemory.connect.connections import entry
    from openmemory.errors import Invalid

    apps = {app["name"]: app for app in await client.apps(user)}
    rows: list[dict[str, Any]] = []
    for it in assistants():
        try:
            is_connected = entry(it, it.file) is not None
        except Invalid:
            is_connected = False
        app = apps.pop(it.app, {})
        if it.installed or app:
            rows.append(_row(it.app, it.title, str(it.file), is_connected, app))
    rows += [_row(name, name, "", False, app) for name, app in apps.items()]
    cells = [
        (
            row["title"],
            "yes" if row["connected"] else "",
            "yes" if row["written_lately"] or row["read_lately"] else "",
            _with_lately(row["memories_written"], row["written_lately"]),
            _with_lately(row["memories_read"], row["read_lately"]),
            local_time(row["last_read"]) or "never",
            row["file"],
        )
        for row in rows
    ]
    columns = ["client", "connected", "in use", "written", "read", "last read", "file"]
    return CommandAnswer(rows, Table(columns, cells, wide="file"))


def _row(app: str, title: str, file: str, is_connected: bool, activity: dict[str, Any]) -> dict[str, Any]:
    return {
        "client": app,
        "title": title,
        "file": file,
        "connected": is_connected,
        "memories_written": activity.get("total_memories_created", 0),
        "memories_read": activity.get("total_memories_accessed", 0),
        "written_lately": activity.get("recently_created", 0),
        "read_lately": activity.get("recently_accessed", 0),
        "last_read": activity.get("last_accessed"),
    }


def _with_lately(total: int, lately: int) -> str:
    return f"{total} ({lately})" if lately else str(total)


def _select_clients(names: list[str] | None, project: bool) -> list[AssistantClient]:
    from openmemory.connect.clients import assistants

    return chosen_from([it for it in assistants() if it.project or not project], names)


def _file(client: AssistantClient, project: bool) -> Path:
    return Path.cwd() / client.project if project else client.file


def _plan_change(client: AssistantClient, project: bool, plan: Callable[..., FileChange]) -> FileChange:
    """The change of an assistant's file. Links in a project, which somebody else may have made, lead to none outside.

    Raises:
        Invalid: one does, or the file cannot be changed.
    """
    from openmemory.connect.connections import inside

    file = _file(client, project)
    return plan(client, file=inside(file, root_of(Path.cwd())) if project else file)


def root_of(folder: Path) -> Path:
    """The root of the Git repository that a folder belongs to, or the folder itself."""
    from openmemory.doors.cli.project import repository

    return Path(repository(str(folder)) or folder)
