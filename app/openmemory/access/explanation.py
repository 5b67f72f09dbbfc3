"""Explains in words why an app may or may not read a memory. The decision itself is made by `readable_by`."""

from __future__ import annotations

from typing import Any

from openmemory.identity.caller import Caller


def hindrance(facts: Any) -> str | None:
    """Returns the reason why rules do not matter at all; None if rules decide. `facts`: see `reason`."""
    if facts.state != "active":
        return f"the memory is {facts.state}"
    if facts.expired:
        return "the memory has expired"
    if facts.outdated:
        return "the memory is no longer valid"
    return None if facts.is_active else "the app is paused"


def reason(app: Caller, facts: Any, rule: Any) -> str:
    """Returns why an app may or may not read a memory.

    `facts` is a row: `state`, `expired` and `outdated` of the memory, `is_active` of the app, `own` if the app wrote
    it, `listed` if the app has allow rules. `rule` is the applicable rule with the highest precedence, or None.
    """
    if (obstacle := hindrance(facts)) is not None:
        return obstacle
    if rule is not None:
        return _rule_reason(rule)
    if app.default == "own_app":
        wrote = "wrote it" if facts.own else "did not write it"
        return f"no rule speaks of it; access.default is own_app, and {app.app} {wrote}"
    if facts.listed:
        return f"no rule speaks of it, and {app.app} has allow rules, which list all that it may read"
    return "no rule speaks of it; access.default is user"


def _rule_reason(rule: Any) -> str:
    what = {"all": "everything", "memory": "this memory"}.get(
        rule.object_type
    ) or f"{rule.object_type} {rule.object_name!r}"
    subject = rule.app or "every app"
    if rule.effect == "deny":
        return f"denied by the rule that hides {what} from {subject}"
    return f"allowed by the rule that shows {what} to {subject}"
