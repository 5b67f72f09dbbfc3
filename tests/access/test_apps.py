from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import update

from openmemory.access.apps import Apps
from openmemory.audit.models import MemoryAccessLog
from openmemory.errors import Forbidden, NotFound
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services


async def test_apps_are_those_of_the_user_with_what_they_wrote(services: Services, app_caller: Caller, owner: Caller):
    await services.memories.add_many(app_caller, [MemoryCreate("one"), MemoryCreate("two")])
    page = await Apps(services.database).list(owner, sort="memories", descending=True)
    assert [(app.name, app.total_memories_created) for app in page.apps] == [("claude", 2), ("openmemory", 0)]
    assert page.total == 2


async def test_a_part_of_the_name_is_no_pattern(services: Services, app_caller: Caller, owner: Caller):
    apps = Apps(services.database)
    assert [app.name for app in (await apps.list(owner, name="LAUD")).apps] == ["claude"]
    assert (await apps.list(owner, name="%")).apps == []


async def test_a_paused_app_is_listed_as_such(services: Services, app_caller: Caller, owner: Caller):
    apps = Apps(services.database)
    await apps.set_active(owner, app_caller.app_id, False)
    assert [app.name for app in (await apps.list(owner, is_active=False)).apps] == ["claude"]
    assert [app.name for app in (await apps.list(owner, is_active=True)).apps] == ["openmemory"]


async def test_only_the_user_may_list_and_pause(services: Services, app_caller: Caller):
    with pytest.raises(Forbidden):
        await Apps(services.database).list(app_caller)
    with pytest.raises(Forbidden):
        await Apps(services.database).set_active(app_caller, app_caller.app_id, False)


async def test_an_app_of_somebody_else_is_not_found(services: Services, app_caller: Caller, owner: Caller):
    stranger = replace(await services.directory.caller(f"{owner.user}-other", None), owner=True)
    for app_id in (app_caller.app_id, uuid4()):
        with pytest.raises(NotFound, match="App not found"):
            await Apps(services.database).set_active(stranger, app_id, False)


async def test_apps_tell_what_they_did_lately_and_when_they_last_read(
    services: Services, app_caller: Caller, owner: Caller
):
    old = datetime.now(UTC) - timedelta(days=30)
    memories = [MemoryCreate("new"), MemoryCreate("old", created_at=old)]
    ids = [added.id for added in await services.memories.add_many(app_caller, memories)]

    async def activity() -> tuple[int, int, datetime | None]:
        [app] = (await Apps(services.database).list(owner, name="claude", activity=True)).apps
        return app.recently_created, app.recently_accessed, app.last_accessed

    assert await activity() == (1, 0, None)
    [app] = (await Apps(services.database).list(owner, name="claude", activity=True)).apps
    assert app.last_created is not None
    assert datetime.now(UTC) - app.last_created.replace(tzinfo=UTC) < timedelta(minutes=1)
    for memory_id in (*ids, ids[0]):
        await services.memories.get(app_caller, memory_id)
    created, accessed, last = await activity()
    assert (created, accessed) == (1, 2)
    assert last == (await Apps(services.database).get(owner, app_caller.app_id)).last_accessed
    async with services.database.transaction() as tx:
        which = MemoryAccessLog.app_id == app_caller.app_id
        await tx.execute(update(MemoryAccessLog).where(which).values(accessed_at=old))
    assert await activity() == (1, 0, old)
