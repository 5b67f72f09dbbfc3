"""The fields that OpenMemory answered with, by name, and the types of their values in JSON."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

NAIVE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?")


def is_id(value: Any) -> bool:
    return isinstance(value, str) and str(UUID(value)) == value


def is_naive(value: Any) -> bool:
    """ISO 8601 in UTC without an offset: OpenMemory's page appends a Z, and two would make it no time at all."""
    return isinstance(value, str) and NAIVE.fullmatch(value) is not None


def is_seconds(value: Any) -> bool:
    """Whole seconds since 1970: milliseconds would be far in the future."""
    return type(value) is int and value < 10_000_000_000


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_object(value: Any) -> bool:
    return isinstance(value, dict)


def is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def is_flag(value: Any) -> bool:
    return type(value) is bool


def is_null(value: Any) -> bool:
    return value is None


def is_state(value: Any) -> bool:
    return value in ("active", "paused", "archived", "deleted")


def is_naive_or_null(value: Any) -> bool:
    return value is None or is_naive(value)


def is_text_or_null(value: Any) -> bool:
    return value is None or isinstance(value, str)


LISTED = {
    "id": is_id, "content": is_text, "created_at": is_seconds, "state": is_state, "app_id": is_id,
    "app_name": is_text, "categories": is_names, "metadata_": is_object,
}  # fmt: skip
DETAIL = {"id": is_id, "text": is_text} | {name: LISTED[name] for name in list(LISTED)[2:]}
ROW = {
    "id": is_id, "user_id": is_id, "app_id": is_id, "content": is_text, "metadata_": is_object, "state": is_state,
    "created_at": is_naive, "updated_at": is_naive, "archived_at": is_naive_or_null,
    "deleted_at": is_naive_or_null, "vector": is_null,
}  # fmt: skip
LOGGED = {
    "id": is_id, "memory_id": is_id, "app_id": is_id, "accessed_at": is_naive, "access_type": is_text,
    "metadata_": is_object, "app_name": is_text,
}  # fmt: skip
CATEGORY = {
    "id": is_id, "name": is_text, "description": is_text_or_null, "created_at": is_naive, "updated_at": is_naive,
}  # fmt: skip
APP = {
    "id": is_id, "name": is_text, "is_active": is_flag, "total_memories_created": is_count,
    "total_memories_accessed": is_count,
}  # fmt: skip
APP_DETAIL = {
    "is_active": is_flag, "total_memories_created": is_count, "total_memories_accessed": is_count,
    "first_accessed": is_naive_or_null, "last_accessed": is_naive_or_null,
}  # fmt: skip
APP_ROW = {
    "id": is_id, "owner_id": is_id, "name": is_text, "description": is_text_or_null, "metadata_": is_object,
    "is_active": is_flag, "created_at": is_naive, "updated_at": is_naive,
}  # fmt: skip
OF_APP = {
    "id": is_id, "content": is_text, "created_at": is_naive, "state": is_state, "app_id": is_id,
    "categories": is_names, "metadata_": is_object,
}  # fmt: skip
ACCESSED = OF_APP | {"app_name": is_text}


def assert_shape(found: dict[str, Any], shape: dict[str, Any], *, whole: bool = False) -> None:
    """All fields of a shape, with values of their types. What we added may come too, unless the shape is `whole`."""
    assert not (missing := shape.keys() - found.keys()), f"missing: {missing}"
    wrong = {name: found[name] for name, fits in shape.items() if not fits(found[name])}
    assert not wrong, wrong
    if whole:
        assert found.keys() == shape.keys()
