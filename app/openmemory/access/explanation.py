"""Why an app may read a memory or not, in words. What is decided is decided by `readable_by`; here it is told."""

from __future__ import annotations

from dataclasses import dataclass

from openmemory.identity.caller import Default


@dataclass(frozen=True, slots=True)
class Deciding:
    """The rule that decides about a memory; `name` is that of its object in words."""

    effect: str
    app: str | None
    object_type: str
    name: str | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What decides whether an app may read a memory. `own`: it wrote it; `listed`: it has allow rules of its own."""

    app: str
    app_is_active: bool
    state: str
    expired: bool
    outdated: bool
    own: bool
    listed: bool
    default: Default


def hindrance(facts: Facts) -> str | None:
    """Why no rule is asked at all; None if rules decide."""
    if facts.state != "active":
        return f"the memory is {facts.state}"
    if facts.expired:
        return "the memory has expired"
    if facts.outdated:
        return "the memory is no longer valid"
    return None if facts.app_is_active else "the app is paused"


def reason(facts: Facts, rule: Deciding | None) -> str:
    """Why an app may read a memory, or may not. `rule` goes before all others that speak of it."""
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


def _decided(rule: Deciding) -> str:
    what = {"all": "everything", "memory": "this memory"}.get(rule.object_type) or f"{rule.object_type} {rule.name!r}"
    subject = rule.app or "every app"
    if rule.effect == "deny":
        return f"denied by the rule that hides {what} from {subject}"
    return f"allowed by the rule that shows {what} to {subject}"
