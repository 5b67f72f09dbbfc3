"""The REST API on one screen."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from app.rest import (
    actions,
    apps,
    audit,
    batch,
    grants,
    health,
    keys,
    memories,
    metadata,
    metrics,
    search,
    sync,
    users,
)
from app.rest.docs import add_docs
from app.rest.errors import add_error_handlers

ROUTERS = (
    search.router,  # before memories: /search is no memory's id
    batch.router,
    memories.router,
    actions.router,
    grants.router,
    keys.router,
    audit.router,
    apps.router,
    users.router,
    sync.router,
    sync.short,
    health.router,
    metrics.router,
    metadata.router,
)


def include_rest(app: FastAPI) -> None:
    """Add every REST path to `app`, and the shape of its failures."""
    add_error_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    app.add_api_route("/", health.root, include_in_schema=False)
    add_docs(app)
    _describe_key(app)


def _describe_key(app: FastAPI) -> None:
    """Tell OpenAPI of the key, which the guard asks for and no route knows."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        schema = described()
        schema["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        # The empty alternative: a service that listens on loopback only may have no key.
        schema["security"] = [{"bearer": []}, {"header": []}, {}]
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
