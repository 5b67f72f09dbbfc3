"""REST endpoints for sessions: numbered conversations with a title and a summary, saved as a whole."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from openmemory.rest.caller import AskingApp, BodyUser, Namespaces, TheAsking, TheServices, UserId
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router
from openmemory.sources.schemas import NewSession, SessionPage, SessionSaved, SessionText
from openmemory.sources.sessions import MAX_NUMBER

router = Router("/api/v1/sessions", "sessions")


class SessionBody(BaseModel):
    """A session to save."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    app: str | None = Field(default=None, description="The app that had the session; left out: the credential's.")
    namespace: str = Field(default="default", description="The project.")
    number: int = Field(ge=0, le=MAX_NUMBER, examples=[12])
    title: str = Field(description="What it was about, in a line.", examples=["Retries of the outbox"])
    summary: str = Field(default="", description="What came of it.")
    content: str = Field(default="", description="Its text, such as a transcript; Markdown is cut at its headings.")


_SAVED: dict[str, Any] = {
    "a session": {
        "value": {
            "user_id": "alice",
            "namespace": "acme/shop",
            "number": 12,
            "title": "Retries of the outbox",
            "summary": "Entries are tried again after 1, 2 and 4 seconds, and then each minute.",
            "content": "## Why\n\nQdrant restarts take about three seconds.",
        }
    }
}


@router.post("", responses=documented(403, 404, 409, 413))
async def save_session(
    services: TheServices, asking: TheAsking, new: Annotated[SessionBody, Body(openapi_examples=_SAVED)]
) -> SessionSaved:
    """Save a session. A search finds its summary and its text with `corpus=passages`.

    A session of the same number in the project is replaced, also that of another app, and its unchanged passages stay.
    One that a rule hides from the app stays as it is, and the app gets one of its own. A session is the conversation
    `session-<number>`, so that `/api/v1/threads` deletes, restores and erases it. Secrets are redacted, and the result
    names their kinds.
    """
    caller = await asking.as_app(new.user_id, new.app)
    session = NewSession(new.number, new.title, new.summary, new.content, new.namespace)
    return await services.sessions.save(caller, session)


@router.get("", responses=documented(403, 404))
async def list_sessions(
    services: TheServices,
    asking: TheAsking,
    *,
    user_id: UserId = None,
    app: AskingApp = None,
    namespace: Namespaces = (),
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    size: Annotated[int, Query(ge=1, le=100)] = 50,
) -> SessionPage:
    """List a user's sessions, the last number first."""
    caller = await asking.as_reader(user_id, app)
    return await services.sessions.list(caller, namespaces=namespace, page=page, size=size)


@router.get("/{number}", responses=documented(403, 404))
async def read_session(
    services: TheServices,
    asking: TheAsking,
    number: Annotated[int, Path(ge=0, le=MAX_NUMBER)],
    *,
    user_id: UserId = None,
    app: AskingApp = None,
    namespace: Namespaces = (),
) -> SessionText:
    """Read a session with its text. Of several projects, it is that of the first one named that has the number.

    Otherwise it is the app's own, or the one that was saved last.
    """
    caller = await asking.as_reader(user_id, app)
    return await services.sessions.read(caller, number, namespaces=namespace)
