"""Archive policies that come in: whose they become, and which are left out."""

from __future__ import annotations

from typing import Any

import httpx

from tests.backup.archives import Upstream, bring_in, export, new_id, send, tables_of

POLICIES = "/api/v1/archive-policies"


def with_policies(*policies: dict[str, Any]) -> Upstream:
    archive = Upstream()
    archive.memory("something")
    given = {"criteria_id": None, "days_to_archive": 30, "created_at": "2025-05-05T10:00:00+00:00"}
    archive.tables["archive_policies"] = [{"id": new_id()} | given | policy for policy in policies]
    return archive


async def in_force(api: httpx.AsyncClient, user: str) -> list[tuple[str, str, int]]:
    found = (await api.get(POLICIES, params={"user_id": user})).json()["policies"]
    return sorted((each["criteria_type"], each["criteria_name"], each["days_to_archive"]) for each in found)


async def test_policies_become_the_users_and_a_second_import_adds_none(api: httpx.AsyncClient, user: str) -> None:
    archive = with_policies()
    app, category = archive.app("claude"), archive.category(f"work of {user}")
    archive.tables["archive_policies"] = with_policies(
        {"criteria_type": "user", "criteria_id": archive.user_id, "action": "archive"},
        {"criteria_type": "app", "criteria_id": app},
        {"criteria_type": "category", "criteria_id": category},
        {"criteria_type": "namespace", "criteria_name": "webshop"},
    ).tables["archive_policies"]  # fmt: skip
    report = await bring_in(api, user, archive.zip())
    assert (report["policies"], report["left_out"]) == (4, [])
    expected = [
        ("app", "claude", 30),
        ("category", f"work of {user}", 30),
        ("namespace", "webshop", 30),
        ("user", user, 30),
    ]
    assert await in_force(api, user) == expected
    again = await bring_in(api, user, archive.zip())
    assert (again["policies"], again["left_out"]) == (0, [])
    assert await in_force(api, user) == expected


async def test_one_by_which_memories_expire_stands_beside_one_that_archives(api: httpx.AsyncClient, user: str) -> None:
    archive = with_policies()
    about = {"criteria_type": "user", "criteria_id": archive.user_id}
    archive.tables["archive_policies"] = with_policies(
        about, about | {"action": "expire", "days_to_archive": 90}, about | {"action": "expire", "days_to_archive": 5}
    ).tables["archive_policies"]
    assert (await bring_in(api, user, archive.zip()))["policies"] == 2
    found = (await api.get(POLICIES, params={"user_id": user})).json()["policies"]
    assert sorted((each["days_to_archive"] or 0, each.get("days_to_expire")) for each in found) == [
        (0, 90), (30, None),
    ]  # fmt: skip
    exported = tables_of(await export(api, user))["archive_policies"]
    assert {(each["action"], each["days_to_archive"]) for each in exported} == {("archive", 30), ("expire", 90)}


async def test_what_the_user_has_said_stays(api: httpx.AsyncClient, user: str) -> None:
    mine = {"user_id": user, "criteria_type": "namespace", "criteria_name": "webshop", "days_to_archive": 7}
    assert (await api.post(POLICIES, json=mine)).status_code == 201
    archive = with_policies({"criteria_type": "namespace", "criteria_name": "webshop"})
    assert (await bring_in(api, user, archive.zip()))["policies"] == 0
    assert await in_force(api, user) == [("namespace", "webshop", 7)]


async def test_what_cannot_be_one_is_left_out_and_told(api: httpx.AsyncClient, user: str) -> None:
    archive = with_policies(
        {"criteria_type": "moon"},
        {"criteria_type": "user", "action": "burn"},
        {"criteria_type": "user", "criteria_id": new_id()},
        {"criteria_type": "app"},
        {"criteria_type": "app", "criteria_id": new_id()},
        {"criteria_type": "namespace", "criteria_name": " "},
        {"criteria_type": "user", "days_to_archive": 0},
        {"criteria_type": "user", "days_to_archive": 36_501},
    )
    report = await bring_in(api, user, archive.zip())
    assert report["policies"] == 0
    assert {(each["kind"], each["id"]) for each in report["left_out"]} == {
        ("policy", each["id"]) for each in archive.tables["archive_policies"]
    }
    assert sorted(each["reason"] for each in report["left_out"]) == [
        "action: must be one of archive, expire",
        "criteria_id: is missing; it must be the id of the app",
        "criteria_id: must be the id of the archive's user",
        "criteria_id: no app of the archive has this id",
        "criteria_name: must not be empty or blank",
        "criteria_type: must be one of user, app, category, namespace",
        "days_to_archive: must be from 1 to 36,500, not 0",
        "days_to_archive: must be from 1 to 36,500, not 36,501",
    ]


async def test_no_more_come_in_than_a_user_may_have(api: httpx.AsyncClient, user: str) -> None:
    archive = with_policies(*({"criteria_type": "namespace", "criteria_name": f"n{number}"} for number in range(203)))
    report = await bring_in(api, user, archive.zip())
    assert (report["policies"], len(report["left_out"])) == (200, 3)
    assert len(tables_of(await export(api, user))["archive_policies"]) == 200
    assert (await bring_in(api, user, archive.zip()))["policies"] == 0


async def test_two_of_one_id_are_no_archive(api: httpx.AsyncClient, user: str) -> None:
    same = {"id": new_id(), "criteria_type": "user"}
    answer = await send(api, user, with_policies(same, same).zip())
    assert answer.status_code == 400
    assert "archive_policies[1].id" in answer.text
