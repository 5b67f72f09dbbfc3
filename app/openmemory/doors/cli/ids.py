"""Ids as people give them to commands: whole, or their first characters. The service itself reads short ids of
memories; those of other things are found here."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from typing import Any

from openmemory.doors.cli.client import Client
from openmemory.errors import Invalid, NotFound

_LEAST = 4
_BEGINNING = re.compile(rf"[0-9a-f-]{{{_LEAST},36}}")
_WHOLE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAMED = 3


def whole(given: str) -> str | None:
    """The id if it is a whole one; None if it is the beginning of one.

    Raises:
        Invalid: it is neither.
    """
    given = given.strip().lower()
    if _WHOLE.fullmatch(given):
        return given
    if _BEGINNING.fullmatch(given):
        return None
    raise Invalid("ID", f"must be a UUID, or its first characters ({_LEAST} or more)")


def meant(given: str, ids: Iterable[str], what: str) -> str:
    """Returns the one of the `ids` that begins with the given text. `what`: the kind of thing they name, for errors.

    Raises:
        Invalid: the text begins several of them, or is no beginning of an id.
        NotFound: it begins none.
    """
    if (id_ := whole(given)) is not None:
        return id_
    found = [each for each in ids if each.startswith(given.strip().lower())]
    if not found:
        raise NotFound(f"{what} not found", code=f"{what.lower()}_not_found")
    if len(found) > 1:
        several = f"{given} is the beginning of {len(found):,} ids"
        raise Invalid("ID", f"{several}; give more characters, such as {', '.join(found[:_NAMED])}")
    return found[0]


async def document_id(client: Client, given: str, params: dict[str, Any]) -> str:
    """The id of a document that its list shows to the user and app of `params`.

    Raises:
        Invalid: the text begins several of them, or is no beginning of an id.
        NotFound: it begins none.
    """
    return whole(given) or meant(given, [each async for each in _documents(client, params)], "Document")


async def _documents(client: Client, params: dict[str, Any]) -> AsyncIterator[str]:
    page, rest = 1, 1
    while rest > 0:
        found = await client.call("GET", "/api/v1/documents", params=params | {"page": page, "size": 100})
        for one in found["items"]:
            yield str(one["id"])
        rest = found["total"] - page * 100
        page += 1
