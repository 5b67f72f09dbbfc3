"""Writes the parts of the reference that the code knows: settings, commands, REST operations and MCP tools.

    python tools/reference.py FOLDER

Writes `settings.md`, `cli.md`, `rest.md`, `mcp.md` and `doors.md`. `make docs` puts each where the page of that name
says.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import typer
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel, SecretStr

from openmemory.config.sections import Section
from openmemory.config.settings import Settings
from openmemory.doors.cli.commands import complete
from openmemory.doors.mcp.server import TOOLS
from openmemory.doors.rest.api import OPERATIONS, ROUTERS, include_rest
from openmemory.doors.rest.by_hand import BY_HAND

Schema = dict[str, Any]


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """A table, or nothing if it has no rows."""
    if rows:
        yield ""
        for row in (head, ("---",) * len(head), *rows):
            yield "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |"
        yield ""


def settings() -> Iterator[str]:
    """A table of every section."""
    yield from _section("", Settings)
    for name, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield f"## {name}"
            yield ""
            yield field.annotation.__doc__ or ""
            yield from _section(f"{name}.", field.annotation)


def _section(prefix: str, model: type[BaseModel]) -> Iterator[str]:
    rows = []
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            continue
        default = field.default.get_secret_value() if isinstance(field.default, SecretStr) else field.default
        rows.append((f"`{prefix}{name}`", f"`{json.dumps(default)}`", field.description or ""))
    yield from table(("setting", "default", "meaning"), rows)


def commands() -> Iterator[str]:
    """The help of every command."""
    command = typer.main.get_command(complete())
    yield from _command(command, click.Context(command, info_name="openmemory", **command.context_settings))


def _command(command: Any, context: Any) -> Iterator[str]:
    yield f"## {context.command_path}"
    yield from ("", "```text", command.get_help(context).strip(), "```", "")
    for name, child in getattr(command, "commands", {}).items():
        yield from _command(child, click.Context(child, info_name=name, parent=context))


def operations() -> Iterator[str]:
    """Every REST operation with its parameters and the fields of its body."""
    app = FastAPI()
    include_rest(app)
    description = app.openapi()
    schemas = description["components"]["schemas"]
    tags: dict[str, list[tuple[str, str, Schema]]] = {}
    for path, item in description["paths"].items():
        for method, operation in item.items():
            tags.setdefault((operation.get("tags") or ["service"])[0], []).append((method, path, operation))
    for tag, listed in tags.items():
        yield f"## {tag}"
        yield ""
        for method, path, operation in listed:
            yield from (f"### `{method.upper()} {path}`", "")
            yield operation.get("description") or operation.get("summary", "")
            rows = [
                (f"`{one['name']}`", one["in"], _kind(one["schema"]), one.get("description", ""))
                for one in operation.get("parameters", [])
            ]
            for media, content in operation.get("requestBody", {}).get("content", {}).items():
                place = "body" if media == "application/json" else "form"
                rows += [(name, place, kind, text) for name, kind, text in _fields(content["schema"], schemas)]
            yield from table(("name", "in", "type", "meaning"), rows)


def doors() -> Iterator[str]:
    """Through which doors each use case can be reached: those that are described once, and those written by hand."""
    rows = [
        (one.summary, f"{one.method} {one.path.replace(':path', '')}", one.command, one.tool, "") for one in OPERATIONS
    ]
    for router in ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute) and (one := BY_HAND.get(route.name)) is not None:
                [method] = route.methods
                summary = " ".join(route.description.partition("\n\n")[0].split())
                rows.append(
                    (summary, f"{method} {route.path.replace(':path', '')}", one.command, one.tool, one.because)
                )
    yield from table(
        ("use case", "REST", "command", "tool", "by hand, because"),
        [
            (summary.partition(". ")[0].removesuffix("."), f"`{path}`", command and f"`openmemory {command}`",
             tool and f"`{tool}`", because)
            for summary, path, command, tool, because in rows
        ],
    )  # fmt: skip


def tools() -> Iterator[str]:
    """Every MCP tool with its arguments."""
    for tool in TOOLS.values():
        schema = tool.listing().input_schema
        yield from (f"## {tool.name}", "", tool.description)
        yield from table(("argument", "type", "meaning"), list(_fields(schema, schema.get("$defs", {}))))


def _fields(schema: Schema, schemas: dict[str, Schema]) -> Iterator[tuple[str, str, str]]:
    schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for name, field in schema.get("properties", {}).items():
        yield (
            f"`{name}`" + (" (required)" if name in schema.get("required", ()) else ""),
            _kind(field),
            field.get("description", ""),
        )


def _kind(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if options := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(_kind(one) for one in options))
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def main(folder: Path) -> None:
    """Write the five parts."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"settings": settings, "cli": commands, "rest": operations, "mcp": tools, "doors": doors}
    for name, lines in parts.items():
        (folder / f"{name}.md").write_text("\n".join(lines()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Write settings.md, cli.md, rest.md, mcp.md and doors.md.")
    arguments.add_argument("folder", type=Path, help="the folder to write them to; it is made if it is missing")
    main(arguments.parse_args().folder)
