"""Names that nobody has, claimed by a credential that may not write: nothing is made, and there is nothing to read."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from sqlalchemy import text

from openmemory.access.schemas import GrantCreate
from openmemory.audit.schemas import AuditQuery
from openmemory.backup.exporting import ExportSelection
from openmemory.errors import Forbidden, NotFound
from openmemory.identity.caller import UNKNOWN, Caller
from openmemory.identity.principal import Principal, Scope
from openmemory.memories.schemas import MemoryCreate, MemoryQuery
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services


def token(user: str, *scopes: Scope, app: str | None = None) -> Principal:
    return Principal(f"token:{user}", "a token", user=user, app=app, scopes=frozenset(scopes))


async def made(services: Services, user: str) -> int:
    counted = "SELECT count(*) FROM users AS u LEFT JOIN apps AS a ON a.owner_id = u.id WHERE u.user_id = :user"
    async with services.database.statement() as tx:
        return int(await tx.scalar(text(counted), {"user": user}) or 0)


@pytest.mark.parametrize("scopes", [(Scope.READ,), (Scope.READ, Scope.ADMIN), ()])
async def test_a_token_that_may_not_write_makes_no_user(services: Services, new_user: str, scopes):
    """Whose token names somebody who has never written."""
    mine = token(new_user, *scopes)
    owner = await services.directory.owner(mine, None)
    assert owner == await services.directory.owner(mine, new_user, make=True)
    app = await services.directory.owner(replace(mine, app="claude"), None)
    assert (owner.user, owner.user_id, owner.app_id, owner.owner) == (new_user, UNKNOWN, UNKNOWN, True)
    assert (app.user, app.user_id, app.app, app.app_id, app.owner) == (new_user, UNKNOWN, "claude", UNKNOWN, False)
    with pytest.raises(Forbidden):
        await services.memories.add(owner, MemoryCreate(text="I like tea."))
    if Scope.READ not in scopes:
        with pytest.raises(Forbidden):
            await services.memories.list(owner, MemoryQuery())
    assert await made(services, new_user) == 0


async def test_whoever_is_not_there_has_nothing(services: Services, new_user: str):
    owner = await services.directory.owner(token(new_user, Scope.READ), None)
    app = await services.directory.app_caller(token(new_user, Scope.READ, app="claude"), None, None)
    for caller in (owner, app):
        assert (await services.memories.list(caller, MemoryQuery())).total == 0
        assert (await services.memories.list(caller, MemoryQuery(text="tea"))).total == 0
        assert (await services.search.search(caller, SearchQuery("tea", explain=True))).results == []
        assert (await services.search.search(caller, SearchQuery("what happened last week?"))).results == []
        assert (await services.stats.categories(caller)).total == 0
        assert (await services.captures.list(caller)).total == 0
        assert (await services.captures.usage(caller)).days == []
        for attempt in (
            services.memories.get(caller, uuid4()),
            services.memories.related(caller, uuid4()),
            services.memories.history(caller, uuid4()),
            services.captures.get(caller, uuid4()),
        ):
            with pytest.raises(NotFound):
                await attempt
    assert (await services.stats.profile(owner)).total_apps == 0
    assert (await services.apps.list(owner)).total == 0
    assert await services.grants.list(owner) == []
    assert await services.policies.list(owner) == []
    assert (await services.audit.read(owner, AuditQuery())).events == []
    assert (await services.categorization.waiting(owner)).waiting == 0
    assert {each.described_by for each in (await services.descriptions.list(owner)).categories} == {"openmemory"}
    with pytest.raises(NotFound, match="User not found"):
        await services.backup.export(owner, ExportSelection())
    assert await made(services, new_user) == 0
    # The audit log tells under which names.
    query = "SELECT detail FROM audit_events WHERE principal = :principal AND user_id IS NULL AND app_id IS NULL"
    async with services.database.statement() as tx:
        details = list((await tx.scalars(text(query), {"principal": f"token:{new_user}"})).all())
    assert {detail["user"] for detail in details} == {new_user}
    assert {detail["app"] for detail in details} == {"claude", services.settings.access.default_app}


async def test_the_user_who_reads_makes_no_app_of_their_own(services: Services, new_user: str):
    claude = await services.directory.caller(new_user, "claude")
    added = await services.memories.add(claude, MemoryCreate(text="I like tea."))
    everybodys = Principal("key:everyone", "reads", scopes=frozenset({Scope.READ}))
    for owner in (
        await services.directory.owner(token(new_user, Scope.READ), None),
        await services.directory.owner(everybodys, new_user),
    ):
        assert (owner.user_id, owner.app_id, owner.owner) == (claude.user_id, UNKNOWN, True)
        assert (await services.memories.get(owner, added.id)).content == "I like tea."
    assert await made(services, new_user) == 1
    with pytest.raises(NotFound):
        await services.directory.owner(everybodys, f"{new_user}-nobody")


async def test_an_app_that_is_not_there_reads_nothing_where_apps_read_what_they_wrote(
    services: Services, new_user: str
):
    claude = await services.directory.caller(new_user, "claude")
    await services.memories.add(claude, MemoryCreate(text="I like tea."))
    ghost = await services.directory.app_caller(token(new_user, Scope.READ, app="ghost"), None, None)
    assert (await services.memories.list(ghost, MemoryQuery())).total == 1
    assert len((await services.search.search(ghost, SearchQuery("tea"))).results) == 1
    own = replace(ghost, default="own_app")
    assert (await services.memories.list(own, MemoryQuery())).total == 0
    assert (await services.search.search(own, SearchQuery("tea"))).results == []


async def test_a_preview_reads_as_the_app_and_is_no_access_of_it(services: Services, app_caller: Caller, owner: Caller):
    shown, hidden = await services.memories.add_many(
        app_caller, [MemoryCreate("Alice drinks tea"), MemoryCreate("Alice drinks wine", namespace="private")]
    )
    rule = GrantCreate(effect="deny", app="claude", object_type="namespace", object="private")
    await services.grants.create(owner, rule)
    preview = await services.directory.preview(owner, app_caller.app_id)
    found = await services.search.search(preview, SearchQuery("what does Alice drink?"))
    assert [result.id for result in found.results] == [shown.id]
    assert (await services.memories.list(preview, MemoryQuery())).total == 1
    with pytest.raises(NotFound):
        await services.memories.get(preview, hidden.id)
    assert (await services.memories.access_log(owner, shown.id)).logs == []
    events = (await services.audit.read(owner, AuditQuery(("memory.search", "memory.list")))).events
    assert [(event.app_name, event.detail) for event in events] == [
        (None, {"app": "claude", "preview": True}),
        (None, {"app": "claude", "preview": True, "method": "hybrid"}),
    ]


async def test_only_the_user_previews_their_own_apps(services: Services, app_caller: Caller, owner: Caller):
    stranger = await services.directory.caller(f"{owner.user}-other", None, owner=True)
    with pytest.raises(NotFound, match="App not found"):
        await services.directory.preview(stranger, app_caller.app_id)
    with pytest.raises(Forbidden):
        await services.directory.preview(app_caller, app_caller.app_id)
