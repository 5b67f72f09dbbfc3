"""Assembles the REST API from its routers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from fastapi import FastAPI
from fastapi.routing import APIRoute

from openmemory.doors.rest import (
    actions,
    backup,
    batch,
    bundles,
    config,
    health,
    imports,
    memories,
    metadata,
    metrics,
    originals,
    search,
    users,
)
from openmemory.doors.rest import operations as described
from openmemory.doors.rest.description import describe_guard
from openmemory.doors.rest.http.docs import add_docs
from openmemory.doors.rest.http.errors import add_error_handlers
from openmemory.operations import (
    activity,
    anchors,
    apps,
    audit,
    bulk,
    captures,
    categories,
    context,
    documents,
    files,
    grants,
    keys,
    links,
    me,
    policies,
    projects,
    service,
    sessions,
    slack,
    sources,
    state,
    threads,
    tidying,
    timeline,
    values,
)
from openmemory.operations import memories as of_memories
from openmemory.operations.description import operations_of

_MODULES = (
    of_memories, context, captures, threads, sessions, sources, files, documents,
    projects, state, values, links, anchors, tidying, bulk, timeline, activity, grants, policies, categories, keys,
    audit, apps, me, service, slack,
)  # fmt: skip
OPERATIONS = [one for module in _MODULES for one in operations_of(module)]
"""The operations that are described once for all doors."""

ROUTERS = (
    search.router,  # before memories, so that /search is not taken for a memory id
    batch.router,
    memories.router,
    actions.router,
    described.router(OPERATIONS),
    memories.of_one,
    bundles.router,
    originals.router,
    config.router,
    backup.router,
    imports.router,
    users.router,
    described.router([replace(service.sync, path="/sync")], described=False),
    health.router,
    metrics.router,
    metadata.router,
)


def include_rest(app: FastAPI) -> None:
    """Adds every REST path and the error handlers to `app`."""
    add_error_handlers(app, _methods())
    for router in ROUTERS:
        # Added directly: `include_router` would analyze each route a second time and match every request twice.
        app.router.routes.extend(router.routes)
    app.add_api_route("/", health.root, include_in_schema=False)
    add_docs(app)
    describe_guard(app)


def _methods() -> dict[str, str]:
    """Returns the methods of every path, formatted for the `Allow` header."""
    by_path: defaultdict[str, set[str]] = defaultdict(set)
    for router in ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute):
                by_path[route.path] |= route.methods or set()
    return {path: ", ".join(sorted(methods)) for path, methods in by_path.items()}
