"""Assembles the pages from their routers."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import RedirectResponse, Response

from openmemory.access.authentication import Authenticator
from openmemory.doors.web import (
    activity,
    apps,
    archives,
    categories,
    changing,
    connect,
    keys,
    memories,
    memory,
    models,
    oauth,
    policies,
    settings,
    sign_in,
    static,
    system,
    tidying,
    timeline,
)
from openmemory.doors.web.page import TheForm, ThePage, drop_notice

router = APIRouter(include_in_schema=False)

ROUTERS = (
    router,
    sign_in.router,
    oauth.router,
    memories.router,
    changing.router,
    memory.router,
    apps.router,
    activity.router,
    tidying.router,
    timeline.router,
    connect.router,
    settings.router,
    models.router,
    categories.router,
    policies.router,
    archives.router,
    keys.router,
    system.router,
)


def include_web(app: FastAPI, authenticator: Authenticator) -> None:
    """Adds every page and the files that pages load to `app`."""
    app.state.authenticator = authenticator
    app.state.streams = activity.Streams()
    for each in ROUTERS:
        app.router.routes.extend(each.routes)
    app.add_api_route(static.PREFIX + "{file:path}", static.get_file, include_in_schema=False)


@router.get("/ui")
@router.get("/ui/")
async def start(request: Request) -> Response:
    """Lead to the first page."""
    to = "memories" if request.scope["path"].endswith("/") else "ui/memories"
    return RedirectResponse(to, 307)


@router.post("/ui/notice/close")
async def close_notice(page: ThePage, form: TheForm) -> Response:
    """Stop showing what the last action did."""
    answer = page.redirect(page.back(form, "memories"))
    drop_notice(answer)
    return answer
