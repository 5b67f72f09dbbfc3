"""Archive policies: OpenMemory's table, whose rows it never looked at, and the job that carries them out."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy import text

from openmemory.errors import Forbidden
from openmemory.index.sync.reconcile import alone
from openmemory.jobs import schedule
from openmemory.memories.lifecycle import archiving
from openmemory.memories.lifecycle.schemas import PolicyCreate
from openmemory.memories.schemas import MemoryUpdate
from openmemory.services import Services
from tests.contract.openmemory.conftest import Remember

POLICIES = "/api/v1/archive-policies"


@pytest.fixture
def make(api: httpx.AsyncClient, new_user: str) -> Any:
    """Makes a policy of the test's own user, or shows how that is refused."""

    async def post(*, status: int = 201, user: str = new_user, **policy: Any) -> dict[str, Any]:
        body = {"user_id": user, "days_to_archive": 30} | policy
        answer = await api.post(POLICIES, json=body)
        assert answer.status_code == status, answer.text
        made: dict[str, Any] = answer.json()
        return made

    return post


async def age(services: Services, row: dict[str, Any], created: float, updated: float | None = None) -> None:
    """Let a memory be so many days old, and its last change."""
    async with services.database.statement() as tx:
        await tx.execute(
            text(
                "UPDATE memories SET created_at = now() - make_interval(secs => :c * 86400),"
                " updated_at = now() - make_interval(secs => :u * 86400) WHERE id = CAST(:id AS uuid)"
            ),
            {"c": created, "u": created if updated is None else updated, "id": row["id"]},
        )


async def states(services: Services, *rows: dict[str, Any]) -> list[str]:
    async with services.database.statement() as tx:
        found = await tx.execute(
            text("SELECT id, state FROM memories WHERE id = ANY(CAST(:ids AS uuid[]))"),
            {"ids": [r["id"] for r in rows]},
        )
        known = {str(row.id): row.state for row in found}
    return [known[row["id"]] for row in rows]


async def test_the_table_has_openmemorys_columns_and_index(services: Services) -> None:
    async with services.database.statement() as tx:
        columns = set(
            await tx.scalars(
                text("SELECT column_name FROM information_schema.columns WHERE table_name = 'archive_policies'")
            )
        )
        index = await tx.scalar(text("SELECT indexdef FROM pg_indexes WHERE indexname = 'idx_policy_criteria'"))
    assert {"id", "criteria_type", "criteria_id", "days_to_archive", "created_at"} <= columns
    assert index.endswith("(criteria_type, criteria_id)")


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_policy_is_made_listed_and_ended(
    api: httpx.AsyncClient, remember: Remember, new_user: str, slash: str
) -> None:
    await remember("The first thing.")
    body = {"user_id": new_user, "criteria_type": "namespace", "criteria_name": "webshop", "days_to_archive": 90}
    made = (await api.post(POLICIES + slash, json=body)).json()
    assert made.keys() == {"id", "criteria_type", "criteria_id", "criteria_name", "days_to_archive", "created_at"}
    assert (made["criteria_type"], made["criteria_id"], made["criteria_name"]) == ("namespace", None, "webshop")
    listed = await api.get(POLICIES + slash, params={"user_id": new_user})
    assert listed.json() == {"policies": [made]}
    ended = await api.delete(f"{POLICIES}/{made['id']}{slash}", params={"user_id": new_user})
    assert ended.json() == {"message": "Successfully deleted the archive policy"}
    again = await api.delete(f"{POLICIES}/{made['id']}{slash}", params={"user_id": new_user})
    assert (again.status_code, again.json()["error"]) == (404, "policy_not_found")


