"""`openmemory timezone`: the time zone of a user, in which days and words such as `today` are meant."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.options import User
from openmemory.doors.cli.output import CommandAnswer, plain

_WHO = {
    "request": "this machine's, which commands name",
    "user": "saved",
    "setting": "access.default_timezone",
}


@connected
async def timezone(
    client: Client,
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="IANA name of the time zone to save, such as Europe/Berlin.")
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Forget the one that is saved.")] = False,
    user: User = None,
) -> CommandAnswer:
    """Show or save the time zone of a user.

    Days, and words such as "today", are meant in the time zone that a request names, or else in the one that its user
    saved, or else in access.default_timezone.
    """
    if name is not None and forget:
        raise typer.BadParameter("must not be given with --forget", param_hint="NAME")
    if name is None and not forget:
        answer: dict[str, Any] = await client.call("GET", "/api/v1/me/timezone", params={"user_id": user})
    else:
        body = {"timezone": name} | ({} if user is None else {"user_id": user})
        answer = await client.call("PUT", "/api/v1/me/timezone", body=body, whole=True)
    notes = [f"saved: {plain(answer['saved'] or 'none')}"]
    return CommandAnswer(answer, f"{plain(answer['timezone'])} ({_WHO[answer['source']]})", notes=notes)
