"""Rules in sets against a plain model of their precedence, over random rules."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmemory.access.rules import ALL, NONE, Rule, RuleObjects, Rules, in_sets

APP, OTHER = UUID(int=1), UUID(int=2)
CATEGORIES = (UUID(int=11), UUID(int=12))


@dataclass(frozen=True)
class Row:
    id: UUID
    app: UUID
    namespace: str
    categories: frozenset[UUID]


ROWS = [
    Row(UUID(int=100 + number), app, namespace, frozenset(categories))
    for number, (app, namespace, categories) in enumerate(
        (app, namespace, categories)
        for app in (APP, OTHER)
        for namespace in ("default", "work")
        for categories in ((), CATEGORIES[:1], CATEGORIES)
    )
]


def holds(objects: RuleObjects, row: Row) -> bool:
    return (
        objects.everything
        or row.id in objects.memories
        or row.app in objects.apps
        or row.namespace in objects.namespaces
        or not objects.categories.isdisjoint(row.categories)
    )


def lets_through(rules: Rules, row: Row) -> bool:
    if holds(rules.denied, row):
        return False
    return holds(rules.allowed, row) or (holds(rules.shared, row) and not holds(rules.hidden, row))


def speaks_of(rule: Rule, row: Row) -> bool:
    found = {"all": True, "memory": row.id in rule.ids, "app": row.app in rule.ids}
    found |= {"namespace": row.namespace in rule.names, "category": not row.categories.isdisjoint(rule.ids)}
    return found[rule.object_type]


def may_read(rules: list[Rule], row: Row, default: str) -> bool:
    for own in (True, False):
        effects = {rule.effect for rule in rules if rule.own == own and speaks_of(rule, row)}
        if effects:
            return "deny" not in effects
    if default == "own_app":
        return row.app == APP
    return not any(rule.own and rule.effect == "allow" for rule in rules)


@st.composite
def a_rule(draw: st.DrawFn) -> Rule:
    kind = draw(st.sampled_from(["all", "memory", "app", "namespace", "category"]))
    choices = {"memory": [row.id for row in ROWS], "app": [APP, OTHER], "category": list(CATEGORIES)}
    ids = draw(st.lists(st.sampled_from(choices[kind]), min_size=1, max_size=3)) if kind in choices else [None]
    names = [draw(st.sampled_from(["default", "work"]))] if kind == "namespace" else [None]
    return Rule(draw(st.booleans()), draw(st.sampled_from(["allow", "deny"])), kind, ids, names)


@pytest.mark.parametrize("default", ["user", "own_app"])
@given(rules=st.lists(a_rule(), max_size=6))
def test_sets_say_what_the_rules_say(default, rules: list[Rule]):
    found = in_sets(rules, APP, default)
    expected = {row.id for row in ROWS if may_read(rules, row, default)}
    assert {row.id for row in ROWS if lets_through(found, row)} == expected
    assert not (found.nothing and expected)


def test_an_app_without_rules_may_read_everything_or_its_own():
    assert in_sets([], APP, "user") == ALL
    assert in_sets([], APP, "own_app") == Rules(shared=RuleObjects(apps=frozenset({APP})))


def test_who_is_denied_everything_may_read_nothing_whatever_else_is_said():
    everything = Rule(True, "deny", "all", [None], [None])
    assert in_sets([everything, Rule(True, "allow", "app", [APP], [None])], APP, "user") == NONE
    assert in_sets([everything._replace(own=False)], APP, "user") == NONE