async def test_one_about_the_same_gets_the_new_number_of_days(
    make: Any, remember: Remember, api: httpx.AsyncClient, new_user: str
) -> None:
    row = await remember("A thing.", app="cursor", categories=["travel"])
    for policy in (
        {"criteria_type": "user"},
        {"criteria_type": "app", "criteria_name": "cursor"},
        {"criteria_type": "category", "criteria_name": "travel"},
        {"criteria_type": "namespace", "criteria_name": "webshop"},
    ):
        first = await make(**policy, days_to_archive=10)
        second = await make(**policy, days_to_archive=20)
        assert second == first | {"days_to_archive": 20}
    by_id = await make(criteria_type="app", criteria_id=row["app_id"], days_to_archive=5)
    listed = (await api.get(POLICIES, params={"user_id": new_user})).json()["policies"]
    assert [policy["criteria_name"] for policy in listed] == [new_user, "cursor", "travel", "webshop"]
    assert by_id in listed


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"criteria_type": "mood", "criteria_name": "x"}, "criteria_type: "),
        ({"criteria_type": "user", "days_to_archive": 0}, "days_to_archive: "),
        ({"criteria_type": "user", "days_to_archive": -1}, "days_to_archive: "),
        ({"criteria_type": "user", "days_to_archive": 36_501}, "days_to_archive: "),
        ({"criteria_type": "user", "days_to_archive": "many"}, "days_to_archive: "),
        ({"criteria_type": "user", "criteria_name": "x"}, "criteria_name: must be left out"),
        ({"criteria_type": "user", "criteria_id": str(uuid4())}, "criteria_id: must be left out"),
        ({"criteria_type": "namespace"}, "criteria_name: must name the namespace"),
        ({"criteria_type": "namespace", "criteria_id": str(uuid4())}, "criteria_name: must name the namespace"),
        ({"criteria_type": "namespace", "criteria_name": "   "}, "criteria_name: "),
        ({"criteria_type": "namespace", "criteria_name": "a\x00b"}, "criteria_name: "),
        ({"criteria_type": "app"}, "criteria_id: must tell the app, or criteria_name"),
        ({"criteria_type": "app", "criteria_name": "x", "criteria_id": str(uuid4())}, "not both"),
        ({"criteria_type": "category"}, "criteria_id: must tell the category, or criteria_name"),
        ({"criteria_type": "user", "colour": "red"}, "colour: is not a known field"),
    ],
)
async def test_what_cannot_be_used_is_refused_by_its_field(
    make: Any, remember: Remember, policy: dict[str, Any], words: str
) -> None:
    await remember("So that there is a user.")
    assert words in (await make(status=422, **policy))["detail"]


@pytest.mark.parametrize("criteria_type", ["app", "category"])
async def test_what_is_not_the_users_own_is_not_found(
    make: Any, remember: Remember, services: Services, criteria_type: str
) -> None:
    theirs = await remember("Somebody else's.", user=f"other-{uuid4().hex}", categories=["theirs"])
    await remember("Mine.")
    async with services.database.statement() as tx:
        category = await tx.scalar(
            text("SELECT category_id FROM memory_categories WHERE memory_id = CAST(:id AS uuid)"), {"id": theirs["id"]}
        )
    id_ = theirs["app_id"] if criteria_type == "app" else str(category or uuid4())
    answer = await make(status=404, criteria_type=criteria_type, criteria_id=id_)
    assert answer["error"] == f"{criteria_type}_not_found"
    assert (await make(status=404, user="nobody-at-all", criteria_type="user"))["error"] == "user_not_found"


async def test_a_policy_names_a_category_before_a_memory_has_it(
    make: Any, remember: Remember, services: Services
) -> None:
    await remember("So that there is a user.")
    name = f"errands-{uuid4().hex}"
    policy = await make(criteria_type="category", criteria_name=name)
    assert policy["criteria_name"] == name
    old = await remember("Buy milk.", categories=[name])
    await age(services, old, created=40)
    await services.archiving.run()
    assert await states(services, old) == ["archived"]


async def test_nobody_else_learns_of_a_category_that_only_a_policy_names(
    make: Any, remember: Remember, api: httpx.AsyncClient, new_user: str
) -> None:
    await remember("So that there is a user.")
    name = f"secretly-{uuid4().hex}"
    policy = await make(criteria_type="category", criteria_name=name)
    other = f"other-{uuid4().hex}"
    await remember("Somebody else's.", user=other)
    for user in (other, new_user):
        listed = await api.get("/api/v1/memories/categories", params={"user_id": user})
        assert name not in listed.text
    answer = await make(status=404, user=other, criteria_type="category", criteria_id=policy["criteria_id"])
    assert answer["error"] == "category_not_found"


