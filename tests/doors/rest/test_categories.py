"""Categories that the service assigns, over REST."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import pytest
from sqlalchemy import text

from openmemory.services import Services

CATEGORIES = "/api/v1/categories"
ASSIGN = f"{CATEGORIES}/assign"
BEES = "Keeping bees: hives, honey, swarms, queens."
AUDITED = ("category.forget", "category.describe")


@pytest.fixture
async def user(services: Services, new_user: str) -> str:
    """A user that is there and has nothing."""
    await services.directory.caller(new_user, None, owner=True)
    return new_user


async def test_what_waits_is_told(client: httpx.AsyncClient, services: Services, new_user: str) -> None:
    await client.post("/api/v1/memories/", json={"user_id": new_user, "text": "I am allergic to nuts", "infer": False})
    await services.outbox_delivery.drain()
    told = await client.get(ASSIGN, params={"user_id": new_user})
    assert (told.status_code, told.json()) == (200, {"waiting": 1, "failed": 0})


async def test_where_the_service_assigns_none_that_is_said(client: httpx.AsyncClient, new_user: str) -> None:
    await client.post("/api/v1/memories/", json={"user_id": new_user, "text": "I am allergic to nuts", "infer": False})
    refused = await client.post(ASSIGN, json={"user_id": new_user, "again": True})
    assert refused.status_code == 409
    assert "assigns no categories" in refused.text


async def test_nobody_is_made_by_asking(client: httpx.AsyncClient, new_user: str) -> None:
    asked = await client.get(ASSIGN, params={"user_id": new_user})
    assert asked.status_code == 200
    assert (await client.post(ASSIGN, json={"user_id": new_user})).status_code == 404


async def test_a_user_describes_lists_and_forgets(client: httpx.AsyncClient, user: str) -> None:
    params = {"user_id": user}
    made = await client.put(f"{CATEGORIES}/bees of {user}", params=params, json={"description": f" {BEES} "})
    assert made.status_code == 200, made.text
    assert {key: made.json()[key] for key in ("name", "description", "described_by")} == {
        "name": f"bees of {user}", "description": BEES, "described_by": "user",
    }  # fmt: skip
    again = await client.put(f"{CATEGORIES}/bees of {user}/", params=params, json={"description": BEES})
    assert again.json() == made.json()
    changed = await client.put(f"{CATEGORIES}/health", params=params, json={"description": "My horse's health."})
    assert changed.status_code == 200
    for path in (CATEGORIES, f"{CATEGORIES}/"):
        listed = (await client.get(path, params=params)).json()
        assert listed["total"] == len(listed["categories"]) == 21
        assert listed["categories"][:2] == [made.json(), changed.json()]
        assert {each["described_by"] for each in listed["categories"][2:]} == {"openmemory"}
    gone = await client.delete(f"{CATEGORIES}/health", params=params)
    assert (gone.status_code, gone.json()) == (
        200, {"message": "Successfully removed the description of the category"}
    )  # fmt: skip
    missing = await client.delete(f"{CATEGORIES}/health/", params=params)
    assert (missing.status_code, missing.json()["error"]) == (404, "category_not_described")
    listed = (await client.get(CATEGORIES, params=params)).json()
    assert [each["described_by"] for each in listed["categories"] if each["name"] == "health"] == ["openmemory"]


@pytest.mark.parametrize(
    "name", ["a/b", "a/", "/", "..", "ai, ml & technology", "bücher 📚", "assign", "assign/preview", "50 %"]
)
@pytest.mark.parametrize("slash", ["", "/"])
async def test_any_name_can_stand_in_the_path(client: httpx.AsyncClient, user: str, name: str, slash: str) -> None:
    path, params = f"{CATEGORIES}/{quote(name, safe='').replace('.', '%2E')}{slash}", {"user_id": user}
    made = await client.put(path, params=params, json={"description": BEES})
    assert (made.status_code, made.json().get("name")) == (200, name)
    assert (await client.delete(path, params=params)).status_code == 200


@pytest.mark.parametrize(
    ("name", "body", "status", "said"),
    [
        ("bees", {"description": " "}, 422, "description"),
        ("bees", {"description": ""}, 422, "description"),
        ("bees", {"description": "x" * 501}, 422, "description"),
        ("bees", {}, 422, "description"),
        ("bees", {"description": 7}, 422, "description"),
        ("bees", {"description": "a\u0000b"}, 422, "description"),
        ("bees", {"description": BEES, "color": "red"}, 422, "color"),
        ("%20", {"description": BEES}, 422, "name"),
        ("x" * 1_001, {"description": BEES}, 413, "name"),
        ("a%00b", {"description": BEES}, 422, "name"),
    ],
)
async def test_what_cannot_be_used_is_told_by_its_field(
    client: httpx.AsyncClient, user: str, name: str, body: Any, status: int, said: str
) -> None:
    refused = await client.put(f"{CATEGORIES}/{name}", params={"user_id": user}, json=body)
    assert refused.status_code == status, refused.text
    assert said in refused.json()["detail"]
    listed = (await client.get(CATEGORIES, params={"user_id": user})).json()
    assert listed["total"] == 20


async def test_a_user_describes_no_more_than_a_hundred(client: httpx.AsyncClient, user: str) -> None:
    params = {"user_id": user}
    for number in range(100):
        made = await client.put(f"{CATEGORIES}/{user} {number}", params=params, json={"description": BEES})
        assert made.status_code == 200
    refused = await client.put(f"{CATEGORIES}/{user} more", params=params, json={"description": BEES})
    assert (refused.status_code, refused.json()["error"]) == (409, "too_many_categories")
    other = await client.put(f"{CATEGORIES}/{user} 7", params=params, json={"description": "Other words."})
    assert other.status_code == 200
    assert (await client.get(CATEGORIES, params=params)).json()["total"] == 120


async def test_a_description_is_checked_as_texts_are_and_told_in_the_audit_log(
    client: httpx.AsyncClient, user: str
) -> None:
    params = {"user_id": user}
    hidden = f"My AWS key is AKIA{'Q3EG' * 4}, and other keys."
    refused = await client.put(f"{CATEGORIES}/keys", params=params, json={"description": hidden})
    assert (refused.status_code, refused.json()["error"]) == (422, "secret_refused")
    assert "description" in refused.json()["detail"]
    assert (await client.put(f"{CATEGORIES}/bees", params=params, json={"description": BEES})).status_code == 200
    assert (await client.delete(f"{CATEGORIES}/bees", params=params)).status_code == 200
    told = (await client.get("/api/v1/audit", params=params | {"limit": 10})).json()["events"]
    assert [(each["event"], each["detail"]) for each in told if each["event"] in AUDITED] == [
        (event, {"name": "bees"}) for event in AUDITED
    ]


async def test_nobody_is_made_by_describing(client: httpx.AsyncClient, new_user: str) -> None:
    params = {"user_id": new_user}
    for answer in (
        await client.put(f"{CATEGORIES}/bees", params=params, json={"description": BEES}),
        await client.delete(f"{CATEGORIES}/bees", params=params),
    ):
        assert answer.status_code == 404


async def test_an_erased_user_says_nothing_any_more(client: httpx.AsyncClient, services: Services, user: str) -> None:
    await client.put(f"{CATEGORIES}/bees", params={"user_id": user}, json={"description": BEES + user})
    await client.delete(f"/api/v1/users/{user}", params={"confirm": user})
    async with services.database.statement() as tx:
        said = text("SELECT count(*) FROM category_descriptions WHERE description = :said")
        assert await tx.scalar(said, {"said": BEES + user}) == 0
