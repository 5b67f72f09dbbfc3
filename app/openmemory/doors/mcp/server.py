"""The MCP server and its tools."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any
from uuid import uuid4

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
)

from openmemory.doors.mcp.backlog import count_messages
from openmemory.doors.mcp.client_names import client_name
from openmemory.doors.mcp.compat import pimemento
from openmemory.doors.mcp.compat.devmemory import files, projects, sessions
from openmemory.doors.mcp.compat.mempack import context, notes
from openmemory.doors.mcp.elicitation import InputRequired, asking, sealing
from openmemory.doors.mcp.identity import identity_of
from openmemory.doors.mcp.progress import sending
from openmemory.doors.mcp.tool import CallOutcome, failure, json_of_type
from openmemory.doors.mcp.tools import adding, documents, memories, review, search, slack, slack_send, sync, threads
from openmemory.doors.mcp.toolsets import full_names
from openmemory.services import VERSION, Services
from openmemory.telemetry.traffic import Traffic

log = logging.getLogger(__name__)

NAME = "mem0-mcp-server"
"""The name that OpenMemory announced; the configuration of some clients matches on it."""

TOOLS = {
    tool.name: tool
    for tool in (
        *search.TOOLS,
        *adding.TOOLS,
        *memories.TOOLS,
        *threads.TOOLS,
        *sessions.TOOLS,
        *context.TOOLS,
        *notes.TOOLS,
        *projects.TOOLS,
        *documents.TOOLS,
        *files.TOOLS,
        *review.TOOLS,
        *slack.TOOLS,
        *slack_send.TOOLS,
        *sync.TOOLS,
    )
} | {f"pimemento.{tool.name}" if tool.name == "search_memory" else tool.name: tool for tool in pimemento.TOOLS}
"""The tools by the names under which they are called. Two are called `search_memory`; see `full_names`."""


def mcp_server(services: Services, traffic: Traffic) -> Server[Any]:
    """Returns the server over the services and counts calls in `traffic`. The caller is read from the HTTP request that
    brought the message."""
    asks = services.settings.mcp.write_mode == "ask"
    listing = {name: tool.listing(confirmed=asks) for name, tool in TOOLS.items()}
    schemas = {name: tool.input_schema for name, tool in listing.items()}

    async def list_tools(context: ServerRequestContext[Any], _: PaginatedRequestParams | None) -> ListToolsResult:
        choice = identity_of(context.request).offer.tools
        return ListToolsResult(
            tools=[listing[name] for name, tool in TOOLS.items() if choice.offers(tool.name, tool.toolset)]
        )

    async def call_tool(
        context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        identity = identity_of(context.request)
        tool = next((TOOLS[name] for name in full_names(params.name, identity.offer.tools) if name in TOOLS), None)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name[:100]}. Known are {', '.join(sorted(TOOLS))}.")
        outcome, started = CallOutcome.CANCELLED, time.perf_counter()
        if identity.app is None:
            identity = replace(identity, app=client_name(context, services.settings.limits))
        try:
            with sending(context.session.report_progress):
                result, outcome = await tool.call(services, identity, params.arguments or {}, asking(context, params))
            return result
        except InputRequired as request:
            outcome = CallOutcome.OK
            return request.result
        except Exception:
            outcome = CallOutcome.FAILED
            correlation = uuid4().hex
            log.exception("tool %s failed [%s]", tool.name, correlation)
            return failure(f"{tool.failing}: internal error {correlation}; the server's log says more")
        finally:
            traffic.call(tool.name, outcome, time.perf_counter() - started)

    server = Server(
        NAME,
        title="OpenMemory",
        version=VERSION,
        # Without it the SDK lists all tools on every call to check the headers of the sessionless protocol.
        get_tool_input_schema=schemas.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    # Replaces tracing spans that nobody collects and that cost each call 5 %.
    server.middleware[:] = [count_messages, _instructing, _reading_arguments, sealing(NAME, services.key)]
    return server


async def _instructing(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """MCP server middleware that describes to an assistant the tools that it is offered, and no others."""
    result = await call_next(ctx)
    if ctx.method in ("initialize", "server/discover") and isinstance(result, dict):
        return result | {"instructions": identity_of(ctx.request).offer.tools.instructions}
    return result


async def _reading_arguments(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """MCP server middleware that reads the arguments of a call that come as JSON text.

    Raises:
        MCPError: they are no JSON object.
    """
    raw_arguments = ctx.params.get("arguments") if ctx.method == "tools/call" and ctx.params is not None else None
    if raw_arguments is None or isinstance(raw_arguments, dict):
        return await call_next(ctx)
    arguments = {} if raw_arguments == "" else json_of_type(raw_arguments, dict)
    if not isinstance(arguments, dict):
        raise MCPError(INVALID_PARAMS, 'arguments: must be a JSON object, such as {"query": "tea"}')
    return await call_next(replace(ctx, params={**(ctx.params or {}), "arguments": arguments}))
