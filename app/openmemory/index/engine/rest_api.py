"""Qdrant's REST protocol over the built-in engine: the part that the product and mem0's client use.

A plain ASGI application, for processes that share one index that only one of them can own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
import qdrant_edge as edge

from openmemory.index.engine import rest_format
from openmemory.index.engine.calls import CHUNK, guarded
from openmemory.index.engine.collections import OpenCollections
from openmemory.index.engine.rest_format import RequestRefused, wrong
from openmemory.index.engine.shards import Shard, VectorLayout
from openmemory.index.multi_vector import MORE, WORDS, chunks
from openmemory.index.port import IndexUnavailable

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_SEARCHES = 100
"""The maximum number of searches in one request, which run without interruption."""

MAX_BODY_BYTES = 32 * 1024 * 1024
"""The maximum size of a request in bytes, the default of a server."""


class QdrantRestApi:
    """Serves the collections below `folder`, which no other process may have open."""

    def __init__(self, folder: Path) -> None:
        self._served = OpenCollections(folder)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request, or the lifespan of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._answer(scope, receive, send)

    async def close(self) -> None:
        """Flushes and releases the collections. May be called twice."""
        await self._served.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
                continue
            await self.close()
            await send({"type": "lifespan.shutdown.complete"})
            return

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        status, answer = 200, dict[str, Any]()
        try:
            body = await _read(receive)
            if body is None:
                return
            if (scope["method"], scope["path"]) == ("GET", "/"):
                answer = {"title": "qdrant-edge, the built-in Qdrant", "version": version("qdrant-edge-py")}
            else:
                result = await self._result(scope["method"], scope["path"], _parse_body(body))
                answer = {"result": result, "status": "ok"}
        except RequestRefused as refusal:
            status, answer = refusal.status, {"status": {"error": str(refusal)}}
        except (RecursionError, ValueError, TypeError) as error:
            status, answer = 400, {"status": {"error": f"Wrong input: {error}"}}
        except (IndexUnavailable, OSError) as error:
            log.warning("%s %s: %s", scope["method"], scope["path"], error)
            status, answer = 500, {"status": {"error": f"Service internal error: {error}"}}
        answer["time"] = time.perf_counter() - started
        content = orjson.dumps(answer)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        if status == 413:
            headers.append((b"connection", b"close"))  # the rest of the body is not read
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _result(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        served = self._served
        if served.closed:
            raise IndexUnavailable("the service is stopping")
        result: Any = True
        match method, path.strip("/").split("/"):
            case "GET", ["collections"]:
                result = {"collections": [{"name": name} for name in served.names()]}
            case "GET", ["aliases"]:
                aliases = sorted(served.aliases.items())
                result = {"aliases": [{"alias_name": alias, "collection_name": name} for alias, name in aliases]}
            case "POST", ["collections", "aliases"]:
                actions = rest_format.array(body.get("actions"), "actions")
                served.realias([rest_format.mapping(action, "action") for action in actions])
            case "GET", ["collections", name]:
                result = _info(served.shard(name))
            case "PUT", ["collections", name]:
                served.create(name, partial(_new_shape, body))
            case "DELETE", ["collections", name]:
                result = served.drop(name)
            case "GET", ["collections", name, "exists"]:
                result = {"exists": served.exists(name)}
            case _, ["collections", name, *rest] if (call := _CALLS.get((method, "/".join(rest)))) is not None:
                result = await call(served, served.shard(name), body)
            case _:
                raise RequestRefused(404, f"Not found: {method} {path} is not served here")
        return result


def _new_shape(body: Mapping[str, Any]) -> VectorLayout:
    layout = rest_format.shape(body.get("vectors"))
    if rest_format.with_words(body.get("sparse_vectors")) is layout.plain:
        raise wrong(f"vectors: {MORE} and {WORDS} are supported here only together")
    return layout


async def _index(served: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    key, schema = body.get("field_name"), body.get("field_schema")
    field = {"type": schema} if isinstance(schema, str) else rest_format.mapping(schema, "field_schema")
    index: edge.KeywordIndexParams | edge.IntegerIndexParams
    match field.get("type"):
        case "keyword":
            index = edge.KeywordIndexParams(is_tenant=bool(field.get("is_tenant")))
        case "integer":
            lookup, ranged = (rest_format.flag(field.get(name, True), name) for name in ("lookup", "range"))
            index = edge.IntegerIndexParams(lookup=lookup, range=ranged)
        case _:
            raise wrong("field_schema: only keywords and integers are supported here")
    if not isinstance(key, str):
        raise wrong("field_name must be a text")
    return await _update(served, shard, edge.UpdateOperation.create_field_index(key, index))


async def _upsert(served: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    rest_format.only(body, {"points"}, "upsert")
    # In threads, because a large request takes a while to convert to points.
    points = await asyncio.to_thread(rest_format.points, body.get("points"), shard.shape)
    size = len(await asyncio.to_thread(orjson.dumps, body["points"]))
    result = {"operation_id": served.operations, "status": "completed"}
    for some in chunks(points, lambda one: one[1], CHUNK):
        result = await _update(
            served, shard, edge.UpdateOperation.upsert_points([point for point, _ in some]), size=size
        )
        await asyncio.sleep(0)
    return result


async def _retrieve(_: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    rest_format.only(body, {"ids", "with_payload", "with_vector"}, "retrieve")
    ids = rest_format.identifiers(body.get("ids"))
    payload = rest_format.selector(body.get("with_payload", True))
    vector = rest_format.flag(body.get("with_vector", False), "with_vector")
    with guarded():
        return [rest_format.record(record) for record in shard.engine.retrieve(ids, payload, vector)]


async def _delete(served: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    rest_format.only(body, {"points"}, "delete")
    ids = rest_format.identifiers(body.get("points"))
    return await _update(served, shard, edge.UpdateOperation.delete_points(ids))


async def _query(served: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    return (await _batch(served, shard, {"searches": [body]}))[0]


async def _batch(_: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    rest_format.only(body, {"searches"}, "query")
    searches = rest_format.array(body.get("searches"), "searches")
    if len(searches) > MAX_SEARCHES:
        raise wrong(f"searches: has {len(searches)} entries; the limit here is {MAX_SEARCHES}")
    queries = [rest_format.query(rest_format.mapping(one, "search"), shard) for one in searches]
    with guarded():
        results = [[] if one is None else shard.engine.search(one) for one in queries]
    return [{"points": [rest_format.record(hit) for hit in hits]} for hits in results]


async def _scroll(_: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    page = rest_format.scroll(body)
    with guarded():
        records, following = shard.engine.scroll(page)
    return {"points": [rest_format.record(it) for it in records], "next_page_offset": rest_format.plain(following)}


async def _count(_: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    rest_format.only(body, {"filter", "exact"}, "count")
    where = rest_format.condition(body.get("filter"))
    with guarded():
        return {"count": shard.engine.count(edge.CountRequest(exact=True, filter=where))}


async def _update(
    served: OpenCollections, shard: Shard, operation: edge.UpdateOperation, *, size: int = 0
) -> dict[str, Any]:
    return {"operation_id": served.write(shard, operation, size=size), "status": "completed"}


_CALLS: Mapping[tuple[str, str], Callable[[OpenCollections, Shard, Mapping[str, Any]], Awaitable[Any]]] = {
    ("PUT", "index"): _index,
    ("PUT", "points"): _upsert,
    ("POST", "points"): _retrieve,
    ("POST", "points/delete"): _delete,
    ("POST", "points/query"): _query,
    ("POST", "points/query/batch"): _batch,
    ("POST", "points/scroll"): _scroll,
    ("POST", "points/count"): _count,
}
"""The supported operations on a collection, by method and path below it."""


async def _read(receive: Receive) -> bytes | None:
    """The body of a request. None if the client disconnected."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY_BYTES:
            raise RequestRefused(
                413, f"Payload error: JSON payload is larger than allowed (limit: {MAX_BODY_BYTES} bytes)."
            )
        if not message.get("more_body", False):
            return b"".join(parts)