async def test_a_policy_names_no_category_that_no_memory_may_have(
    make: Any, remember: Remember, services: Services
) -> None:
    await remember("Mine.")
    secret = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
    assert secret not in json.dumps(await make(status=422, criteria_type="category", criteria_name=secret))
    async with services.database.statement() as tx:
        count = await tx.scalar(text("SELECT count(*) FROM categories WHERE name = :name"), {"name": secret})
    assert count == 0


# The job.


async def test_what_has_not_changed_for_long_is_archived_with_all_that_belongs_to_it(
    api: httpx.AsyncClient, make: Any, remember: Remember, services: Services, new_user: str
) -> None:
    old, new = await remember("An old thing."), await remember("A new thing.")
    await age(services, old, 31)
    await age(services, new, 29)
    policy = await make(criteria_type="user")
    assert await services.archiving.run() >= 1
    assert await states(services, old, new) == ["archived", "active"]
    row = (await api.get(f"/api/v1/memories/{old['id']}", params={"user_id": new_user})).json()
    assert row["state"] == "archived"
    history = (await api.get(f"/api/v1/memories/{old['id']}/history", params={"user_id": new_user})).json()["states"]
    assert [(one["old_state"], one["new_state"]) for one in history] == [(None, "active"), ("active", "archived")]
    logs = (await api.get(f"/api/v1/memories/{old['id']}/access-log", params={"user_id": new_user})).json()["logs"]
    archived = next(log for log in logs if log["access_type"] == "archive")
    assert archived["metadata_"] == {"policy": policy["id"], "days_to_archive": 30}
    events = (await api.get("/api/v1/audit", params={"user_id": new_user})).json()["events"]
    [event] = [event for event in events if event["event"] == "memory.archive"]
    assert (event["objects"], event["principal"], event["door"]) == ([old["id"]], f"policy:{policy['id']}", "job")
    async with services.database.statement() as tx:
        at = await tx.scalar(text("SELECT archived_at FROM memories WHERE id = CAST(:id AS uuid)"), {"id": old["id"]})
    assert at is not None
    await services.outbox_delivery.drain()
    entries = {entry.id async for page in services.index.entries() for entry in page}
    assert UUID(old["id"]) not in entries


@pytest.mark.slow
@pytest.mark.parametrize(
    ("criterion", "hit"),
    [
        ({"criteria_type": "app", "criteria_name": "cursor"}, "cursor"),
        ({"criteria_type": "namespace", "criteria_name": "webshop"}, "webshop"),
        ({"criteria_type": "category", "criteria_name": "travel"}, "travel"),
        ({"criteria_type": "user"}, "everything"),
    ],
)
async def test_a_policy_concerns_what_it_names_and_one_user(
    make: Any, remember: Remember, services: Services, new_user: str, criterion: dict[str, Any], hit: str
) -> None:
    rows = {
        "cursor": await remember("Of cursor.", app="cursor"),
        "webshop": await remember("Of the webshop.", namespace="webshop"),
        "travel": await remember("Of a journey."),
        "nothing": await remember("Of nothing."),
    }
    theirs = await remember("Of the webshop.", user=f"other-{uuid4().hex}", app="cursor", namespace="webshop")
    owner = await services.directory.caller(new_user, None, owner=True)
    await services.memories.update(owner, UUID(rows["travel"]["id"]), MemoryUpdate(categories=["travel"]))
    for row in (*rows.values(), theirs):
        await age(services, row, 400)
    await make(**criterion)
    await services.archiving.run()
    archived = {name for name, row in rows.items() if await states(services, row) == ["archived"]}
    assert archived == (set(rows) if hit == "everything" else {hit})
    assert await states(services, theirs) == ["active"]


