"""The request of one page: as whom it is made, what may be done, and how the answer is rendered."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, unquote
from uuid import UUID
from zoneinfo import ZoneInfo

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData
from starlette.responses import HTMLResponse, RedirectResponse, Response

from openmemory.doors.rest.http.hardening import FORMS
from openmemory.doors.web.frame import frame, may_open
from openmemory.doors.web.links import is_page, link
from openmemory.doors.web.templating import render_template
from openmemory.errors import Forbidden, Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Principal, Scope
from openmemory.identity.request import principal_of
from openmemory.memories import validation
from openmemory.serialization import exact_json
from openmemory.serialization.zones import today, zone_or_none
from openmemory.services import Services

M = TypeVar("M", bound=BaseModel)

FORM_COOKIE = "openmemory_form"
"""A random value of the browser. The token in each form is made from it, so no other site can know the token."""

NOTICE_COOKIE = "openmemory_notice"
"""The words on the last action. The next page shows them; with an undo, every page does until they are closed or a
minute is over."""

TIMEZONE_COOKIE = "openmemory_timezone"
"""The time zone of the browser, which its scripts set. One that is not known here counts as none."""

UNDO_SECONDS = 60
_MOST_FIELDS = 2_000


class Undo(NamedTuple):
    """The way to undo an action: an address that takes a form, and the fields of the form."""

    action: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The services, the credential, and the user whose memory is shown."""

    request: Request
    services: Services
    principal: Principal
    caller: Caller

    @property
    def may_read(self) -> bool:
        """True if the credential may read."""
        return Scope.READ in self.principal.scopes

    @property
    def may_write(self) -> bool:
        """True if the credential may change something."""
        return Scope.WRITE in self.principal.scopes

    @property
    def operates(self) -> bool:
        """True if the credential may see the service as a whole."""
        return self.principal.operates

    @property
    def administers(self) -> bool:
        """True if the credential may change what concerns every user."""
        return self.principal.administers

    @property
    def manages_keys(self) -> bool:
        """True if the credential may make keys, at least within its own bounds."""
        return Scope.ADMIN in self.principal.scopes

    @property
    def everything(self) -> bool:
        """True if the page shows the user's memory as a whole: to the user themself, in every namespace."""
        return self.caller.owner and self.caller.everywhere

    @property
    def every_user(self) -> bool:
        """True if the credential speaks for every user, so that the page may be of any."""
        return self.principal.user is None

    def may_open(self, path: str) -> bool:
        """Returns True if a page, such as `apps`, shows the credential anything. The navigation omits the others."""
        return may_open(self.principal, path)

    @property
    def timezone(self) -> ZoneInfo:
        """The time zone of the days and times on the page."""
        return self.caller.timezone

    @property
    def today(self) -> date:
        """The day that it is for the user."""
        return today(self.timezone)

    def by(self, app: str, added_by: str | None = None) -> str:
        """Returns the name of an app for display. Under the default app is what users do themselves.

        For the app that wrote a text, `added_by` is the app that added its memory. It is named too if it is another.
        """
        if added_by not in (None, app):
            return f"{self.by(app)}, added by {self.by(added_by)}"
        if app != self.services.settings.access.default_app:
            return app
        own = self.caller.owner and self.caller.user == self.services.directory.me(self.principal).user
        return "you" if own else self.caller.user

    def link(self, to: str, **parameters: Any) -> str:
        """Returns the relative address of a page, such as `memories`."""
        return link(self.request, to, parameters)

    def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Returns the page of a template."""
        notice = _notice(self.request, self._told_to)
        cookie = self.request.cookies.get(FORM_COOKIE, "")
        fresh = cookie if len(cookie) == _COOKIE_LENGTH else secrets.token_hex(_COOKIE_LENGTH // 2)
        body = render_template(
            template,
            self.timezone,
            **frame(self.request, self.principal),
            page=self,
            user=self.caller.user,
            may_write=self.may_write,
            operates=self.operates,
            by=self.by,
            token=_token(fresh, self.principal),
            notice=notice,
            **values,
        )
        answer = HTMLResponse(body, status, headers=FORMS)
        if fresh != cookie:
            _set_cookie(self.request, answer, FORM_COOKIE, fresh)
        if notice and not notice["action"]:
            drop_notice(answer)
        return answer

    def redirect_with_notice(self, text: str, to: str, undo: Undo | None = None) -> Response:
        """Returns a redirect to `to`, an address below the root. The page there shows `text` and offers `undo`."""
        answer = self.redirect(to)
        notice = {"text": text, "undo": undo and [undo.action, dict(undo.fields)], "at": int(time.time())}
        notice["to"] = self._told_to
        _set_cookie(
            self.request, answer, NOTICE_COOKIE, urlsafe_b64encode(json.dumps(notice).encode()).decode(), UNDO_SECONDS
        )
        return answer

    @property
    def _told_to(self) -> str:
        """Names the reader of a notice: another user, or another key in the same browser, does not see it."""
        return _token(f"{self.request.cookies.get(FORM_COOKIE, '')} {self.caller.user}", self.principal)

    def redirect(self, to: str) -> Response:
        """Returns a redirect to an address below the root. The chosen user stays chosen."""
        return RedirectResponse(self.href(to), 303)

    def href(self, to: str) -> str:
        """Returns the relative address of a page that is named by its address below the root, with its query."""
        path, _, query = to.partition("?")
        return self.link(path, **parse_qs(query))

    def back(self, form: FormData, otherwise: str) -> str:
        """Returns the address that the form names as its next page, if it is one of our pages."""
        to = text_of(form, "next")
        return to if is_page(to) else otherwise


_COOKIE_LENGTH = 64


async def _page(request: Request, user: str | None = None) -> PageRequest:
    services: Services = request.app.state.services
    principal = principal_of(request.scope)
    try:
        if user is not None:
            user = validation.name(user, "user", services.settings.limits)
        caller = await services.directory.owner(principal, user)
        if principal.timezone is None and (zone := zone_or_none(unquote(request.cookies.get(TIMEZONE_COOKIE, "")))):
            caller = replace(caller, timezone=zone)
    except (Forbidden, Invalid, NotFound):
        request.state.user_refused = True
        raise
    return PageRequest(request, services, principal, caller)


ThePage = Annotated[PageRequest, Depends(_page)]
"""The page that is asked for; `?user=` chooses the user, if the credential speaks for more than one."""


async def _form(request: Request) -> FormData:
    """Returns the fields of a form that one of our own pages sent.

    Raises:
        Forbidden: the form lacks the token of this browser.
        Invalid: the body is not a form.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/x-www-form-urlencoded", "multipart/form-data"):
        raise Invalid("Content-Type", "must be application/x-www-form-urlencoded or multipart/form-data")
    form = await request.form(max_fields=_MOST_FIELDS)
    check_token(request, form.get("token"))
    return form


