"""Explanations: what they say is what `readable_by` decides."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from openmemory.access.schemas import GrantCreate
from openmemory.errors import Forbidden, NotFound
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services
from tests.access.test_readable import APPS, CATEGORIES, NAMESPACES, memories_of, rule


async def grant(services: Services, owner: Caller, effect: str, object_type: str, object_=None, app=None):
    new = {"effect": effect, "object_type": object_type, "object": object_, "app": app}
    return await services.grants.create(owner, GrantCreate.model_validate(new))


@pytest.fixture
async def remembered(services: Services, app_caller: Caller):
    """A memory that claude wrote in the namespace private, filed under health."""
    new = MemoryCreate(text="the dentist is in Elm Street", namespace="private", categories=("health",))
    return (await services.memories.add(app_caller, new)).id


@pytest.mark.slow
@pytest.mark.parametrize("default", ["user", "own_app"])
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(drawn=st.lists(rule(), max_size=5), paused=st.booleans(), state=st.sampled_from(["active", "paused"]))
async def test_the_reason_agrees_with_what_is_decided(services: Services, default: str, drawn, paused, state):
    owner = replace(await services.directory.caller(f"told-{default}", None, owner=True), default=default)
    rows = await memories_of(services, owner)
    for old in await services.grants.list(owner):
        await services.grants.revoke(owner, old.id)
    choices = {"all": [None], "memory": [str(row.id) for row in rows], "app": APPS}
    choices |= {"namespace": NAMESPACES, "category": CATEGORIES}
    for app, effect, kind, pick in drawn:
        await grant(services, owner, effect, kind, choices[kind][pick % len(choices[kind])], app)
    cursor = replace(await services.directory.caller(owner.user, "cursor"), default=default)
    states = {"row": rows[0].id, "state": state, "app": cursor.app_id, "active": not paused}
    async with services.database.transaction() as tx:
        await tx.execute(text("UPDATE memories SET state = cast(:state AS memory_state) WHERE id = :row"), states)
        await tx.execute(text("UPDATE apps SET is_active = :active WHERE id = :app"), states)
    try:
        for row in rows[:4]:
            told = await services.grants.explain(owner, "cursor", row.id)
            readable = True
            try:
                await services.memories.get(cursor, row.id)
            except NotFound:
                readable = False
            assert told.allowed == readable
            assert told.allowed == means_yes(told.reason), told.reason
            if told.rule is not None:
                assert told.rule == told.considered[0]
                assert told.rule.effect == ("allow" if told.allowed else "deny")
    finally:
        async with services.database.transaction() as tx:
            await tx.execute(text("UPDATE memories SET state = 'active' WHERE id = :row"), states)
            await tx.execute(text("UPDATE apps SET is_active = true WHERE id = :app"), states)


def means_yes(reason: str) -> bool:
    """What a reader would take the words to mean."""
    if reason.startswith(("allowed by", "denied by")):
        return reason.startswith("allowed by")
    return reason.endswith(("access.default is user", " wrote it"))


async def test_reasons_name_what_decides(services: Services, owner: Caller, remembered):
    async def reason() -> str:
        return (await services.grants.explain(owner, "claude", remembered)).reason

    assert await reason() == "no rule speaks of it; access.default is user"
    await grant(services, owner, "allow", "namespace", "work", "claude")
    assert await reason() == "no rule speaks of it, and claude has allow rules, which list all that it may read"
    await grant(services, owner, "deny", "all")
    assert await reason() == "denied by the rule that hides everything from every app"
    await grant(services, owner, "allow", "app", "claude", "claude")
    assert await reason() == "allowed by the rule that shows app 'claude' to claude"
    await grant(services, owner, "allow", "category", "health", "claude")
    await grant(services, owner, "deny", "namespace", "private", "claude")
    assert await reason() == "denied by the rule that hides namespace 'private' from claude"
    told = await services.grants.explain(owner, "claude", remembered)
    kinds = [(rule.app, rule.effect, rule.object_type) for rule in told.considered]
    assert kinds == [
        ("claude", "deny", "namespace"),
        ("claude", "allow", "app"),
        ("claude", "allow", "category"),
        (None, "deny", "all"),
    ]


async def test_what_stands_before_all_rules_is_told(services: Services, owner: Caller, app_caller: Caller, remembered):
    rule = await grant(services, owner, "allow", "memory", str(remembered), "claude")
    for change, words in (
        ("UPDATE apps SET is_active = false WHERE id = :app", "the app is paused"),
        ("UPDATE memories SET valid_until = now() WHERE id = :memory", "the memory is no longer valid"),
        ("UPDATE memories SET expires_at = now() WHERE id = :memory", "the memory has expired"),
        ("UPDATE memories SET state = 'archived' WHERE id = :memory", "the memory is archived"),
    ):
        async with services.database.transaction() as tx:
            await tx.execute(text(change), {"app": app_caller.app_id, "memory": remembered})
        told = await services.grants.explain(owner, "claude", remembered)
        assert (told.allowed, told.reason, told.rule, told.considered) == (False, words, None, [rule])


async def test_a_memory_that_has_not_expired_yet_is_explained_by_rules(services: Services, owner: Caller, app_caller):
    later = datetime.now(UTC) + timedelta(hours=1)
    added = await services.memories.add(app_caller, MemoryCreate(text="for an hour", expires_at=later))
    assert (await services.grants.explain(owner, "claude", added.id)).allowed


async def test_own_app_is_explained_by_who_wrote(services: Services, owner: Caller, remembered):
    await services.directory.caller(owner.user, "cursor")
    careful = replace(owner, default="own_app")
    told = [await services.grants.explain(careful, app, remembered) for app in ("claude", "cursor")]
    assert [(it.allowed, it.reason) for it in told] == [
        (True, "no rule speaks of it; access.default is own_app, and claude wrote it"),
        (False, "no rule speaks of it; access.default is own_app, and cursor did not write it"),
    ]


async def test_only_the_owner_is_told_and_only_of_what_is_theirs(services: Services, app_caller: Caller, remembered):
    owner = await services.directory.caller(app_caller.user, None, owner=True)
    stranger = await services.directory.caller(app_caller.user + "-other", "claude", owner=True)
    with pytest.raises(Forbidden):
        await services.grants.explain(app_caller, "claude", remembered)
    for asking, app, memory, words in (
        (stranger, "claude", remembered, "Memory not found"),
        (owner, "claude", uuid4(), "Memory not found"),
        (owner, "nobody", remembered, "App not found"),
    ):
        with pytest.raises(NotFound, match=words):
            await services.grants.explain(asking, app, memory)
