"""Shows refusals of page requests as pages: the services and the guard in front of them answer with JSON."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openmemory.doors.rest.http.credentials import OAUTH
from openmemory.doors.rest.http.hardening import FORMS
from openmemory.doors.web.frame import frame
from openmemory.doors.web.links import ROOT, address
from openmemory.doors.web.templating import render_template
from openmemory.identity.request import proved_principal_of
from openmemory.services import Services

_OURS = frozenset({b"content-type", b"content-length", *(name.lower().encode() for name in FORMS)})
_SIGN_IN = OAUTH | {"/ui/sign-in"}


class Refusals:
    """ASGI middleware that turns the JSON of a refusal into a page in the same words.

    A browser without a valid credential, or whose sign-in failed, gets the form to sign in. A form that was sent by
    script gets only the words, which the script shows beside the form.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, and translate its answer."""
        if scope["type"] != "http" or not scope["path"].startswith(ROOT):
            await self._app(scope, receive, send)
            return
        # The middleware behind this one takes a key out of the address; pages link to what is left.
        request = Request(scope)
        start: Message | None = None
        body = b""

        async def translating_send(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_refusal(message):
                start = message
                return
            if start is None:
                await send(message)
                return
            body += message.get("body", b"")
            if not message.get("more_body", False):
                page = _page(request, start["status"], json.loads(body)).encode()
                headers = [pair for pair in start["headers"] if pair[0] not in _OURS]
                headers += [(name.lower().encode(), value.encode()) for name, value in FORMS.items()]
                headers += [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", b"%d" % len(page))]
                await send({**start, "headers": headers})
                await send({**message, "body": page})

        await self._app(scope, receive, translating_send)


def _is_refusal(start: Message) -> bool:
    return start["status"] >= 400 and (b"content-type", b"application/json") in start["headers"]


def _page(request: Request, status: int, problem: dict[str, Any]) -> str:
    if request.headers.get("hx-request") and request.method == "POST":
        if status == 401:
            problem |= {"hint": "Load the page again to sign in."}
        return render_template("refusal.html", problem=problem)
    values = {"page": None, "problem": problem, "status": status}
    signing_in = request.scope["path"] in _SIGN_IN
    if status == 401 or signing_in:
        target = address(request) if request.method == "GET" and not signing_in else "memories"
        services: Services = request.app.state.services
        issuer = services.sign_in and services.sign_in.host
        return render_template(
            "sign_in.html", **frame(request, None), **values, next=getattr(request.state, "next", target), issuer=issuer
        )
    keeps_user = not getattr(request.state, "user_refused", False)
    return render_template(
        "error.html", **frame(request, proved_principal_of(request.scope), chosen=keeps_user), **values
    )
