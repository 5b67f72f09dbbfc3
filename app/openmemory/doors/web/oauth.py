"""Signing a browser in at the authorization server."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from openmemory.access.oauth.sign_in import REDIRECT_PATH, OAuthSignIn, PendingSignIn, sign_in_refused
from openmemory.doors.rest.http.errors import error_response
from openmemory.doors.rest.http.hardening import FORMS
from openmemory.doors.web.frame import frame
from openmemory.doors.web.links import is_page, upward
from openmemory.doors.web.sign_in import remember
from openmemory.doors.web.templating import render_template
from openmemory.errors import NotFound, OpenMemoryError
from openmemory.services import Services

router = APIRouter(include_in_schema=False)

PENDING_COOKIE = "openmemory_sign_in"
"""The sign-in that this browser began, and the page that it leads to. The authorization server's answer counts only in
the browser that has it."""

_PENDING_SECONDS = 600
_LONGEST_NEXT = 1_000


@router.get("/ui/sign-in/start")
async def start(request: Request, to: Annotated[str, Query(alias="next")] = "memories") -> Response:
    """Lead the browser to the authorization server."""
    request.state.next = to = to if is_page(to) and len(to) <= _LONGEST_NEXT else "memories"
    url, pending = await _sign_in(request).authorization_url()
    answer = RedirectResponse(url, 303)
    cookie = urlsafe_b64encode(json.dumps([pending.state, pending.verifier, to]).encode()).decode()
    # Lax, because the authorization server's page leads back here.
    answer.set_cookie(
        PENDING_COOKIE, cookie, max_age=_PENDING_SECONDS, httponly=True, samesite="lax", secure=_is_secure(request)
    )
    return answer


@router.get(REDIRECT_PATH)
async def callback(request: Request) -> Response:
    """Take the answer of the authorization server. It counts once."""
    request.state.next = "memories"
    try:
        answer = await _signed_in(request, _sign_in(request))
    except OpenMemoryError as error:
        answer = error_response(error)
    answer.delete_cookie(PENDING_COOKIE, httponly=True, samesite="lax", secure=_is_secure(request))
    return answer


async def _signed_in(request: Request, sign_in: OAuthSignIn) -> Response:
    """Returns the page that leads on, with the access token as the browser's cookie.

    It is a page of ours and no redirect: after a redirect the browser would still count the request as the
    authorization server's, and would not send the cookie.
    """
    pending, request.state.next = _pending(request, sign_in)
    token = await sign_in.fetch_token(pending, request.query_params)
    to = upward(request) + request.state.next
    answer = HTMLResponse(render_template("signed_in.html", **frame(request, None), page=None, to=to), headers=FORMS)
    await remember(request, answer, token)
    return answer


def _sign_in(request: Request) -> OAuthSignIn:
    services: Services = request.app.state.services
    if services.sign_in is None:
        raise NotFound("This service does not sign in at an authorization server", hint="Sign in with a key.")
    return services.sign_in


def _pending(request: Request, sign_in: OAuthSignIn) -> tuple[PendingSignIn, str]:
    """Returns the sign-in that this browser began, and the page that it leads to.

    Raises:
        Unauthenticated: this browser began none.
    """
    try:
        state, verifier, to = json.loads(urlsafe_b64decode(request.cookies.get(PENDING_COOKIE, "")))
        if state and all(isinstance(each, str) for each in (state, verifier, to)):
            return PendingSignIn(state, verifier), to if is_page(to) else "memories"
    except (ValueError, TypeError):
        pass  # a cookie that we did not write
    minutes = _PENDING_SECONDS // 60
    raise sign_in_refused(
        f"This sign-in was not begun in this browser at {sign_in.resource} within the last {minutes} minutes.",
        hint="Sign in again.",
    )


def _is_secure(request: Request) -> bool:
    return request.scope.get("scheme") == "https"
