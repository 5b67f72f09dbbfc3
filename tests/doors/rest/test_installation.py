"""The installation over REST: anybody who sees the service as a whole may look, and its administrators decide."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from openmemory.access.schemas import KeyCreate
from openmemory.identity.principal import LOCAL
from openmemory.index.models import Installation

PATH = "/api/v1/installation"


async def test_an_installation_that_is_not_in_doubt_has_nothing_to_decide(client, services):
    shown = (await client.get(PATH)).json()
    async with services.database.statement() as tx:
        number = (await tx.scalars(select(Installation.id))).one()
    assert shown == {"id": str(number), "collection": shown["collection"], "refusal": None, "asked": False}
    for decision in ("copied", "moved"):
        answer = await client.post(PATH, json={"decision": decision})
        assert (answer.status_code, answer.json()["error"]) == (409, "installation_not_in_doubt")
    assert (await client.get(PATH)).json()["id"] == shown["id"]


@pytest.mark.parametrize("body", [{}, {"decision": "kept"}, {"decision": None}, {"decision": ["copied"]}], ids=str)
async def test_a_decision_that_is_none_names_the_field(client, body):
    answer = await client.post(PATH, json=body)
    assert answer.status_code == 422
    assert "decision" in answer.text


@pytest.mark.parametrize(
    ("scopes", "look", "decide"),
    [
        (["read"], 200, (403, "insufficient_scope")), (["write"], 403, (403, "insufficient_scope")),
        (["admin"], 200, (409, "installation_not_in_doubt")),
    ],
)  # fmt: skip
async def test_only_administrators_of_the_whole_service_decide(services, make_client, scopes, look, decide):
    made = await services.keys.create(LOCAL, KeyCreate(name="one", everyone=True, scopes=scopes))
    async with make_client(access={"require": "always"}) as http:
        headers = {"X-API-Key": made.key}
        assert (await http.get(PATH, headers=headers)).status_code == look
        answer = await http.post(PATH, headers=headers, json={"decision": "copied"})
        assert (answer.status_code, answer.json()["error"]) == decide
        assert (await http.post(PATH, json={"decision": "copied"})).status_code == 401