def _parse_body(body: bytes) -> Mapping[str, Any]:
    if not body:
        return {}
    try:
        return rest_format.mapping(orjson.loads(body), "body")
    except orjson.JSONDecodeError as error:
        raise RequestRefused(400, f"Format error in JSON body: {error}") from error


def _info(shard: Shard) -> dict[str, Any]:
    """A collection in Qdrant's description format. There is no graph, so there is never anything left to optimise."""
    with guarded():
        info = shard.engine.info()
    return {
        "status": "green",
        "optimizer_status": "ok",
        "points_count": info.points_count,
        "indexed_vectors_count": info.indexed_vectors_count,
        "segments_count": info.segments_count,
        "config": {
            "params": _vectors(shard.shape),
            "hnsw_config": {"m": 0, "ef_construct": 100, "full_scan_threshold": 10_000},
            "optimizer_config": {
                "deleted_threshold": 0.2,
                "vacuum_min_vector_number": 1_000,
                "default_segment_number": info.segments_count,
                "flush_interval_sec": 5,
            },
        },
        "payload_schema": {
            key: {"data_type": _schema_name(index.data_type), "points": index.points}
            for key, index in info.payload_schema.items()
        },
    }


def _vectors(shape: VectorLayout) -> dict[str, Any]:
    first = {"size": shape.dimension, "distance": "Cosine"}
    if shape.plain:
        return {"vectors": first}
    more = first | {"multivector_config": {"comparator": "max_sim"}}
    return {"vectors": {"": first, MORE: more}, "sparse_vectors": {WORDS: {}}}


def _schema_name(kind: edge.PayloadSchemaType) -> str:
    return str(kind).rpartition(".")[2].lower()
