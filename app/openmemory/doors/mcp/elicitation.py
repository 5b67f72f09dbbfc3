"""Asks the user for a confirmation, if their client can (elicitation).

Over SSE the question is a request of the server. Since protocol 2026-07-28 every transport can ask: the result of the
call says that input is required, and the client makes the call again with the answer and the state of the call, which
is sealed (SEP-2322, multi round-trip requests). Streamable HTTP and standard input of an older protocol cannot ask.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.request_state import AESGCMRequestStateCodec, RequestStateBoundary, RequestStateSecurity
from mcp_types import (
    CallToolRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)
from mcp_types.version import is_version_at_least

from openmemory.doors.mcp.identity import identity_of
from openmemory.doors.mcp.tool import AskUser

_NOTHING_TO_FILL_IN: dict[str, Any] = {"type": "object", "properties": {}}
_SINCE = "2026-07-28"
"""The protocol version from which a result may require input."""
_CONSENT = "consent"
"""The name of our only question within a round."""
PATIENCE = 600.0
"""Seconds within which an answer counts."""


class InputRequired(Exception):
    """Raised through a tool that needs an answer of the user first. `result` is sent in place of the tool's."""

    def __init__(self, result: InputRequiredResult) -> None:
        super().__init__("the user must be asked first")
        self.result = result


def asking(context: ServerRequestContext[Any], params: CallToolRequestParams) -> AskUser | None:
    """Returns a function that asks the user of this call; None if the client cannot ask, or if nothing can be sent to
    it but the answer."""
    session = context.session
    able = session.client_capabilities and session.client_capabilities.elicitation
    if not able or (able.form is None and able.url is not None):
        return None
    if is_version_at_least(session.protocol_version, _SINCE):
        return _Rounds(params).ask
    if not session.can_send_request:
        return None

    async def ask(question: str) -> bool:
        answer = await session.elicit_form(question, _NOTHING_TO_FILL_IN, context.request_id)
        return answer.action == "accept"

    return ask


class _Rounds:
    """The questions of one call, each asked in a round of its own. The state names the questions that the user agreed
    to, and the last one; an answer counts only for the question that was asked."""

    def __init__(self, params: CallToolRequestParams) -> None:
        state = json.loads(params.request_state) if params.request_state else {}
        self._agreed: list[str] = state.get("agreed", [])
        self._question: str | None = state.get("asked")
        self._answer = (params.input_responses or {}).get(_CONSENT)

    async def ask(self, question: str) -> bool:
        """Returns True if the user agreed in an earlier round, and False if they did not.

        Raises:
            InputRequired: the user was not asked this yet.
        """
        if question in self._agreed:
            return True
        if question == self._question and isinstance(self._answer, ElicitResult):
            if self._answer.action == "accept":
                self._agreed.append(question)
            return self._answer.action == "accept"
        form = ElicitRequestFormParams(message=question, requested_schema=_NOTHING_TO_FILL_IN)
        state = json.dumps({"agreed": self._agreed, "asked": question})
        raise InputRequired(
            InputRequiredResult(input_requests={_CONSENT: ElicitRequest(params=form)}, request_state=state)
        )


class _Codec:
    """Seals with the key of the service, which is read when it is first needed."""

    def __init__(self, key: Callable[[], bytes]) -> None:
        self._key = key

    @cached_property
    def _sealing(self) -> AESGCMRequestStateCodec:
        return AESGCMRequestStateCodec([self._key()])

    def seal(self, payload: bytes) -> str:
        return self._sealing.seal(payload)

    def unseal(self, token: str) -> bytes:
        return self._sealing.unseal(token)


def sealing(name: str, key: Callable[[], bytes]) -> RequestStateBoundary:
    """Returns the middleware of an MCP server that seals the state of a call, and opens only what this service sealed
    for the same tool, arguments, credential, user and app within `PATIENCE`."""
    security = RequestStateSecurity(codec=_Codec(key), ttl=PATIENCE, bind_principal=_whose)
    return RequestStateBoundary(security, default_audience=name)


def _whose(context: ServerRequestContext[Any]) -> str:
    identity = identity_of(context.request)
    return json.dumps([identity.principal.id, identity.user, identity.app])
