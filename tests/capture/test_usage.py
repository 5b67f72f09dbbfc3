"""What captures took of the language model, by app and day: counted whatever became of them, and kept when they go."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text

from openmemory.capture import queue, usage
from openmemory.capture.schemas import CaptureCreate
from openmemory.capture.status import Status
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Principal
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services
from tests import warm
from tests.capture.conftest import Done, Say, SetPauses, TakeOver, does, operation
from tests.llm.server import Answer, LlmServer, says

FIG = operation("ADD", text="Alice likes figs.")
pytestmark = pytest.mark.usefixtures("soon")
USAGE = "/api/v1/captures/usage"


def today() -> date:
    return datetime.now(UTC).date()


async def move(services: Services, caller: Caller, days: int) -> None:
    """As if all of it had been so many days before."""
    async with services.database.transaction() as tx:
        moved = "UPDATE capture_usage SET day = day - :days WHERE user_id = :user"
        await tx.execute(text(moved), {"days": days, "user": caller.user_id})


async def test_every_capture_is_counted_for_its_app_and_each_sees_its_own(
    inferring: Services, model: LlmServer, claude: Caller, self_: Caller, say: Say
) -> None:
    cursor = await inferring.directory.caller(claude.user, "cursor")
    model.script = does(FIG)
    outcomes = [await say("I like figs."), await say("Figs!"), await say("I like figs.", caller=cursor)]
    views = [await inferring.captures.get(self_, outcome.capture_id) for outcome in outcomes]
    found = await inferring.captures.usage(self_)
    assert [(row.day, row.app_name, row.calls, row.done) for row in found.days] == [
        (today(), "claude", 2, 2), (today(), "cursor", 1, 1),
    ]  # fmt: skip
    assert found.days[0].prompt_tokens == sum(view.prompt_tokens for view in views[:2]) > 1_000
    assert found.total.prompt_tokens == sum(view.prompt_tokens for view in views)
    assert found.total.completion_tokens == sum(view.completion_tokens for view in views) > 0
    assert found.total.seconds == pytest.approx(sum(view.seconds for view in views))
    assert (found.total.calls, found.total.done, found.waiting) == (3, 3, 0)
    own = await inferring.captures.usage(cursor)
    assert [(row.app_name, row.calls) for row in own.days] == [("cursor", 1)]
    assert own.total.calls == 1


async def test_failed_attempts_are_counted_and_so_is_what_waits(
    inferring: Services, model: LlmServer, claude: Caller, say: Say, pauses: SetPauses
) -> None:
    pauses(first=20, last=20)
    model.script = lambda _: Answer("nonsense")
    outcome = await say("I like figs.")
    view = await inferring.captures.get(claude, outcome.capture_id)
    after = await inferring.captures.usage(claude)
    assert (after.total.calls, after.total.done, after.total.failed, after.waiting) == (2, 0, 0, 1)
    assert after.total.prompt_tokens == view.prompt_tokens > 1_000
    model.script = lambda _: Answer("overloaded", status=500)
    await say("I like plums.")
    assert (await inferring.captures.usage(claude)).total.calls == 3


@pytest.mark.slow
async def test_captures_are_counted_under_all_that_becomes_of_them(
    inferring: Services, model: LlmServer, claude: Caller, say: Say, done: Done
) -> None:
    model.script = lambda _: Answer("nonsense")
    outcome = await say("I like figs.")
    await done(outcome, Status.FAILED)
    model.script = does(FIG)
    assert (await say("I like figs.")).capture_id == outcome.capture_id

    await done(outcome)
    await inferring.captures.undo(claude, outcome.capture_id)
    await inferring.captures.undo(claude, outcome.capture_id)  # which does nothing
    total = (await inferring.captures.usage(claude)).total
    assert (total.failed, total.done, total.undone) == (1, 1, 1)
    assert total.calls == len(model.asked)


async def test_totals_stay_when_captures_and_memories_go(
    inferring: Services, model: LlmServer, claude: Caller, self_: Caller, say: Say
) -> None:
    model.script = does(FIG)
    outcome = await say("I like figs.")
    before = await inferring.captures.usage(claude)
    await inferring.memories.erase(self_, [outcome.results[0].id])
    await say("Nothing of note.")
    async with inferring.database.transaction() as tx:
        old = "UPDATE captures SET finished_at = now() - interval '40 days' WHERE user_id = :user"
        await tx.execute(text(old), {"user": claude.user_id})
        await queue.prune(tx, days=30)
    assert (await inferring.captures.list(claude)).total == 0
    after = await inferring.captures.usage(claude)
    assert (before.total.calls, after.total.calls) == (1, 2)


async def test_what_a_process_asked_that_lost_the_capture_is_counted_too(
    inferring: Services, model: LlmServer, claude: Caller, done: Done, take_over: TakeOver
) -> None:
    def answer(_: dict[str, Any]) -> Answer:
        if len(model.asked) == 1:
            take_over(0.5)
        return says({"operations": [FIG]})

    model.script = answer
    outcome = await inferring.captures.add(claude, CaptureCreate(MemoryCreate(text="I like figs."), wait=False))

    await done(outcome)
    assert (await inferring.captures.get(claude, outcome.capture_id)).calls == 1
    total = (await inferring.captures.usage(claude)).total
    assert (total.calls, total.done) == (2, 1)


async def test_only_the_days_and_namespaces_that_are_asked_for_count(
    inferring: Services, model: LlmServer, claude: Caller, self_: Caller, say: Say
) -> None:
    await say("Long ago.")
    await move(inferring, claude, 40)
    await say("Now.", namespace="webshop")
    assert (await inferring.captures.usage(self_)).total.calls == 1
    then = today() - timedelta(days=40)
    found = await inferring.captures.usage(self_, first=then)
    assert [row.day for row in found.days] == [today(), then]
    assert (await inferring.captures.usage(self_, first=then, last=then)).total.calls == 1
    assert (await inferring.captures.usage(self_, last=then)).first == then - timedelta(days=29)
    principal = Principal(claude.principal.id, claude.principal.name, namespaces=("webshop",))
    within = Caller(claude.user_id, claude.user, claude.app_id, claude.app, default="user", principal=principal)
    assert (await inferring.captures.usage(within, first=then)).total.calls == 1


def test_days_the_wrong_way_round_or_too_many_are_refused() -> None:
    day = date(2026, 11, 22)
    with pytest.raises(Invalid, match="from: must not be later than to"):
        usage.days(day, day - timedelta(days=1))
    with pytest.raises(Invalid, match="from: must be within 366 days"):
        usage.days(day - timedelta(days=366), day)
    assert usage.days(day - timedelta(days=365), day)[1] == day
    assert usage.days(None, date(1, 1, 2)) == (date(1, 1, 1), date(1, 1, 2))


async def test_the_totals_are_read_by_an_index(inferring: Services, model: LlmServer, claude: Caller, say: Say) -> None:
    await say("I like figs.")
    async with inferring.database.transaction() as tx:
        await tx.execute(text("SET LOCAL enable_seqscan = off"))
        asked = "EXPLAIN SELECT * FROM capture_usage WHERE user_id = :u AND day BETWEEN '2026-01-01' AND '2026-12-31'"
        plan = "\n".join((await tx.scalars(text(asked), {"u": claude.user_id})).all())
    assert "idx_capture_usage_user_day" in plan


async def test_usage_over_rest_and_at_the_command_line(
    inferring_api: httpx.AsyncClient, model: LlmServer, new_user: str
) -> None:
    model.script = does(FIG)
    await inferring_api.post("/api/v1/memories", json={"user_id": new_user, "text": "I like figs.", "app": "claude"})
    body = (await inferring_api.get(USAGE, params={"user_id": new_user})).json()
    assert (body["to"], body["waiting"]) == (today().isoformat(), 0)
    assert body["from"] == (today() - timedelta(days=29)).isoformat()
    [row] = body["days"]
    assert (row["day"], row["app_name"], row["calls"], row["done"]) == (today().isoformat(), "claude", 1, 1)
    assert body["total"] == {name: row[name] for name in body["total"]}
    for params, field in (
        ({"from": "yesterday"}, "from"),
        ({"from": "2020-01-01"}, "from"),
        ({"to": "2026-13-01"}, "to"),
    ):
        answer = await inferring_api.get(USAGE, params={"user_id": new_user, **params})
        assert (answer.status_code, field in answer.json()["detail"].split(":")[0]) == (422, True), answer.text

    async def om(*more: str) -> Any:
        command = ("usage", "--url", str(inferring_api.base_url), "--user", new_user, *more)
        return await asyncio.to_thread(warm.run, *command)

    shown = json.loads((await om("--json")).stdout)
    assert (len(shown.pop("notes")), shown) == (1, body)
    plain = await om("--from", today().isoformat())
    assert plain.stdout.split("\t")[:3] == [today().isoformat(), "claude", "1"], plain.stderr
    assert "calls 1, prompt tokens" in plain.stdout
    assert "from: " in (await om("--from", "2020-01-01")).stderr


async def test_prometheus_reads_what_attempts_came_to_and_took(
    inferring_api: httpx.AsyncClient, model: LlmServer, claude: Caller, say: Say, done: Done, inferring: Services
) -> None:
    async def scraped() -> dict[tuple[str, ...], float]:
        answer = (await inferring_api.get("/metrics")).text
        samples = [each for family in text_string_to_metric_families(answer) for each in family.samples]
        return {(each.name, *each.labels.values()): each.value for each in samples}

    before = await scraped()
    model.script = lambda _: Answer("overloaded", status=500)
    outcome = await say("I like figs, said once more.")
    waiting = await scraped()
    assert waiting["openmemory_captures_waiting",] >= 1
    assert waiting["openmemory_captures_oldest_age_seconds",] > 0
    assert waiting["openmemory_captures_failed",] >= 0
    model.script = does(FIG)

    await done(outcome)
    view = await inferring.captures.get(claude, outcome.capture_id)
    after = await scraped()

    def grown(*name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert grown("openmemory_capture_attempts_total", "done") == 1
    assert grown("openmemory_capture_attempts_total", "unavailable") == view.attempts - 1
    assert grown("openmemory_llm_calls_total") == view.calls
    assert grown("openmemory_llm_tokens_total", "prompt") == view.prompt_tokens
    assert grown("openmemory_llm_tokens_total", "completion") == view.completion_tokens
    assert grown("openmemory_llm_seconds_total") == pytest.approx(view.seconds)
