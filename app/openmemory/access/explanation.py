"""Explains in words why an app may or may not read a memory. The decision itself is made by `readable_by`."""

from __future__ import annotations

from dataclasses import dataclass

from openmemory.identity.caller import Default


@dataclass(frozen=True, slots=True)
class DecidingRule:
    """The rule that decides about a memory; `name` is the readable name of its object."""

    effect: str
    app: str | None
    object_type: str
    name: str | None


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that decide whether an app may read a memory. `own`: the app wrote it; `listed`: it has allow rules."""

    app: str
    app_is_active: bool
    state: str
    expired: bool
    outdated: bool
    own: bool
    listed: bool
    default: Default


def hindrance(facts: Facts) -> str | None:
    """Returns the reason why rules do not matter at all; None if rules decide."""
    if facts.state != "active":
        return f"the memory is {facts.state}"
    if facts.expired:
        return "the memory has expired"
    if facts.outdated:
        return "the memory is no longer valid"
    return None if facts.app_is_active else "the app is paused"


def reason(facts: Facts, rule: DecidingRule | None) -> str:
    """Returns why an app may or may not read a memory. `rule` is the applicable rule with the highest precedence."""
    if (hindered := hindrance(facts)) is not None:
        return hindered
    if rule is not None:
        return _decided(rule)
    if facts.default == "own_app":
        wrote = "wrote it" if facts.own else "did not write it"
        return f"no rule speaks of it; access.default is own_app, and {facts.app} {wrote}"
    if facts.listed:
        return f"no rule speaks of it, and {facts.app} has allow rules, which list all that it may read"
    return "no rule speaks of it; access.default is user"


def _decided(rule: DecidingRule) -> str:
    what = {"all": "everything", "memory": "this memory"}.get(rule.object_type) or f"{rule.object_type} {rule.name!r}"
    subject = rule.app or "every app"
    if rule.effect == "deny":
        return f"denied by the rule that hides {what} from {subject}"
    return f"allowed by the rule that shows {what} to {subject}"
