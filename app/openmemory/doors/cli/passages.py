"""Searches of passages, as the commands of conversations, sessions, files and documents print them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from openmemory.doors.cli.client import Client
from openmemory.doors.cli.output import CommandAnswer, Table


async def list_passages(
    client: Client, body: dict[str, Any], columns: Sequence[str], row: Callable[[dict[str, Any]], Sequence[Any]]
) -> CommandAnswer:
    """The passages that a search finds, each as its score and what `row` makes of it. The last column is wide."""
    answer = await client.call("POST", "/api/v1/memories/search", body=body | {"corpus": "passages"})
    section = answer["passages"]
    rows = [(f"{hit['score']:.2f}", *row(hit)) for hit in section["results"]]
    table = Table(["score", *columns], rows, wide=columns[-1])
    return CommandAnswer(section, table, notes=[section["note"]] if section["note"] else [])


def under_heading(hit: dict[str, Any]) -> str:
    """The text of a passage after its heading, if it has one."""
    return f"{hit['heading']}: {hit['content']}" if hit["heading"] else str(hit["content"])
