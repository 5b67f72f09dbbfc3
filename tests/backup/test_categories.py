"""Categories of an archive that differ in case or blanks are one category here."""

from __future__ import annotations

import httpx
import pytest
from sqlalchemy import text

from openmemory.services import Services
from tests.backup.archives import Upstream, bring_in, export, new_id, tables_of

MEMORIES = "/api/v1/memories"
_FILED = text(
    """
    SELECT m.content, c.name, f.automatic FROM memory_categories AS f
    JOIN memories AS m ON m.id = f.memory_id JOIN categories AS c ON c.id = f.category_id
    JOIN users AS u ON u.id = m.user_id WHERE u.user_id = :user ORDER BY m.content, c.name
    """
)


@pytest.mark.parametrize("guessed_first", [True, False])
async def test_memories_under_two_spellings_are_filed_under_one_category(
    services: Services, api: httpx.AsyncClient, user: str, guessed_first: bool
) -> None:
    archive = Upstream()
    name = f"work of {user}"
    upper, lower = archive.category(f"Work  of {user.title()}"), archive.category(name)
    for words, categories in (("one", [upper]), ("two", [lower]), ("three", [upper, lower])):
        archive.memory(words, categories=categories)
    guess = upper if guessed_first else lower
    for row in archive.tables["memory_categories"]:
        row["automatic"] = row["category_id"] == guess
    app = archive.app("cursor")
    for category in (upper, lower):
        archive.rule(app, "deny", category, object_type="category")
    policy = {"criteria_type": "category", "days_to_archive": 9_000, "created_at": "2025-05-05T10:00:00+00:00"}
    archive.tables["archive_policies"] = [
        {"id": new_id(), "criteria_id": category} | policy for category in (upper, lower)
    ]
    report = await bring_in(api, user, archive.zip())
    assert (report["memories"]["added"], report["left_out"]) == (3, [])
    assert (report["categories"], report["rules"], report["policies"]) == (1, 1, 1)
    async with services.database.statement() as tx:
        filed = [tuple(row) for row in await tx.execute(_FILED, {"user": user})]
    # What a client has assigned under one spelling is no guess of the service.
    assert filed == [("one", name, upper == guess), ("three", name, False), ("two", name, lower == guess)]
    found = await api.get(MEMORIES, params={"user_id": user, "categories": f"WORK OF {user}"})
    assert found.json()["total"] == 3
    out = tables_of(await export(api, user))
    assert [row["name"] for row in out["categories"]] == [name]
    assert {len(row["category_ids"]) for row in out["memories"]} == {1}
    again = await bring_in(api, user, archive.zip())
    assert (again["memories"]["added"], again["rules"], again["policies"]) == (0, 0, 0)
    assert again["memories"]["unchanged"] == 3
