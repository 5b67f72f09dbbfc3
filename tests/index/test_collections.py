"""Names, payloads and entries."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from uuid import UUID

import pytest

from openmemory.index.collections import collection_name, entry_of, payload_of, readable_payload_of
from openmemory.index.conditions import label, scope_label
from openmemory.index.entries import IndexEntries, IndexEntry
from openmemory.index.port import Point

ID = UUID(int=7)


def test_the_name_carries_alias_model_and_dimension() -> None:
    name = collection_name("openmemory", "all-MiniLM-L6-v2-int8", 384)
    assert name == "openmemory__all-minilm-l6-v2-int8__384__words-scope"


@pytest.mark.parametrize(
    "model",
    ["nomic-embed-text:latest", "BAAI/bge-small-en", "../../etc", "", "..", "モデル", "a b", "x" * 5_000, "a\0b"],
)
def test_any_model_gives_a_name_that_is_a_folder_and_a_collection_everywhere(model: str) -> None:
    name = collection_name("a" * 64, model, 65_536)
    assert re.fullmatch(r"a{64}__[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?__65536__words-scope", name)
    assert len(name) <= 150


def test_two_models_never_share_a_collection() -> None:
    models = ["a/b", "a-b", "a:b", "a b", "a_b", "a.b", "x" * 64, "x" * 65, "x" * 66, "", "-", "モデル", "モデ"]
    assert len({collection_name("m", model, 3) for model in models}) == len(models)
    assert collection_name("m", "a", 3) != collection_name("m", "a", 4)


def test_capitals_do_not_make_another_model() -> None:
    assert collection_name("m", "BAAI/BGE", 3) == collection_name("m", "baai/bge", 3)


def test_the_payload_is_what_the_client_of_mem0_reads_and_what_filters_need(point: Callable[..., Point]) -> None:
    moment = datetime(2026, 11, 3, 10, 30, tzinfo=timezone(timedelta(hours=1)))
    made = point(1, created_at=moment, updated_at=moment, categories=("work", "food"), revision=4)
    assert payload_of(made).items() <= readable_payload_of(made).items()
    assert readable_payload_of(made) == {
        "data": "text 1",
        "hash": "hash of text 1",
        "user_id": "alice",
        "created_at": "2026-11-03T09:30:00+00:00",
        "updated_at": "2026-11-03T09:30:00+00:00",
        "owner": str(UUID(int=1)),
        "labels": [
            scope_label(UUID(int=1), "default"),
            label("namespace", "default"),
            label("kind", "memory"),
            label("app", UUID(int=2)),
        ],
        "app": str(UUID(int=2)),
        "namespace": "default",
        "kind": "memory",
        "revision": 4,
        "categories": ["work", "food"],
    }


def test_an_entry_is_read_from_the_payload(point: Callable[..., Point]) -> None:
    made = point(1, revision=4)
    assert list(IndexEntries(entry_of(made.id, payload_of(made)))) == [IndexEntry(made.id, made.user, 4)]


@pytest.mark.parametrize(
    "payload",
    [
        None,
        {},
        {"owner": str(ID)},
        {"revision": 1},
        {"owner": "alice", "revision": 1},
        {"owner": 5, "revision": 1},
        {"owner": str(ID), "revision": "x"},
        {"owner": str(ID), "revision": None},
        {"owner": [str(ID)], "revision": 1},
        {"owner": str(ID), "revision": 1.0},
        {"owner": str(ID), "revision": 2**31},
    ],
)
def test_a_point_that_is_not_ours_is_an_entry_of_nobody(payload: dict[str, object] | None) -> None:
    assert list(IndexEntries(entry_of(ID, payload))) == [IndexEntry(ID, UUID(int=0), 0)]
