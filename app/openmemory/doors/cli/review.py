"""`openmemory review`: lists the memories that a newer one may replace, and decides about them."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.options import User
from openmemory.doors.cli.output import CommandAnswer, Table, format_decision, local_time, plain
from openmemory.errors import Invalid


@connected
async def review(
    client: Client,
    *,
    newer: Annotated[str | None, typer.Argument(metavar="NEWER", help="The id of the newer memory.")] = None,
    older: Annotated[str | None, typer.Argument(metavar="OLDER", help="The id of the older memory.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="The newer one replaces the older, which is archived.")] = (
        False
    ),
    both: Annotated[bool, typer.Option("--keep-both", help="Both hold.")] = False,
    different: Annotated[bool, typer.Option("--different", help="They are not about the same.")] = False,
    page: Annotated[int, typer.Option("--page", metavar="N", min=1, help="The page of the list.")] = 1,
    user: User = None,
) -> CommandAnswer:
    """List the memories that a newer one may replace, or decide about two of them.

    A pair that was decided is not listed again.
    """
    decisions = [name for name, flag in (("replace", replace), ("both", both), ("different", different)) if flag]
    if newer is None or older is None:
        if newer is not None or decisions:
            raise Invalid("OLDER", "must be given: decide about the newer and the older memory of a pair")
        return await _list(client, user, page)
    if len(decisions) != 1:
        raise Invalid("--replace", "or --keep-both or --different must be given")
    body = {"user_id": user, "newer": newer, "older": older, "decision": decisions[0]}
    answer = await client.call("POST", "/api/v1/replacements", body=body)
    return format_decision(answer, {})


async def _list(client: Client, user: str | None, page: int) -> CommandAnswer:
    answer = await client.call("GET", "/api/v1/replacements", params={"user_id": user, "page": page})
    rows = []
    for pair in answer["items"]:
        for name in ("newer", "older"):
            one = pair[name]
            verdict = ("replaces" if pair["replaces"] else "may replace") if name == "newer" else ""
            rows.append((one["id"], local_time(one["created_at"]), verdict, one["content"]))
    table = Table(["id", "created", "verdict", "memory"], rows, wide="memory")
    more = answer["total"] > answer["page"] * answer["size"]
    notes = [f"{plain(str(answer['total']))} pairs; --page {page + 1} has more."] if more else []
    return CommandAnswer(answer, table, notes=notes if rows else ["Nothing is to be decided."])
