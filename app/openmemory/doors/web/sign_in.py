"""Signing a browser in with a key, and out."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from openmemory.access.authentication import Authenticator, PresentedCredentials
from openmemory.doors.rest.http import credentials
from openmemory.doors.web.links import is_page, upward
from openmemory.errors import Unauthenticated
from openmemory.identity.request import request_context_of

router = APIRouter(include_in_schema=False)


@router.post("/ui/sign-in")
async def sign_in(request: Request) -> Response:
    """Sign the browser in with a valid key. The guard has checked that the form is from one of our pages."""
    form = await request.form(max_fields=10)
    key, target = form.get("key"), form.get("next")
    to = target if isinstance(target, str) and is_page(target) else "memories"
    request.state.next = to
    if not isinstance(key, str) or not key.strip():
        raise Unauthenticated("Enter a key.")
    answer = RedirectResponse(upward(request) + to, 303)
    await remember(request, answer, key.strip())
    return answer


@router.get("/ui/sign-in")
async def ask(request: Request) -> Response:
    """Show the form to sign in."""
    request.state.next = "memories"
    raise Unauthenticated("Sign in with a key.")


@router.post("/ui/sign-out")
async def sign_out(request: Request) -> Response:
    """End the browser's session."""
    authenticator: Authenticator = request.app.state.authenticator
    if (session := request.cookies.get(credentials.cookie_of(request.scope))) is not None:
        await authenticator.sessions.close(session)
    answer = RedirectResponse(upward(request) + "sign-in", 303)
    credentials.without_cookie(request.scope, answer)
    return answer


async def remember(request: Request, answer: Response, credential: str) -> None:
    """Signs the browser in with a key or an access token, until it ends.

    Raises:
        Unauthenticated: it is not valid.
        TooMany: it is not valid, and too many wrong ones came from this address.
    """
    authenticator: Authenticator = request.app.state.authenticator
    context = request_context_of(request.scope)
    principal = await authenticator.principal(PresentedCredentials((credential,), context.address, context.request))
    await credentials.remember(request.scope, answer, credential, principal, authenticator.sessions)