@pytest.mark.parametrize(
    ("created", "updated", "state"), [(31, 31, "archived"), (31, 29, "active"), (400, 0, "active"), (29, 400, "active")]
)
async def test_the_later_of_both_times_counts(
    make: Any, remember: Remember, services: Services, created: float, updated: float, state: str
) -> None:
    row = await remember("A thing.")
    await age(services, row, created, updated)
    await make(criteria_type="user")
    await services.archiving.run()
    assert await states(services, row) == [state]


async def test_what_its_user_brings_back_has_all_its_time_again(
    api: httpx.AsyncClient, make: Any, remember: Remember, services: Services, new_user: str
) -> None:
    row = await remember("A thing.")
    await age(services, row, 400)
    await make(criteria_type="user")
    await services.archiving.run()
    assert await states(services, row) == ["archived"]
    body = {"memory_ids": [row["id"]], "all_for_app": True, "state": "active", "user_id": new_user}
    assert (await api.post("/api/v1/memories/actions/pause", json=body)).status_code == 200
    await services.archiving.run()
    assert await states(services, row) == ["active"]
    await age(services, row, 430, 31)
    await services.archiving.run()
    assert await states(services, row) == ["archived"]


@pytest.mark.parametrize("state", ["paused", "deleted"])
async def test_what_was_put_away_already_stays_as_it_is(
    make: Any, remember: Remember, services: Services, state: str
) -> None:
    row = await remember("A thing.")
    async with services.database.statement() as tx:
        values = {"id": row["id"], "state": state}
        await tx.execute(
            text("UPDATE memories SET state = CAST(:state AS memory_state) WHERE id = CAST(:id AS uuid)"), values
        )
    await age(services, row, 400)
    await make(criteria_type="user")
    await services.archiving.run()
    assert await states(services, row) == [state]


async def test_a_policy_that_was_ended_archives_nothing_more(
    api: httpx.AsyncClient, make: Any, remember: Remember, services: Services, new_user: str
) -> None:
    row = await remember("A thing.")
    await age(services, row, 400)
    policy = await make(criteria_type="user")
    await api.delete(f"{POLICIES}/{policy['id']}", params={"user_id": new_user})
    await services.archiving.run()
    assert await states(services, row) == ["active"]


async def test_many_are_archived_batch_by_batch(
    make: Any, remember: Remember, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [await remember(f"Thing number {number}.") for number in range(7)]
    for row in rows:
        await age(services, row, 400)
    await make(criteria_type="user")
    monkeypatch.setattr(archiving, "BATCH", 3)
    assert await services.archiving.run() >= 7
    assert set(await states(services, *rows)) == {"archived"}
    async with services.database.statement() as tx:
        counts = list(
            await tx.scalars(
                text(
                    "SELECT count FROM audit_events WHERE event = 'memory.archive' AND door = 'job' AND user_id ="
                    " (SELECT user_id FROM memories WHERE id = CAST(:id AS uuid)) ORDER BY id"
                ),
                {"id": rows[0]["id"]},
            )
        )
    assert counts == [3, 3, 1]


async def test_one_replica_archives_at_a_time(make: Any, remember: Remember, services: Services) -> None:
    row = await remember("A thing.")
    await age(services, row, 400)
    await make(criteria_type="user")
    async with alone(services.database, archiving.LOCK):
        assert await services.archiving.run() == 0
    assert await states(services, row) == ["active"]
    await services.archiving.run()
    assert await states(services, row) == ["archived"]


async def test_an_app_may_not_make_policies(services: Services, new_user: str) -> None:
    app = await services.directory.caller(new_user, "claude")
    for call in (
        services.policies.list(app),
        services.policies.create(app, PolicyCreate(criteria_type="user", days_to_archive=1)),
        services.policies.remove(app, uuid4()),
    ):
        with pytest.raises(Forbidden):
            await call


async def test_the_job_runs_by_itself(
    make: Any, remember: Remember, services: Services, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await remember("A thing.")
    await age(services, row, 400)
    await make(criteria_type="user")
    monkeypatch.setattr(schedule, "FIRST_LIFECYCLE", 0.1)

    async def archived() -> bool:
        return await states(services, row) == ["archived"]

    async with schedule.scheduled(services):
        await eventually(archived)
