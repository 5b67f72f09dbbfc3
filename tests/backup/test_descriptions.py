"""What a user says of categories, in archives: whose words they become, what stays, and what is left out."""

from __future__ import annotations

from typing import Any

import httpx
from sqlalchemy import text

from openmemory.services import Services
from tests.backup.archives import Upstream, bring_in, export, send, tables_of

CATEGORIES = "/api/v1/categories"
AT = {"created_at": "2025-05-01T10:00:00+00:00", "updated_at": "2025-06-01T10:00:00+00:00"}


def with_own(*own: tuple[str, Any]) -> Upstream:
    archive = Upstream()
    archive.memory("something")
    for name, said in own:
        archive.category(name, description=None, own=said)
    return archive


async def said_by(api: httpx.AsyncClient, user: str) -> dict[str, str]:
    found = (await api.get(CATEGORIES, params={"user_id": user})).json()["categories"]
    return {each["name"]: each["description"] for each in found if each["described_by"] == "user"}


async def ordered(services: Services, user: str) -> bool:
    query = (
        "SELECT count(*) FROM reclassification_requests AS r JOIN users AS u ON u.id = r.user_id WHERE u.user_id = :u"
    )
    async with services.database.statement() as tx:
        return bool(await tx.scalar(text(query), {"u": user}))


async def test_what_is_said_becomes_the_users_words_and_a_second_import_adds_none(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    archive = with_own((f"bees of {user}", AT | {"description": "Hives."}), (f"plain of {user}", None))
    report = await bring_in(api, user, archive.zip())
    assert (report["descriptions"], report["left_out"]) == (1, [])
    assert await said_by(api, user) == {f"bees of {user}": "Hives."}
    assert await ordered(services, user)
    [row] = [each for each in tables_of(await export(api, user))["categories"] if each["own"]]
    assert row["own"] == AT | {"description": "Hives."}
    assert (await bring_in(api, user, archive.zip()))["descriptions"] == 0


async def test_what_the_user_has_said_stays(services: Services, api: httpx.AsyncClient, user: str) -> None:
    mine = {"description": "My own words."}
    assert (await api.put(f"{CATEGORIES}/bees of {user}", params={"user_id": user}, json=mine)).status_code == 200
    archive = with_own((f"bees of {user}", {"description": "Theirs."}))
    assert (await bring_in(api, user, archive.zip()))["descriptions"] == 0
    assert await said_by(api, user) == {f"bees of {user}": "My own words."}


async def test_an_archive_without_any_brings_the_rest(services: Services, api: httpx.AsyncClient, user: str) -> None:
    archive = Upstream()
    archive.memory("something", categories=[archive.category(f"old of {user}")])
    report = await bring_in(api, user, archive.zip())
    assert (report["memories"]["added"], report["descriptions"]) == (1, 0)
    assert not await ordered(services, user)


async def test_only_an_archive_of_everything_tells_them(api: httpx.AsyncClient, user: str) -> None:
    await bring_in(api, user, with_own((f"bees of {user}", {"description": "Hives."})).zip())
    app = (await api.get("/api/v1/apps", params={"user_id": user})).json()["apps"][0]["id"]
    assert [each["own"] for each in tables_of(await export(api, user))["categories"]] != []
    assert [each["name"] for each in tables_of(await export(api, user, app_id=app))["categories"]] == []


async def test_what_cannot_be_one_is_left_out_and_the_category_comes(api: httpx.AsyncClient, user: str) -> None:
    archive = with_own(
        (f"blank of {user}", {"description": " "}),
        (f"long of {user}", {"description": "x" * 501}),
        (f"secret of {user}", {"description": f"AKIA{'Q3EG' * 4} is my AWS key."}),
    )
    report = await bring_in(api, user, archive.zip())
    assert (report["descriptions"], report["categories"]) == (0, 3)
    assert {each["kind"] for each in report["left_out"]} == {"category"}
    assert [each["reason"].partition(";")[0] for each in report["left_out"]] == [
        "own.description: must not be empty or blank",
        "own.description: has 501 characters",
        "own.description: looks like it holds an AWS access key",
    ]


async def test_no_more_come_in_than_a_user_may_have(api: httpx.AsyncClient, user: str) -> None:
    archive = with_own(*((f"{user} {number}", {"description": "Hives."}) for number in range(102)))
    report = await bring_in(api, user, archive.zip())
    assert report["descriptions"] == 100
    assert [each["reason"] for each in report["left_out"]] == [
        "own.description: is one too many: a user describes at most 100"
    ] * 2
    assert len(await said_by(api, user)) == 100


async def test_of_two_of_one_name_the_first_comes_in(api: httpx.AsyncClient, user: str) -> None:
    archive = with_own(*((f"bees of {user}", {"description": said}) for said in ("First.", "Second.")))
    assert (await bring_in(api, user, archive.zip()))["descriptions"] == 1
    assert await said_by(api, user) == {f"bees of {user}": "First."}


async def test_what_is_no_description_at_all_is_no_archive(api: httpx.AsyncClient, user: str) -> None:
    for own, place in (("Hives.", "categories[0].own"), ({"description": 7}, "categories[0].own.description")):
        answer = await send(api, user, with_own((f"bees of {user}", own)).zip())
        assert answer.status_code == 400
        assert place in answer.text