TheForm = Annotated[FormData, Depends(_form)]
"""The fields of a form, after its token was checked."""


def check_token(request: Request, token: Any) -> None:
    """Require the token of a form that was shown to this browser.

    Raises:
        Forbidden: it is another one.
    """
    expected = _token(request.cookies.get(FORM_COOKIE, ""), principal_of(request.scope))
    if not isinstance(token, str) or not hmac.compare_digest(token.encode(), expected.encode()):
        raise Forbidden(
            "This form is from another session of the browser.", code="form_expired", hint="Load the page again."
        )


def validate(model: type[M], values: Mapping[str, Any]) -> M:
    """Returns the model of these values, without those that are None or empty.

    Raises:
        RequestValidationError: a field is invalid; it is answered in the words of the REST API.
    """
    fields = {name: value for name, value in values.items() if value not in (None, "", [])}
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        problems = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
        raise RequestValidationError(problems) from None


def text_of(form: FormData, name: str) -> str:
    """Returns a field of a form as text; empty if it is missing or a file."""
    value = form.get(name)
    return value if isinstance(value, str) else ""


def id_of(value: str, field: str) -> UUID:
    """Returns the id in a field of a form.

    Raises:
        Invalid: it is none.
    """
    try:
        return UUID(value)
    except ValueError:
        raise Invalid(field, "must be an id, which is a UUID") from None


def number_of(form: FormData, name: str) -> int:
    """Returns the whole number in a field of a form.

    Raises:
        Invalid: it is none.
    """
    try:
        return int(text_of(form, name))
    except ValueError:
        raise Invalid(name, "must be a whole number") from None


def names_of(form: FormData, name: str) -> list[str]:
    """Returns the names in a field that separates them with commas."""
    return [each.strip() for each in text_of(form, name).split(",") if each.strip()]


def object_of(form: FormData, name: str) -> dict[str, Any]:
    """Returns the JSON object in a field of a form; an empty one if the field is blank.

    Raises:
        Invalid: it is not a JSON object.
    """
    text = text_of(form, name).strip()
    try:
        value = exact_json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise Invalid(name, f"{_AN_OBJECT}: {error}") from None
    if not isinstance(value, dict):
        raise Invalid(name, _AN_OBJECT)
    return value


_AN_OBJECT = 'must be a JSON object such as {"source": "notebook"}'


def texts_of(form: FormData, name: str) -> list[str]:
    """Returns every value of a repeated field."""
    return [value for value in form.getlist(name) if isinstance(value, str) and value]


def _token(cookie: str, principal: Principal) -> str:
    return hmac.new(cookie.encode(), principal.id.encode(), hashlib.sha256).hexdigest()


def _notice(request: Request, to: str) -> dict[str, Any] | None:
    """Returns what the last action did, if it is for `to`. A cookie that we did not write is nothing."""
    try:
        notice = json.loads(urlsafe_b64decode(request.cookies.get(NOTICE_COOKIE, "")))
        text, undo, at = notice["text"], notice["undo"], notice["at"]
        remaining = UNDO_SECONDS - (int(time.time()) - int(at))
        if not isinstance(text, str) or notice["to"] != to or remaining <= 0:
            return None
        fields = {str(name): str(value) for name, value in undo[1].items()} if undo else {}
        return {"text": text, "action": str(undo[0]) if undo else None, "fields": fields, "left": remaining}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None


def drop_notice(answer: Response) -> None:
    """Stop showing what the last action did, after this answer."""
    answer.delete_cookie(NOTICE_COOKIE, httponly=True, samesite="strict")


def _set_cookie(request: Request, answer: Response, name: str, value: str, seconds: int | None = None) -> None:
    secure = request.scope.get("scheme") == "https"
    answer.set_cookie(name, value, max_age=seconds, httponly=True, samesite="strict", secure=secure)
