"""Qdrant's REST protocol over the built-in engine: the part that the product and mem0's client use.

A plain ASGI application, for processes that share one index that only one of them can own.
"""

from __future__ import annotations

import hmac
import logging
import time
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
import qdrant_edge as edge

from openmemory.index.engine import rest_format
from openmemory.index.engine.calls import CHUNK
from openmemory.index.engine.collections import OpenCollections, Shard
from openmemory.index.engine.rest_format import RequestRefused, wrong
from openmemory.index.engine.shards import VectorLayout
from openmemory.index.multi_vector import MORE, chunks
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
    """Serves the collections below `folder`, which no other process may have open. With `api_key`, requests must send
    it."""

    def __init__(self, folder: Path, *, api_key: str = "") -> None:
        self._served = OpenCollections(folder)
        self._key = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request, or the lifespan of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

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
            self._check_key(scope)
            body = await _read(receive)
            if body is None:
                return
            if (scope["method"], scope["path"]) == ("GET", "/"):
                answer = {"title": "qdrant-edge, the built-in Qdrant", "version": version("qdrant-edge-py")}
            else:
                result = await self._result(scope["method"], scope["path"], _parsed(body))
                answer = {"result": result, "status": "ok"}
        except RequestRefused as refusal:
            status, answer = refusal.status, {"status": {"error": str(refusal)}}
        except (RecursionError, ValueError, TypeError) as error:
            status, answer = 400, {"status": {"error": f"Wrong input: {error}"}}
        except IndexUnavailable as error:
            log.warning("%s %s: %s", scope["method"], scope["path"], error)
            status, answer = 500, {"status": {"error": f"Service internal error: {error}"}}
        answer["time"] = time.perf_counter() - started
        content = orjson.dumps(answer)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        if status == 413:
            headers.append((b"connection", b"close"))  # the rest of the body is not read
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _check_key(self, scope: Scope) -> None:
        if not self._key:
            return
        headers = dict(scope["headers"])
        scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
        given = headers.get(b"api-key") or (bearer.strip() if scheme.lower() == b"bearer" else b"")
        if not given:
            raise RequestRefused(401, "Must provide an API key or an Authorization bearer token")
        if not hmac.compare_digest(given, self._key):
            raise RequestRefused(401, "Invalid API key or JWT")

    async def _result(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        match method, path.strip("/").split("/"):
            case "GET", ["collections"]:
                return {"collections": [{"name": name} for name in await self._served.names()]}
            case "GET", ["aliases"]:
                return _aliases(await self._served.aliases())
            case "POST", ["collections", "aliases"]:
                actions = rest_format.array(body.get("actions"), "actions")
                await self._served.realias([rest_format.mapping(action, "action") for action in actions])
                return True
            case _, ["collections", name]:
                return await self._collection(method, name, body)
            case "GET", ["collections", name, "exists"]:
                return {"exists": await self._exists(name)}
            case _, ["collections", name, *rest]:
                call = _CALLS.get((method, "/".join(rest)))
                if call is not None:
                    return await call(self._served, await self._served.shard(name), body)
        raise RequestRefused(404, f"Not found: {method} {path} is not served here")

    async def _collection(self, method: str, name: str, body: Mapping[str, Any]) -> Any:
        if method == "DELETE":
            return await self._served.drop(name)
        if method == "PUT":
            await self._served.create(name, partial(_new_shape, body))
            return True
        if method == "GET":
            shard = await self._served.shard(name)
            return _info(shard, await self._served.read(shard, edge.EdgeShard.info))
        raise RequestRefused(404, f"Not found: {method} of a collection is not served here")

    async def _exists(self, name: str) -> bool:
        try:
            await self._served.shard(name)
        except RequestRefused as refusal:
            if refusal.status != 404:
                raise
            return False
        return True


def _new_shape(body: Mapping[str, Any]) -> VectorLayout:
    if body.get("sparse_vectors"):
        raise wrong("vectors: sparse vectors are not supported here")
    return rest_format.shape(body.get("vectors"))


async def _index(served: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    key, schema = body.get("field_name"), body.get("field_schema")
    given = {"type": schema} if isinstance(schema, str) else rest_format.mapping(schema, "field_schema")
    index: edge.KeywordIndexParams | edge.IntegerIndexParams
    match given.get("type"):
        case "keyword":
            index = edge.KeywordIndexParams(is_tenant=bool(given.get("is_tenant")))
        case "integer":
            lookup, ranged = (rest_format.flag(given.get(name, True), name) for name in ("lookup", "range"))
            index = edge.IntegerIndexParams(lookup=lookup, range=ranged)
        case _:
            raise wrong("field_schema: only keywords and integers are supported here")
    if not isinstance(key, str):
        raise wrong("field_name must be a text")
    return await _update(served, shard, edge.UpdateOperation.create_field_index(key, index))


async def _upsert(served: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    rest_format.only(body, {"points"}, "upsert")
    # In threads, because a large request takes a while to convert to points.
    written = await to_thread(rest_format.points, body.get("points"), shard.shape)
    size = len(await to_thread(orjson.dumps, body["points"]))
    done: Any = {"operation_id": shard.operations, "status": "completed"}
    for some in chunks(written, lambda one: one[1], CHUNK):
        operation = edge.UpdateOperation.upsert_points([point for point, _ in some])
        done = await _update(served, shard, operation, size=size)
    return done


async def _retrieve(served: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    rest_format.only(body, {"ids", "with_payload", "with_vector"}, "retrieve")
    ids = rest_format.identifiers(body.get("ids"))
    payload = rest_format.selector(body.get("with_payload", True))
    vector = rest_format.flag(body.get("with_vector", False), "with_vector")
    records = await served.read(shard, lambda engine: engine.retrieve(ids, payload, vector))
    return [rest_format.record(record) for record in records]


async def _delete(served: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    rest_format.only(body, {"points", "filter"}, "delete")
    if body.get("points") is not None:
        if body.get("filter") is not None:
            raise wrong("delete: points and filter together are not supported here")
        return await _update(served, shard, edge.UpdateOperation.delete_points(rest_format.identifiers(body["points"])))
    where = rest_format.condition(rest_format.mapping(body.get("filter"), "points or filter"))
    if where is None or not (where.must or where.must_not or where.should):
        raise wrong("delete: a filter must have a condition")
    return await _update(served, shard, edge.UpdateOperation.delete_points_by_filter(where))


async def _query(served: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    return (await _found(served, shard, [body]))[0]


async def _batch(served: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    rest_format.only(body, {"searches"}, "query")
    searches = rest_format.array(body.get("searches"), "searches")
    if len(searches) > MAX_SEARCHES:
        raise wrong(f"searches: has {len(searches)} entries; the limit here is {MAX_SEARCHES}")
    return await _found(served, shard, [rest_format.mapping(one, "search") for one in searches])


async def _found(served: OpenCollections, shard: Shard, searches: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The results of each search, all within one call of the engine."""
    asked = [rest_format.query(one, shard.shape) for one in searches]

    def find(engine: edge.EdgeShard) -> list[list[edge.ScoredPoint]]:
        hits: list[list[edge.ScoredPoint]] = []
        for one in asked:
            only = shard.long.conditions() if one.using else []
            # None: no point is multi-vector.
            hits.append([] if only is None else engine.search(one.among(only)))
        return hits

    return [{"points": [rest_format.record(hit) for hit in hits]} for hits in await served.read(shard, find)]


async def _scroll(served: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    page = rest_format.scroll(body)
    records, following = await served.read(shard, lambda engine: engine.scroll(page))
    return {
        "points": [rest_format.record(record) for record in records],
        "next_page_offset": rest_format.plain(following),
    }


async def _count(served: OpenCollections, shard: Shard, body: Mapping[str, Any]) -> Any:
    rest_format.only(body, {"filter", "exact"}, "count")
    request = edge.CountRequest(exact=True, filter=rest_format.condition(body.get("filter")))
    return {"count": await served.read(shard, lambda engine: engine.count(request))}


async def _update(
    served: OpenCollections, shard: Shard, operation: edge.UpdateOperation, *, size: int = 0
) -> dict[str, Any]:
    return {"operation_id": await served.write(shard, operation, size=size), "status": "completed"}


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


def _parsed(body: bytes) -> Mapping[str, Any]:
    if not body:
        return {}
    try:
        return rest_format.mapping(orjson.loads(body), "body")
    except orjson.JSONDecodeError as error:
        raise RequestRefused(400, f"Format error in JSON body: {error}") from error


def _aliases(aliases: Mapping[str, str]) -> dict[str, Any]:
    return {"aliases": [{"alias_name": alias, "collection_name": name} for alias, name in sorted(aliases.items())]}


def _info(shard: Shard, info: edge.ShardInfo) -> dict[str, Any]:
    """A collection in Qdrant's description format. There is no graph, so there is never anything left to optimise."""
    return {
        "status": "green",
        "optimizer_status": "ok",
        "points_count": info.points_count,
        "indexed_vectors_count": info.indexed_vectors_count,
        "segments_count": info.segments_count,
        "config": {
            "params": {"vectors": _vectors(shard.shape)},
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
    return first if shape.plain else {"": first, MORE: first | {"multivector_config": {"comparator": "max_sim"}}}


def _schema_name(kind: edge.PayloadSchemaType) -> str:
    return str(kind).rpartition(".")[2].lower()
