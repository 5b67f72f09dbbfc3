"""Reads mem0's collection from a Qdrant server, page by page over its REST API. Vectors are not fetched, because the
local model creates new ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from openmemory.config.settings import source_key
from openmemory.errors import Invalid, NotFound
from openmemory.importers.fetching import fetched
from openmemory.importers.mem0 import Mem0
from openmemory.serialization import exact_json

if TYPE_CHECKING:
    from httpx import AsyncClient

_PAGE = 256
_MAX_PAGE_BYTES = 64 * 1024 * 1024


async def stage(source: str, mem0: Mem0, show: Callable[[int, int | None], None]) -> int:
    """Stages a collection, `http://host:6333/collection`, and returns the number of its points.

    Raises:
        Invalid: the URL names no collection.
        NotFound: there is no such collection.
        Unavailable: Qdrant does not answer.
    """
    import httpx

    parts = urlsplit(source)
    collection = unquote(parts.path.strip("/"))
    if not collection or "/" in collection:
        raise Invalid("source", "must end with the name of the collection, such as http://localhost:6333/mem0")
    key = source_key()
    base = f"{parts.scheme}://{parts.netloc}"
    timeout = httpx.Timeout(60, connect=10)
    async with httpx.AsyncClient(
        base_url=base, headers={"api-key": key} if key else {}, timeout=timeout, follow_redirects=False
    ) as http:
        path = f"/collections/{quote(collection, safe='')}/points"
        total = await _total(http, path, collection)
        count = 0
        async for points in _pages(http, path):
            for point in points:
                payload = point.get("payload") if isinstance(point, dict) else None
                mem0.take({**(payload if isinstance(payload, dict) else {}), "id": point.get("id")})
                count += 1
            show(count, total)
    return count


async def _total(http: AsyncClient, path: str, collection: str) -> int | None:
    try:
        answer = await _request(http, f"{path}/count", {"exact": True})
    except NotFound:
        raise NotFound(f"{http.base_url} has no collection {collection!r}") from None
    count = answer.get("count")
    return count if isinstance(count, int) else None


async def _pages(http: AsyncClient, path: str) -> AsyncIterator[list[Any]]:
    offset: Any = None
    while True:
        body = {"limit": _PAGE, "with_payload": True, "with_vector": False}
        answer = await _request(http, f"{path}/scroll", body | ({} if offset is None else {"offset": offset}))
        points, following = answer.get("points"), answer.get("next_page_offset")
        yield [point for point in points if isinstance(point, dict)] if isinstance(points, list) else []
        if following is None or following == offset:
            return
        offset = following


async def _request(http: AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await fetched(http, "POST", path, most=_MAX_PAGE_BYTES, body=body)
    try:
        result = exact_json.loads(answer)["result"]
    except (ValueError, KeyError, TypeError):
        result = None
    if not isinstance(result, dict):
        raise Invalid("source", f"must be a Qdrant server; the response of {http.base_url} is not Qdrant's")
    return result
