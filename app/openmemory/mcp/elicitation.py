"""Asks the user for a confirmation, if their client can (elicitation).

Only a session can carry a question and its answer: over SSE. Over streamable HTTP, and so with `openmemory mcp` too,
there are no sessions, and the response to a call is all that the client gets.
"""

from __future__ import annotations

from typing import Any

from mcp.server.context import ServerRequestContext

from openmemory.mcp.tool import AskUser

_NOTHING_TO_FILL_IN: dict[str, Any] = {"type": "object", "properties": {}}


def asking(context: ServerRequestContext[Any]) -> AskUser | None:
    """Returns a function that asks the user of this call; None if the client cannot ask, or if nothing can be sent to
    it but the answer."""
    session = context.session
    known = session.client_params
    if not session.can_send_request or known is None or known.capabilities.elicitation is None:
        return None

    async def ask(question: str) -> bool:
        answer = await session.elicit_form(question, _NOTHING_TO_FILL_IN, context.request_id)
        return answer.action == "accept"

    return ask
