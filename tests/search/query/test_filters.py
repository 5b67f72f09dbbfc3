"""What a filter may say, and what is said of one that cannot be used."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from openmemory.errors import Invalid
from openmemory.search.query.filters import All, Comparison, Either, Not, Operator, parsed, read

PROJECT = Comparison("metadata", Operator.EQ, ("webshop",), ("project",))
NOTE = Comparison("kind", Operator.EQ, ("note",))
EXISTS = Comparison("metadata", Operator.EXISTS, (), ("project",))


@pytest.mark.parametrize(
    ("condition", "tree"),
    [
        (None, None),
        ({}, None),
        ({"metadata.project": "webshop"}, PROJECT),
        ({"metadata.project": {"eq": "webshop"}}, PROJECT),
        ({"metadata": {"project": "webshop"}}, PROJECT),
        ({"AND": [{"metadata.project": {"eq": "webshop"}}]}, PROJECT),
        ({"metadata.project": "webshop", "kind": "note"}, All((PROJECT, NOTE))),
        ({"and": [{"metadata.project": "webshop"}, {"kind": "note"}]}, All((PROJECT, NOTE))),
        ({"OR": [{"metadata.project": "webshop"}, {"kind": "note"}]}, Either((PROJECT, NOTE))),
        ({"NOT": [{"metadata.project": "webshop"}, {"kind": "note"}]}, Not(Either((PROJECT, NOTE)))),
        ({"not": {"metadata.project": "webshop", "kind": "note"}}, Not(All((PROJECT, NOTE)))),
        ({"metadata.project": {"ne": "webshop"}}, Not(PROJECT)),
        ({"metadata.project": "*"}, EXISTS),
        ({"metadata.project": {"exists": True}}, EXISTS),
        ({"metadata.project": {"exists": False}}, Not(EXISTS)),
        ({"metadata.project": None}, Not(EXISTS)),
        ({"metadata.project": {"ne": None}}, Not(Not(EXISTS))),
        ({"metadata.project": {"eq": "*"}}, Comparison("metadata", Operator.EQ, ("*",), ("project",))),
        ({"metadata.a.b": [1, "x", True]}, Comparison("metadata", Operator.IN, (1, "x", True), ("a", "b"))),
        ({"categories": ["food"]}, Comparison("category", Operator.IN, ("food",))),
        ({"category": {"nin": ["food"]}}, Not(Comparison("category", Operator.IN, ("food",)))),
        ({"app_id": str(UUID(int=7))}, Comparison("app_id", Operator.EQ, (UUID(int=7),))),
        ({"importance": {"gt": 0.5, "lte": 1}}, All((
            Comparison("importance", Operator.GT, (0.5,)), Comparison("importance", Operator.LTE, (1.0,)),
        ))),
        ({"created_at": {"gte": "2026-01-31"}},
         Comparison("created_at", Operator.GTE, (datetime(2026, 1, 31, tzinfo=UTC),))),
        ({"metadata.due": {"lt": "2026-01-31T13:00:00+01:00"}},
         Comparison("metadata", Operator.LT, (datetime(2026, 1, 31, 12, tzinfo=UTC),), ("due",))),
    ],
)  # fmt: skip
def test_a_filter_is_read_in_every_form(condition: Any, tree: Any):
    assert parsed(condition) == tree
    assert read(json.dumps(condition)) == tree


def nested(levels: int) -> dict[str, Any]:
    condition: dict[str, Any] = {"kind": "note"}
    for _ in range(levels):
        condition = {"AND": [condition]}
    return condition


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ([], "filter: must be an object of conditions"),
        ("kind", "filter: must be an object of conditions"),
        ({"AND": {"kind": "note"}}, "filter.AND: must be a list of one condition or more"),
        ({"OR": []}, "filter.OR: must be a list of one condition or more"),
        ({"NOT": "note"}, "filter.NOT: must be a list of one condition or more"),
        ({"AND": [{}]}, "filter.AND[0]: must be an object of conditions"),
        ({"AND": [{"kind": "a"}, {"or": [{"color": "red"}]}]}, "filter.AND[1].or[0].color: is not a known field"),
        ({"user_id": "alice"}, "filter.user_id: is not a known field; valid are namespace, app, app_id"),
        ({"x" * 300: 1}, "filter." + "x" * 60 + "…: is not a known field"),
        ({"metadata": "webshop"}, "filter.metadata: must be an object of names and values"),
        ({"metadata.": 1}, "filter.metadata.: must name what to look at, such as metadata.project"),
        ({"metadata.a..b": 1}, "filter.metadata.a..b: must name what to look at"),
        ({"metadata." + ".".join("a" * 33): 1}, "must name what to look at, such as metadata.project; 32 names"),
        ({"metadata.a\x00": 1}, "must not contain the NUL character"),
        ({"metadata.a": "\x00"}, "filter.metadata.a: must not contain the NUL character"),
        ({"metadata.a": ["x", "\ud800"]}, "filter.metadata.a.in[1]: has half of a surrogate pair"),
        ({"metadata.a": "x" * 4_001}, "filter.metadata.a: has 4,001 characters; the limit is 4,000"),
        ({"metadata.a": {}}, "filter.metadata.a: must hold an operator; valid are eq, ne, in, nin, gt"),
        ({"metadata.a": {"$gt": 1}}, "filter.metadata.a.$gt: is not an operator of this field; valid are eq, ne"),
        ({"metadata.a": {"eq": {"b": 1}}}, "filter.metadata.a.eq: must be a text, a number, true or false"),
        ({"metadata.a": {"eq": float("nan")}}, "filter.metadata.a.eq: must be a text, a number"),
        ({"metadata.a": {"in": "x"}}, "filter.metadata.a.in: must be a list of 1 to 100 values"),
        ({"metadata.a": []}, "filter.metadata.a.in: must be a list of 1 to 100 values"),
        ({"metadata.a": {"nin": [1] * 101}}, "filter.metadata.a.nin: must be a list of 1 to 100 values"),
        ({"metadata.a": {"in": [None]}}, "filter.metadata.a.in[0]: must be a text, a number"),
        ({"metadata.a": {"gt": "soon"}}, "filter.metadata.a.gt: must be a number, or a time such as 2026-01-31"),
        ({"metadata.a": {"gt": True}}, "filter.metadata.a.gt: must be a number, or a time"),
        ({"metadata.a": {"lt": "2026-02-30"}}, "filter.metadata.a.lt: must be a number, or a time"),
        ({"metadata.a": {"contains": ""}}, "filter.metadata.a.contains: must not be empty"),
        ({"metadata.a": {"icontains": 5}}, "filter.metadata.a.icontains: must be a text"),
        ({"metadata.a": {"exists": "yes"}}, "filter.metadata.a.exists: must be true or false"),
        ({"kind": 5}, "filter.kind: must be a text"),
        ({"kind": {"gt": "a"}}, "filter.kind.gt: is not an operator of this field; valid are eq, ne, in, nin"),
        ({"app_id": "claude"}, "filter.app_id: must be an id, such as 6f1c"),
        ({"importance": "high"}, "filter.importance: must be a number"),
        ({"importance": 10**400}, "filter.importance: must be a number"),
        ({"created_at": {"gte": 1577923200}}, "filter.created_at.gte: must be a time such as 2026-01-31"),
        ({"created_at": {"gte": "0001-01-01T00:00:00+14:00"}}, "filter.created_at.gte: must be a time"),
        (nested(6), "filter" + ".AND[0]" * 5 + ".AND: is nested more than 5 levels of AND, OR and NOT deep"),
        ({"OR": [{"metadata.n": n} for n in range(51)]},
         "filter.OR[50].metadata.n: is one condition too many; the limit is 50"),
        ({"AND": [{"metadata.n": {"gt": n, "lt": n}} for n in range(26)]},
         "filter.AND[25].metadata.n.gt: is one condition too many"),
    ],
)  # fmt: skip
def test_one_that_cannot_be_used_is_refused_with_its_place_and_what_would_be_valid(condition: Any, said: str):
    with pytest.raises(Invalid) as refused:
        parsed(condition)
    assert said in str(refused.value)
    assert refused.value.message.startswith("filter")


def test_as_much_as_may_be_said_is_taken():
    assert parsed(nested(5)) == NOTE
    assert parsed({"OR": [{"metadata.n": n} for n in range(50)]}) is not None


@pytest.mark.parametrize("written", ["{", "[", "nul", "{'kind': 'note'}", '{"metadata.a": NaN}', "[" * 100_000])
def test_text_that_is_no_json_is_refused(written: str):
    with pytest.raises(Invalid, match="filter: is not valid JSON"):
        read(written)
