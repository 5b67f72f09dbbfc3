"""What each description of an operation promises: its example is valid, and its words are there."""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import iter_modules
from typing import Any
from uuid import uuid4

import httpx
import pytest
import typer
from fastapi.routing import APIRoute

from openmemory import operations
from openmemory.doors.cli.commands import complete
from openmemory.doors.mcp.server import TOOLS
from openmemory.doors.rest.api import OPERATIONS, ROUTERS
from openmemory.doors.rest.by_hand import BY_HAND
from openmemory.operations.description import Operation, operations_of


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
async def test_an_operation_says_what_it_does_and_what_it_takes(
    client: httpx.AsyncClient, operation: Operation[Any, Any, Any]
) -> None:
    described = (await client.get("/openapi.json")).json()
    path = described["paths"][operation.path.replace(":path}", "}")][operation.method.lower()]
    assert path["operationId"] == operation.name
    assert path["description"] == operation.help
    assert {str(status) for status in (operation.status, *operation.errors)} <= path["responses"].keys()
    assert path["tags"] == [operation.tag]
    if not operation.has_body:
        return
    [name] = {path["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]}
    fields = described["components"]["schemas"][name]
    assert operation.examples
    for example in operation.examples.values():
        assert set(fields.get("required", ())) <= example.keys() <= fields["properties"].keys()
        address = re.sub(r"\{\w+_id\}", str(uuid4()), operation.path)
        answer = await client.request(operation.method, address, json=dict(example))
        assert answer.status_code != 422, answer.text


def test_every_module_of_operations_has_its_routes() -> None:
    found = []
    for one in iter_modules(operations.__path__):
        found += operations_of(import_module(f"{operations.__name__}.{one.name}"))
    assert {one.name for one in found} == {one.name for one in OPERATIONS}, (
        "name the module in openmemory.doors.rest.api"
    )


def test_the_commands_and_tools_that_are_named_are_there() -> None:
    commands = {}
    for name, command in typer.main.get_command(complete()).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        commands |= {name: command} if below is None else {f"{name} {each}": one for each, one in below.items()}
    described = [*OPERATIONS, *BY_HAND.values()]
    assert {one.command for one in described} - commands.keys() == {""}
    assert {one.tool for one in described} - TOOLS.keys() == {""}


def test_a_route_is_an_operation_or_says_why_it_is_not() -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    by_hand = {route.name for route in routes if route.include_in_schema} - {one.name for one in OPERATIONS}
    assert by_hand == BY_HAND.keys(), "describe a new use case in openmemory.operations, or say in BY_HAND why not"
