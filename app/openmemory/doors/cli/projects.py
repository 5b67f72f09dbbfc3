"""`openmemory projects`: registers, lists, shows, trusts, checks, moves and deletes projects, which are namespaces, and
lists the commits that their memories belong to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from openmemory.doors.cli import project, scope
from openmemory.doors.cli.client import Client, connected, path_part
from openmemory.doors.cli.context import compare_commits
from openmemory.doors.cli.ingest import plan_ingest
from openmemory.doors.cli.operations import add
from openmemory.doors.cli.options import App, Namespace, User
from openmemory.doors.cli.output import CommandAnswer, Table, confirm, plain
from openmemory.doors.cli.trust import trust
from openmemory.errors import Invalid
from openmemory.operations.anchors import list_anchors
from openmemory.operations.projects import PATH, list_projects, project_status

projects = typer.Typer(no_args_is_help=True)
projects.command()(trust)


@projects.command()
@connected
async def register(
    client: Client,
    *,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Its name for people.")] = None,
    user: User = None,
    app: App = None,
    namespace: Namespace = None,
) -> CommandAnswer:
    """Register the project of this folder, with its Git remote, branch and commit."""
    body = {"user_id": user, "app": app, "namespace": scope.target(namespace), "name": name}
    description = project.describe(".")
    answer = await client.call("POST", PATH, body=body | description)
    return CommandAnswer(answer, f"{plain(answer['namespace'])}: {plain(answer['name'])}")


def _format_list(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    rows = [
        (one["namespace"], one["name"] or "", one["memories"], one["conversations"], one["files"], one["documents"])
        for one in answer["projects"]
    ]
    table = Table(["namespace", "name", "memories", "conversations", "files", "documents"], rows, wide="name")
    return CommandAnswer(answer, table, notes=[] if rows else ["There are no projects."])


def _status(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    one = answer["project"]
    lines = [f"{key}: {plain(one[key])}" for key in ("namespace", "name", "root", "repo", "branch", "head") if one[key]]
    lines += [f"{key}: {one[key]}" for key in ("memories", "conversations", "files", "documents")]
    if answer["state_revision"] is not None:
        lines.append(f"state: revision {answer['state_revision']}: {plain(answer['state_reason'] or '')}")
    return CommandAnswer(answer, *lines, f"waiting for vectors: {answer['pending']}")


add(projects, list_projects, _format_list)
add(projects, project_status, _status)


@projects.command()
@connected
async def anchors(client: Client, *, user: User = None, app: App = None, namespace: Namespace = None) -> CommandAnswer:
    """List the commits that memories of the project of this folder belong to.

    Context packs leave out the memories of commits that are not in the history of the one that is checked out.
    """
    where = scope.here(namespace)
    head = await compare_commits(client, user=user, app=app, namespace=where)
    if head is None:
        raise Invalid("--namespace", "must be the project of this folder, which is a Git repository with a commit")
    params = {"user_id": user, "app": app, "namespace": where, "head": head}
    answer = await client.call("GET", list_anchors.path, params=params)
    labels = {None: "not compared", True: "in the history", False: "not in the history"}
    rows = [(one["commit"], one["items"], labels[one["reachable"]]) for one in answer["anchors"]]
    notes = [] if rows else ["No memory of this project belongs to a commit."]
    return CommandAnswer(answer, Table(["commit", "items", "checkout"], rows, wide="commit"), notes=notes)


@projects.command()
@connected
async def doctor(
    client: Client,
    *,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be repaired.")] = False,
    user: User = None,
    namespace: Namespace = None,
) -> CommandAnswer:
    """Check a project. It is that of the folder, if none is given. The exit code is 1 if something is wrong.

    In the folder of the project, it also compares the files with what is stored of them.
    """
    where = scope.target(namespace)
    if repair:
        await compare_commits(client, user=user, app=None, namespace=where)
    body = {"user_id": user, "namespace": where, "repair": repair}
    answer = await client.call("POST", f"{PATH}/actions/check", body=body)
    lines = [f"{one['problems']} {one['detail']}{' (repaired)' * one['repaired']}" for one in answer["checks"]]
    behind = await _behind(client, user, where) if where == scope.here(None) else 0
    if behind:
        lines.append(f"{behind} files differ from what is stored of them; `openmemory ingest` reads them")
    failed = bool(behind) or not all(one["repaired"] for one in answer["checks"])
    return CommandAnswer(answer | {"files_behind": behind}, *(lines or ["Nothing is wrong."]), failed=failed)


async def _behind(client: Client, user: str | None, namespace: str) -> int:
    """The number of stored files of this folder that have changed, and of files that are new or gone."""
    answer = await client.call("GET", "/api/v1/files", params={"user_id": user, "namespace": namespace, "size": 1})
    if not answer["total"]:
        return 0
    from openmemory.doors.cli.reading import Folder

    plan = await plan_ingest(client, Folder.of(Path()), {"user_id": user, "namespace": namespace})
    return sum(len(plan[part]) for part in ("wanted", "renamed", "gone"))


@projects.command()
@connected
async def rename(
    client: Client,
    *,
    namespace: Annotated[str, typer.Argument(metavar="NAMESPACE")],
    to: Annotated[str, typer.Argument(metavar="NEW", help="Its new namespace.")],
    user: User = None,
) -> CommandAnswer:
    """Give a project another namespace. Rules, policies and keys of the user that name it move with it."""
    answer = await _move(client, user, namespace, to)
    return CommandAnswer(answer, f"{plain(to)} has {answer['memories']} memories and {answer['passages']} passages.")


@projects.command()
@connected
async def merge(
    client: Client,
    *,
    namespace: Annotated[str, typer.Argument(metavar="NAMESPACE")],
    into: Annotated[str, typer.Argument(metavar="INTO", help="The project that gets all of it.")],
    user: User = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> CommandAnswer:
    """Put all that is in a project into another one. Of two values of one key, the newer one stays."""
    confirm(f"Put everything in {namespace} into {into}?", yes)
    answer = await _move(client, user, namespace, into, merge=True)
    summary = f"{answer['memories']} memories and {answer['passages']} passages moved to {plain(into)}."
    labels = {
        "repeated": "repeated memories deleted",
        "archived": "older values archived",
        "files": "older files removed",
    }
    return CommandAnswer(answer, summary, *(f"{answer[key]} {what}" for key, what in labels.items() if answer[key]))


async def _move(client: Client, user: str | None, namespace: str, to: str, *, merge: bool = False) -> Any:
    body = {"user_id": user, "namespace": namespace, "to": to, "merge": merge}
    return await client.call("POST", f"{PATH}/actions/move", body=body, patient=True)


@projects.command()
@connected
async def delete(
    client: Client,
    *,
    namespace: Annotated[str, typer.Argument(metavar="NAMESPACE")],
    user: User = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> CommandAnswer:
    """Delete everything in a project. Each thing can be restored by itself."""
    confirm(f"Delete everything in {namespace}?", yes)
    answer = await client.call("DELETE", f"{PATH}/{path_part(namespace)}", params={"user_id": user})
    return CommandAnswer(answer, f"{answer['memories']} memories and {answer['passages']} passages deleted.")
