"""The common parts of the answers of DevMemory's tools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from openmemory.doors.mcp.tool import Answer
from openmemory.errors import Invalid
from openmemory.search.schemas import Method


@contextmanager
def rename_errors(**arguments: str) -> Iterator[None]:
    """Names the argument in an error about its field: `with rename_errors(number="session_num"):`."""
    try:
        yield
    except Invalid as error:
        if (argument := arguments.get(error.field)) is None:
            raise
        problem = error.message.removeprefix(f"{error.field}: ")
        raise Invalid(argument, problem, code=error.code, hint=error.hint) from None


def search_results(method: Method, query: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the answer of a search."""
    type_ = "full-text" if method is Method.LEXICAL else "semantic (vector)"
    return {"search_type": type_, "query": query, "count": len(results), "results": results}


def not_found(line: str) -> Answer:
    """Returns the answer for something that is not there, which is no error. `line`: the compact form."""
    return Answer([line], {"found": False}, text="not found")
