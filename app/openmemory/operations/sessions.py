"""Use cases of sessions: numbered conversations with a title and a summary, saved as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import OnlyProjects, PageNumber, PageSize, Project
from openmemory.sources.schemas import MAX_NUMBER, NewSession, SessionPage, SessionSaved, SessionText

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "sessions"
PATH = "/api/v1/sessions"

Number = Annotated[int, Field(ge=0, le=MAX_NUMBER, description="Its number in its project.", examples=[12])]


@operation(
    "POST", PATH, command="sessions save", tool="session_create", tag=TAG, speaker=Speaker.APP,
    errors=(403, 404, 409, 413), body="SessionBody",
    examples={
        "a session": {
            "user_id": "alice",
            "namespace": "acme/shop",
            "number": 12,
            "title": "Retries of the outbox",
            "summary": "Entries are tried again after 1, 2 and 4 seconds, and then each minute.",
            "content": "## Why\n\nQdrant restarts take about three seconds.",
        }
    },
)  # fmt: skip
async def save_session(
    services: Services,
    caller: Caller,
    *,
    namespace: Project = "default",
    number: Number,
    title: Annotated[str, Field(description="What it was about, in a line.", examples=["Retries of the outbox"])],
    summary: Annotated[str, Field(description="What came of it.")] = "",
    content: Annotated[str, Field(description="Its text, such as a transcript; Markdown is cut at its headings.")] = "",
) -> SessionSaved:
    """Save a session. A search finds its summary and its text with `corpus=passages`.

    A session of the same number in the project is replaced, also that of another app, and its unchanged passages stay.
    One that a rule hides from the app stays as it is, and the app gets one of its own. A session is the conversation
    `session-<number>`, so that `/api/v1/threads` deletes, restores and erases it. Secrets are redacted, and the result
    names their kinds.
    """
    return await services.sessions.save(caller, NewSession(number, title, summary, content, namespace))


@operation(
    "GET", PATH, command="sessions list", tool="session_list", tag=TAG, speaker=Speaker.READER, errors=(403, 404)
)
async def list_sessions(
    services: Services,
    caller: Caller,
    *,
    namespace: OnlyProjects = (),
    page: PageNumber = 1,
    size: PageSize = 50,
) -> SessionPage:
    """List sessions, the last number first."""
    return await services.sessions.list(caller, namespaces=namespace, page=page, size=size)


@operation(
    "GET", f"{PATH}/{{number}}", command="sessions show", tool="session_get", tag=TAG, speaker=Speaker.READER,
    errors=(403, 404),
)  # fmt: skip
async def read_session(
    services: Services, caller: Caller, *, number: Number, namespace: OnlyProjects = ()
) -> SessionText:
    """Show a session with its text.

    Of several projects, it is that of the first one named that has the number. Otherwise it is the app's own, or the
    one that was saved last.
    """
    return await services.sessions.read(caller, number, namespaces=namespace)
