from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from openmemory.access.rate_limits import Quota, RateLimiter, periods_until_room
from openmemory.config.settings import RateSettings, load
from openmemory.errors import TooMany
from openmemory.identity.principal import LOCAL, Door
from openmemory.memories.schemas import MemoryCreate
from openmemory.operations.tidying import list_conflicts
from openmemory.projects.context import ContextQuery
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services

FIVE = Quota("things", "rates.things", 5)


def rates(services: Services, **settings: int) -> RateLimiter:
    return RateLimiter(services.database, RateSettings.model_validate({"window": 3600} | settings))


async def count_until_full(limits: list[RateLimiter], bucket: str, pace: Quota, **how: int) -> int:
    taken = 0
    while True:
        try:
            await limits[taken % len(limits)].count(bucket, pace, **how)
        except TooMany:
            return taken
        taken += 1


async def test_processes_share_a_limit(services):
    bucket = f"test:{uuid4()}"
    assert await count_until_full([rates(services), rates(services)], bucket, FIVE) == 5


async def test_at_once_no_more_than_the_limit_pass(services):
    bucket, limit = f"test:{uuid4()}", rates(services)
    results = await asyncio.gather(*(limit.count(bucket, FIVE) for _ in range(20)), return_exceptions=True)
    assert sum(result is None for result in results) == 5
    assert all(result is None or isinstance(result, TooMany) for result in results)


async def test_several_at_once_count_as_several_and_more_than_the_limit_never_pass(services):
    bucket, limit = f"test:{uuid4()}", rates(services)
    await limit.count(bucket, FIVE, cost=3)
    with pytest.raises(TooMany):
        await limit.count(bucket, FIVE, cost=3)
    await limit.count(bucket, FIVE, cost=2)
    with pytest.raises(TooMany) as refused:
        await limit.count(f"test:{uuid4()}", FIVE, cost=6)
    assert "send fewer" in refused.value.hint
    assert "at most 5 in 3600 s (rates.things)" in refused.value.message


async def test_processes_that_take_several_in_advance_stay_within_the_limit(services):
    bucket, pace = f"test:{uuid4()}", Quota("things", "rates.things", 100)
    both = [rates(services), rates(services)]
    assert 90 <= await count_until_full(both, bucket, pace, chunk=5) <= 100


async def test_no_limit_is_none(services, new_user):
    limit = rates(services, saves=0)
    assistant = await services.directory.caller(new_user, "claude", principal=replace(LOCAL, door=Door.MCP))
    for _ in range(50):
        await limit.save(assistant, 100)


@pytest.mark.parametrize("name", sorted(RateSettings.model_fields.keys() - {"window"}))
def test_zero_sets_no_limit_wherever_there_is_one(name):
    settings = load(environ={f"OPENMEMORY_RATES_{name.upper()}": "0"}, inherit=False)
    assert getattr(settings.rates, name) == 0


async def test_without_a_limit_nobody_is_shut_out_and_every_refusal_is_told(services):
    limit = rates(services, failures=0)
    for _ in range(50):
        await limit.failure("198.51.100.77")
        assert await limit.denial("key:somebody")
    async with services.database.statement() as tx:
        counted = "SELECT count(*) FROM rate_limits WHERE bucket IN ('failure:198.51.100.77', 'denial:key:somebody')"
        assert await tx.scalar(text(counted)) == 0


async def test_a_pack_a_search_of_everything_and_a_list_of_conflicts_count_as_one_search_each(services, new_user):
    assistant = await services.directory.caller(new_user, "claude", principal=replace(LOCAL, door=Door.MCP))
    await services.memories.add(assistant, MemoryCreate(text="The garden gate is green."))
    bucket = f"search:{assistant.app_id}"
    query = text("SELECT used + before FROM rate_limits WHERE bucket = :bucket")  # a minute may end meanwhile

    async def counted() -> int:
        async with services.database.statement() as tx:
            return await tx.scalar(query, {"bucket": bucket}) or 0

    before = await counted()
    assert (await services.context.pack(assistant, ContextQuery("the garden gate"))).memories
    assert await counted() == before + 1
    assert (await services.search.over(assistant, SearchQuery("the garden gate"), "both")).results
    assert await counted() == before + 2
    assert (await list_conflicts(services, assistant)).total == 0
    assert await counted() == before + 3


async def test_there_is_room_again_when_it_was_said(services):
    bucket, limit = f"test:{uuid4()}", rates(services)
    for _ in range(5):
        await limit.count(bucket, FIVE)
    with pytest.raises(TooMany) as refused:
        await limit.count(bucket, FIVE)
    assert 0 < refused.value.retry_after <= 2 * 3600
    # As if two windows had passed.
    async with services.database.statement() as tx:
        await tx.execute(text("UPDATE rate_limits SET period = period - 2 WHERE bucket = :b"), {"b": bucket})
    await limit.count(bucket, FIVE)


async def test_half_of_the_window_before_still_counts_at_its_half(services):
    """`before` counts by the share of it that lies within a whole window back from now."""
    bucket, limit = f"test:{uuid4()}", rates(services)
    await limit.count(bucket, FIVE)
    async with services.database.statement() as tx:
        await tx.execute(
            text("UPDATE rate_limits SET period = period - 1, used = 1000000 WHERE bucket = :b"), {"b": bucket}
        )
    with pytest.raises(TooMany):
        await limit.count(bucket, FIVE)


async def test_what_no_limit_looks_at_any_more_is_removed(services):
    bucket, limit = f"test:{uuid4()}", rates(services)
    await limit.count(bucket, FIVE)
    look = text("SELECT count(*) FROM rate_limits WHERE bucket = :b")
    async with services.database.statement() as tx:
        await limit.prune()
        assert await tx.scalar(look, {"b": bucket}) == 1
        await tx.execute(text("UPDATE rate_limits SET period = period - 2 WHERE bucket = :b"), {"b": bucket})
        await limit.prune()
        assert await tx.scalar(look, {"b": bucket}) == 0


@given(
    used=st.integers(0, 50), before=st.integers(0, 50), share=st.floats(0, 0.999), most=st.integers(0, 50)
)  # fmt: skip
def test_after_the_wait_that_is_told_there_is_room(used, before, share, most):
    """Weighted as the statement weighs it: `used + before * (1 - share)`, the period turning at 1."""
    if used + before * (1 - share) <= most:
        return
    at = share + periods_until_room(used, before, share, most)
    counted = used + before * (1 - at) if at < 1 else used * (1 - (at - 1))
    assert counted <= most + 1e-6
    assert 0 < at - share <= 2
