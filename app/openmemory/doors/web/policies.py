"""Archive policies: what is archived or expires by itself, and after how many days."""

from __future__ import annotations

from typing import Any, get_args

from fastapi import APIRouter
from starlette.responses import Response

from openmemory.doors.web.page import TheForm, ThePage, Undo, id_of, text_of, validate
from openmemory.errors import Invalid
from openmemory.memories import validation
from openmemory.memories.lifecycle.schemas import CriteriaType, Policy, PolicyCreate

router = APIRouter(include_in_schema=False)


@router.get("/ui/settings/policies")
async def show(page: ThePage) -> Response:
    """Show the policies of the user."""
    policies = await page.services.policies.list(page.caller) if page.everything else []
    return page.render("policies.html", policies=policies, kinds=get_args(CriteriaType))


@router.post("/ui/settings/policies")
async def create(page: ThePage, form: TheForm) -> Response:
    """Make a policy; one that does the same to the same gets the new number of days."""
    name = text_of(form, "criteria_name").strip()
    days = text_of(form, "days").strip()
    if not days.isdecimal():
        raise Invalid("days", "must be a number of days, from 1")
    fields: dict[str, Any] = {"criteria_type": text_of(form, "criteria_type"), "criteria_name": name}
    fields["days_to_expire" if text_of(form, "action") == "expire" else "days_to_archive"] = int(days)
    new = validate(PolicyCreate, fields)
    new = new.model_copy(update=validation.names(new, ("criteria_name",), page.services.settings.limits))
    policy = await page.services.policies.create(page.caller, new)
    return page.redirect_with_notice(
        f"From now on, {_describe(policy)}.",
        "settings/policies",
        Undo("settings/policies/delete", {"id": str(policy.id)}),
    )


@router.post("/ui/settings/policies/delete")
async def delete(page: ThePage, form: TheForm) -> Response:
    """End a policy. What it has archived stays archived."""
    policy_id = id_of(text_of(form, "id"), "id")
    policies = [each for each in await page.services.policies.list(page.caller) if each.id == policy_id]
    await page.services.policies.remove(page.caller, policy_id)
    undo = Undo("settings/policies", _fields(policies[0])) if policies else None
    return page.redirect_with_notice("Ended the policy. What it archived stays archived.", "settings/policies", undo)


def _fields(policy: Policy) -> dict[str, str]:
    """Returns the form that makes a policy again."""
    return {
        "criteria_type": policy.criteria_type,
        "criteria_name": "" if policy.criteria_type == "user" else policy.criteria_name or "",
        "action": "archive" if policy.days_to_expire is None else "expire",
        "days": str(policy.days_to_expire or policy.days_to_archive),
    }


def _describe(policy: Policy) -> str:
    days = policy.days_to_expire or policy.days_to_archive
    after = f"after {days:,} {'day' if days == 1 else 'days'}"
    of = "everything" if policy.criteria_type == "user" else f"{policy.criteria_type} {policy.criteria_name}"
    return f"{of} expires {after}" if policy.days_to_expire else f"{of} is archived {after} without a change"
