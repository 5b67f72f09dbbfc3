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


def whole(text: str) -> str | None:
    """The id if it is a whole one; None if it is the beginning of one.

    Raises:
        Invalid: it is neither.
    """
    text = text.strip().lower()
    if _WHOLE.fullmatch(text):
        return text
    if _BEGINNING.fullmatch(text):
        return None
    raise Invalid("ID", f"must be a UUID, or its first characters ({_LEAST} or more)")


def match_id(text: str, ids: Iterable[str], what: str) -> str:
    """Returns the one of the `ids` that begins with the given text. `what`: the kind of thing they name, for errors.

    Raises:
        Invalid: the text begins several of them, or is no beginning of an id.
        NotFound: it begins none.
    """
    if (id_ := whole(text)) is not None:
        return id_
    matches = [each for each in ids if each.startswith(text.strip().lower())]
    if not matches:
        raise NotFound(f"{what} not found", code=f"{what.lower()}_not_found")
    if len(matches) > 1:
        several = f"{text} is the beginning of {len(matches):,} ids"
        raise Invalid("ID", f"{several}; give more characters, such as {', '.join(matches[:_NAMED])}")
    return matches[0]


async def document_id(client: Client, text: str, params: dict[str, Any]) -> str:
    """The id of a document that its list shows to the user and app of `params`.

    Raises:
        Invalid: the text begins several of them, or is no beginning of an id.
        NotFound: it begins none.
    """
    return whole(text) or match_id(text, [each async for each in _documents(client, params)], "Document")


async def _documents(client: Client, params: dict[str, Any]) -> AsyncIterator[str]:
    page, rest = 1, 1
    while rest > 0:
        answer = await client.call("GET", "/api/v1/documents", params=params | {"page": page, "size": 100})
        for one in answer["items"]:
            yield str(one["id"])
        rest = answer["total"] - page * 100
        page += 1
