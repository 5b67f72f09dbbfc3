from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from openmemory.audit.models import MemoryAccessLog
from openmemory.errors import Forbidden, Invalid
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services


async def test_each_day_counts_what_each_app_wrote_and_accessed(services: Services, app_caller: Caller, owner: Caller):
    now = datetime.now(UTC)
    old = MemoryCreate("old", created_at=now - timedelta(days=29))
    older = MemoryCreate("older", created_at=now - timedelta(days=30))
    ids = [one.id for one in await services.memories.add_many(app_caller, [MemoryCreate("new"), old, older])]
    for id_ in (*ids, ids[0]):
        await services.memories.get(app_caller, id_)
    async with services.database.transaction() as tx:
        which = MemoryAccessLog.memory_id == ids[1]
        await tx.execute(update(MemoryAccessLog).where(which).values(accessed_at=now - timedelta(days=2)))
    days = [(day.day, day.written, day.accessed) for day in await services.stats.daily(owner)]
    today = datetime.now(UTC).date()
    assert days == [(today - timedelta(days=29), 1, 0), (today - timedelta(days=2), 0, 1), (today, 1, 3)]
    assert {day.app_id for day in await services.stats.daily(owner)} == {app_caller.app_id}
    assert await services.stats.daily(owner, app_id=owner.app_id) == []
    assert len(await services.stats.daily(owner, days=31, app_id=app_caller.app_id)) == 4


async def test_days_are_the_users_own(services: Services, app_caller: Caller, owner: Caller):
    await services.memories.add(app_caller, MemoryCreate("new"))
    stranger = await services.directory.caller(f"{owner.user}-other", None, owner=True)
    assert await services.stats.daily(stranger, app_id=app_caller.app_id) == []
    with pytest.raises(Forbidden):
        await services.stats.daily(app_caller)
    with pytest.raises(Forbidden):
        await services.stats.daily(replace(owner, principal=replace(owner.principal, namespaces=("work",))))
    with pytest.raises(Invalid, match="days: must be from 1 to 366"):
        await services.stats.daily(owner, days=367)
