"""The commands about single memories: get, update, delete, restore, archive, pause, history, related and accesses."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openmemory.doors.cli.client import Client, connected, path_part
from openmemory.doors.cli.options import (
    Category,
    ExpiresAt,
    Metadata,
    PageNumber,
    PageSize,
    TtlDays,
    User,
    json_of,
    words,
)
from openmemory.doors.cli.output import CommandAnswer, Table, local_time, read_stdin
from openmemory.errors import Invalid

_PATH = "/api/v1/memories"
_TIMES = ("created_at", "expires_at", "valid_from", "valid_until")

Id = Annotated[str, typer.Argument(metavar="ID", help="The memory's id, or its first characters.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID", help="The memories' ids, or their first characters.")]
SomeIds = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="The memories' ids, or their first characters.")
]


@connected
async def get(client: Client, *, memory: Id, user: User = None) -> CommandAnswer:
    """Show one memory with all its fields, in whatever state it is."""
    answer = await client.call("GET", _of(memory), params={"user_id": user})
    rows = [
        (name.rstrip("_"), _format_field(name, value)) for name, value in answer.items() if value not in (None, [], {})
    ]
    return CommandAnswer(answer, Table(["field", "value"], rows, wide="value"))


@connected
async def update(
    client: Client,
    *,
    memory: Id,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="The new text, without quotes; - reads standard input."),
    ] = None,
    metadata: Metadata = None,
    category: Category = None,
    ttl_days: TtlDays = None,
    expires_at: ExpiresAt = None,
    user: User = None,
) -> CommandAnswer:
    """Change the text, metadata, categories or expiry of one memory.

    What is left out stays. Its history keeps the old text.
    """
    values = {
        "user_id": user, "memory_content": read_stdin() if text == ["-"] else words(text),
        "metadata": json_of(metadata), "categories": category, "ttl_days": ttl_days, "expires_at": expires_at,
    }  # fmt: skip
    body: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if expires_at == "never":
        body["expires_at"] = None
    answer = await client.call("PUT", _of(memory), body=body, whole=True)
    return CommandAnswer(answer, f"Changed: {answer['id']}")


@connected
async def delete(client: Client, *, memory: Ids, user: User = None) -> CommandAnswer:
    """Delete memories, all or none. `openmemory restore` brings them back."""
    return await _change(client, "DELETE", _PATH, memory, user)


@connected
async def restore(client: Client, *, memory: SomeIds = None, user: User = None) -> CommandAnswer:
    """Make deleted, archived, paused or expired memories active again, all or none.

    Without an ID: all that your last deletion took away.
    """
    answer = await client.call("POST", f"{_PATH}/actions/restore", body={"user_id": user, "memory_ids": memory or None})
    return CommandAnswer(answer, answer["message"], *([] if memory else answer["memory_ids"]))


@connected
async def archive(client: Client, *, memory: Ids, user: User = None) -> CommandAnswer:
    """Archive memories, all or none: no app and no search finds them."""
    return await _change(client, "POST", f"{_PATH}/actions/archive", memory, user)


@connected
async def pause(
    client: Client,
    *,
    memory: SomeIds = None,
    app: Annotated[str | None, typer.Option(metavar="NAME", help="All that this app wrote.")] = None,
    category: Annotated[str | None, typer.Option(metavar="NAME", help="All of this category.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All memories of the user.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Make them active again.")] = False,
    user: User = None,
) -> CommandAnswer:
    """Pause memories: no app finds them until they are resumed."""
    if sum(map(bool, (memory, app, category, everything))) != 1:
        raise Invalid("pause", "needs one of these: IDs, --app NAME, --category NAME or --all")
    body = {
        "user_id": user, "memory_ids": memory or None, "global_pause": everything or None,
        "app_id": None if app is None else await client.app_id(user, app),
        "category_ids": None if category is None else [await client.category_id(user, category)],
        "state": "active" if resume else None,
    }  # fmt: skip
    answer = await client.call("POST", f"{_PATH}/actions/pause", body=body)
    return CommandAnswer(answer, "Resumed." if resume else "Paused.")


@connected
async def history(client: Client, *, memory: Id, user: User = None) -> CommandAnswer:
    """Show every state and text of one memory, oldest first."""
    answer = await client.call("GET", f"{_of(memory)}/history", params={"user_id": user})
    rows = [(one["changed_at"], one["app_name"], one["new_state"], one["reason"] or "") for one in answer["states"]]
    rows += [
        (one["changed_at"], one["app_name"], f"text {one['revision']}", one["new_text"]) for one in answer["revisions"]
    ]
    cells = [(local_time(at), app or "(user)", what, text) for at, app, what, text in sorted(rows, key=_first)]
    return CommandAnswer(answer, Table(["when", "by", "what", "text"], cells, wide="text"))


@connected
async def related(client: Client, *, memory: Id, page: PageNumber = 1, user: User = None) -> CommandAnswer:
    """List memories that share categories with one, most shared first, five on a page."""
    answer = await client.call("GET", f"{_of(memory)}/related", params={"user_id": user, "page": page})
    rows = [(item["id"], ", ".join(item["categories"]), item["content"]) for item in answer["items"]]
    return CommandAnswer(answer, Table(["id", "categories", "memory"], rows, wide="memory"))


@connected
async def accesses(
    client: Client,
    *,
    memory: Id,
    each: Annotated[bool, typer.Option("--each", help="Show repeated reads one by one.")] = False,
    limit: PageSize = 50,
    page: PageNumber = 1,
    user: User = None,
) -> CommandAnswer:
    """Show which apps read or changed one memory: assistants first, newest first."""
    params = {"user_id": user, "page": page, "page_size": limit, "fold": not each}
    answer = await client.call("GET", f"{_of(memory)}/access-log", params=params)
    rows = [
        (
            local_time(one["accessed_at"]),
            one["app_name"],
            one["access_type"],
            one["count"],
            one["metadata_"].get("query"),
        )
        for one in answer["logs"]
    ]
    return CommandAnswer(answer, Table(["when", "app", "access", "times", "query"], rows, wide="query"))


async def _change(client: Client, method: str, path: str, memories: list[str], user: str | None) -> CommandAnswer:
    answer = await client.call(method, path, body={"user_id": user, "memory_ids": memories})
    return CommandAnswer(answer, answer["message"])


def _of(memory: str) -> str:
    return f"{_PATH}/{path_part(memory)}"


def _first(row: tuple[str, ...]) -> str:
    return row[0]


def _format_field(name: str, value: Any) -> str:
    if name in _TIMES:
        return local_time(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        import json

        return json.dumps(value, ensure_ascii=False)
    return str(value)
