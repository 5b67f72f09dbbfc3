"""What becomes of a text when the language model does not: it is kept, told of, and tried again."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import func, select, text

from openmemory.capture import queue, worker
from openmemory.capture.models import Capture
from openmemory.capture.schemas import CaptureCreate
from openmemory.capture.status import Status
from openmemory.identity.caller import Caller
from openmemory.identity.principal import LOCAL
from openmemory.memories.schemas import Event, MemoryCreate, MemoryQuery
from openmemory.saved_settings.schemas import OpenMemoryConfig
from openmemory.services import Services
from tests.capture.conftest import Done, Say, SetPauses, TakeOver, does, operation
from tests.llm.server import Answer, LlmServer, says

FIG = operation("ADD", text="Alice likes figs.")
pytestmark = pytest.mark.usefixtures("soon")


async def texts(services: Services, caller: Caller) -> list[str]:
    return [record.content for record in (await services.memories.list(caller, MemoryQuery(size=100))).items]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "words", "calls"),
    [
        (Answer("I would rather not."), "answered what cannot be used: it holds no JSON", 2),
        (Answer(""), "it is empty", 2),
        (Answer(None, refusal="No."), "you refused", 2),
        (Answer('{"operations": [{"op": "ADD", "text": "Al', finish="length"), "cut off", 2),
        (Answer("overloaded", status=500), "overloaded", 1),
        (Answer("slow down", status=429, headers={"retry-after": "0"}), "slow down", 1),
        (Answer(raw=b"<html>"), "openai/m", 1),
    ],
)
async def test_a_text_is_kept_and_tried_again_until_it_succeeds(
    inferring: Services,
    model: LlmServer,
    claude: Caller,
    say: Say,
    done: Done,
    answer: Answer,
    words: str,
    calls: int,
    pauses: SetPauses,
) -> None:
    pauses(first=600, last=600)
    model.script = lambda _: answer
    outcome = await say("I like figs, as you know.")
    assert outcome.results == []
    assert (outcome.status, len(model.asked)) == (Status.PENDING, calls)
    assert words in str(outcome.error)
    model.script = does(FIG)

    async with inferring.database.transaction() as tx:
        pause_over = "UPDATE captures SET due_at = now() WHERE id = :id AND due_at > now() + interval '5 minutes'"
        await tx.execute(text(pause_over), {"id": outcome.capture_id})
    await done(outcome)
    assert await texts(inferring, claude) == ["Alice likes figs."]
    view = await inferring.captures.get(claude, outcome.capture_id)
    assert view.attempts >= 2
    assert view.error is None


async def test_one_repair_is_enough(
    inferring: Services, model: LlmServer, claude: Caller, say: Say, caplog: Any
) -> None:
    secret = "ghp_" + "a1B2c3D4" * 5

    def answer(asked: dict[str, Any]) -> Answer:
        if len(asked["messages"]) == 2:
            return Answer(f"Sure! The token {secret} is noted. " + "x" * 50_000)
        assert "holds no JSON object" in asked["messages"][3]["content"]
        return says({"operations": [FIG]})

    model.script = answer
    outcome = await say("I like figs.")
    assert outcome.status is Status.DONE
    assert [one.memory for one in outcome.results] == ["Alice likes figs."]
    view = await inferring.captures.get(claude, outcome.capture_id)
    assert view.calls == 2
    # The raw answer is in the log, within bounds and without its secret.
    [line] = [record.getMessage() for record in caplog.records if "an answer that cannot be used" in record.message]
    assert "Sure! The token [redacted" in line
    assert secret not in line
    assert len(line) < 3_000


async def test_a_model_that_never_makes_sense_is_given_up_and_asked_again_when_somebody_says_so(
    inferring: Services, model: LlmServer, claude: Caller, say: Say, done: Done
) -> None:
    model.script = lambda _: Answer("nonsense")
    outcome = await say("I like figs.")
    await done(outcome, Status.FAILED)
    assert len(model.asked) == 2 * worker.MAX_BAD_ANSWERS
    view = await inferring.captures.get(claude, outcome.capture_id)
    assert view.input == {"text": "I like figs."}
    assert [(one.event, one.memory) for one in view.results] == [(Event.ADD, "I like figs.")]
    assert view.next_attempt_at is not None
    model.script = does(FIG)
    again = await say("I like figs.")
    assert again.capture_id == outcome.capture_id

    await done(outcome)


@pytest.mark.slow
async def test_a_model_that_is_away_is_not_asked_by_everybody(
    inferring: Services, model: LlmServer, claude: Caller, eventually: Any, pauses: SetPauses
) -> None:
    pauses(away=60.0, max_away=60.0)
    model.script = lambda _: Answer("away", status=503)
    callers = [await inferring.directory.caller(f"{claude.user}-{number}", "claude") for number in range(20)]
    outcomes = await asyncio.gather(
        *(inferring.captures.add(c, CaptureCreate(MemoryCreate(text="I like figs."), wait=True)) for c in callers)
    )
    # One may be read while its attempt ends.
    assert {outcome.status for outcome in outcomes} <= {Status.PENDING, Status.WORKING}
    assert len(model.asked) <= inferring.settings.llm.concurrency
    model.script = does(FIG)
    inferring.capturing._away_until = 0.0
    inferring.capturing._wake.set()

    async def done() -> bool:
        found = [await inferring.captures.outcome(c, o.capture_id) for c, o in zip(callers, outcomes, strict=True)]
        return all(one.status is Status.DONE for one in found)

    await eventually(done)


async def test_whoever_does_not_wait_longer_is_told_that_it_goes_on(
    inferring: Services, model: LlmServer, claude: Caller, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.script = lambda _: says({"operations": [FIG]}, delay=1.0)
    captures = inferring.captures
    capture = inferring.settings.capture.model_copy(update={"wait": 0.2})
    monkeypatch.setattr(captures, "_settings", inferring.settings.model_copy(update={"capture": capture}))
    outcome = await captures.add(claude, CaptureCreate(MemoryCreate(text="I like figs."), wait=True))
    assert outcome.status is Status.WORKING

    async def done() -> bool:
        return (await captures.outcome(claude, outcome.capture_id)).status is Status.DONE

    await eventually(done)
    assert await texts(inferring, claude) == ["Alice likes figs."]


@pytest.mark.timeout(300)
@pytest.mark.slow
async def test_two_hundred_at_once_are_all_done_by_few_questions_at_a_time(
    inferring: Services, model: LlmServer, claude: Caller, eventually: Any
) -> None:
    def answer(asked: dict[str, Any]) -> Answer:
        [said] = re.findall(r"Remember number (\d+)", asked["messages"][1]["content"].rpartition("<said-")[2])
        return says({"operations": [operation("ADD", text=f"Fact {said}")]}, delay=0.005)

    model.script = answer
    callers = [await inferring.directory.caller(f"{claude.user}-{number}", "claude") for number in range(10)]
    outcomes = await asyncio.gather(
        *(
            inferring.captures.add(callers[n % 10], CaptureCreate(MemoryCreate(text=f"Remember number {n}"), wait=True))
            for n in range(200)
        )
    )

    ids = [outcome.capture_id for outcome in outcomes]

    async def done() -> bool:
        async with inferring.database.statement() as tx:
            finished = select(func.count()).where(Capture.id.in_(ids), Capture.status == Status.DONE)
            return await tx.scalar(finished) == 200

    await eventually(done, within=120)
    assert len({outcome.capture_id for outcome in outcomes}) == 200
    found = [each for caller in callers for each in await texts(inferring, caller)]
    assert sorted(found) == sorted(f"Fact {number}" for number in range(200))
    assert len(model.asked) == 200
    assert model.most_at_once <= inferring.settings.llm.concurrency


async def test_those_of_one_user_are_worked_on_in_their_order(
    inferring: Services, model: LlmServer, claude: Caller, eventually: Any
) -> None:
    order: list[str] = []
    at_once = Counter[str]()

    def answer(asked: dict[str, Any]) -> Answer:
        order.append(asked["messages"][1]["content"])
        at_once["most"] = max(at_once["most"], model._at_once)
        return says({"operations": []}, delay=0.03)

    model.script = answer
    for number in range(6):
        new = CaptureCreate(MemoryCreate(text=f"Step number {number}."), wait=False)
        await inferring.captures.add(claude, new)

    async def done() -> bool:
        return (await inferring.captures.list(claude, statuses=[Status.DONE])).total == 6

    await eventually(done)
    assert [next(n for n in range(6) if f"number {n}." in asked) for asked in order] == list(range(6))
    assert at_once["most"] == 1


async def test_what_another_process_has_taken_over_is_not_done_twice(
    inferring: Services, model: LlmServer, claude: Caller, done: Done, take_over: TakeOver
) -> None:
    """A frozen process wakes up after its lease: the holder is another one by then."""
    taken = []

    def answer(_: dict[str, Any]) -> Answer:
        if not taken:
            taken.append(True)
            take_over(1.0)
        return says({"operations": [FIG]})

    model.script = answer
    outcome = await inferring.captures.add(claude, CaptureCreate(MemoryCreate(text="I like figs."), wait=False))

    await done(outcome)
    assert (await inferring.captures.get(claude, outcome.capture_id)).attempts == 2
    assert await texts(inferring, claude) == ["Alice likes figs."]
    async with inferring.database.statement() as tx:
        added = "SELECT count(*) FROM audit_events WHERE user_id = :user AND event = 'memory.add'"
        assert await tx.scalar(text(added), {"user": claude.user_id}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("status", ["done", "pending"])
async def test_an_attempt_that_could_not_be_recorded_is_made_again_long_before_its_lease_ends(
    inferring: Services, model: LlmServer, claude: Caller, done: Done, status: str
) -> None:
    """Deadlocks, more than one transaction is tried again after."""
    function = f"""
        CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.holder IS NULL AND OLD.holder IS NOT NULL AND OLD.attempts = 1 AND NEW.status = '{status}'
                AND nextval('faults') <= 4 THEN
                RAISE EXCEPTION 'deadlock detected' USING ERRCODE = 'deadlock_detected';
            END IF;
            RETURN NEW;
        END $$"""
    trigger = "CREATE TRIGGER fault BEFORE UPDATE ON captures FOR EACH ROW EXECUTE FUNCTION fault()"
    model.script = lambda _: says({"operations": [FIG]})
    if status == "pending":
        model.script = lambda _: Answer("overloaded", status=500) if len(model.asked) == 1 else says({"operations": []})
    async with inferring.database.transaction() as tx:
        for statement in ("CREATE SEQUENCE faults", function, trigger):
            await tx.execute(text(statement))
    try:
        outcome = await inferring.captures.add(claude, CaptureCreate(MemoryCreate(text="I like figs."), wait=False))
        await done(outcome)
        async with inferring.database.statement() as tx:
            assert await tx.scalar(text("SELECT last_value FROM faults")) >= 4
    finally:
        async with inferring.database.transaction() as tx:
            await tx.execute(text("DROP TRIGGER fault ON captures"))
            await tx.execute(text("DROP FUNCTION fault"))
            await tx.execute(text("DROP SEQUENCE faults"))
    assert (await inferring.captures.get(claude, outcome.capture_id)).attempts == 2


async def test_what_an_administrator_asks_for_besides_reaches_the_model_at_once(
    inferring: Services, model: LlmServer, say: Say
) -> None:
    await inferring.configuration.save_instructions(LOCAL, OpenMemoryConfig(custom_instructions="Keep recipes."))
    await say("I like figs.")
    assert model.asked[-1]["messages"][0]["content"].endswith("Keep recipes.")
    await inferring.configuration.reset(LOCAL)
    await say("I like plums.")
    assert "Keep recipes." not in model.asked[-1]["messages"][0]["content"]


async def test_old_captures_are_forgotten_and_those_that_wait_never(
    inferring: Services, model: LlmServer, claude: Caller, say: Say
) -> None:
    done = await say("I like figs.")
    async with inferring.database.transaction() as tx:
        old = "UPDATE captures SET {} = now() - interval '40 days' WHERE id = :id"
        for column in ("created_at", "finished_at"):
            await tx.execute(text(old.format(column)), {"id": done.capture_id})
        waits = (
            "INSERT INTO captures (user_id, app_id, namespace, input, hash, created_at, due_at) VALUES"
            " (:user, :app, 'default', '{}', 'x', now() - interval '400 days', now() + interval '1 day') RETURNING id"
        )
        waiting = await tx.scalar(text(waits), {"user": claude.user_id, "app": claude.app_id})
        await queue.prune(tx, days=30)
        left = set((await tx.scalars(text("SELECT id FROM captures WHERE user_id = :u"), {"u": claude.user_id})).all())
    assert left == {waiting}


async def test_while_the_model_is_away_nobody_waits_for_it(
    inferring: Services, model: LlmServer, say: Say, pauses: SetPauses
) -> None:
    pauses(away=50, max_away=50)
    model.script = lambda _: Answer("overloaded", status=500)
    await say("I like figs, as they know by now.")
    asked = len(model.asked)
    async with asyncio.timeout(20):
        outcome = await say("I like dates, which they do not know yet.")
    assert outcome.status is Status.PENDING
    assert len(model.asked) == asked
