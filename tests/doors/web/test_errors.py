"""Pages of errors, as a browser without scripts sees them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from openmemory.access.schemas import KeyCreate
from openmemory.identity.principal import LOCAL, Scope
from openmemory.services import Services
from tests.doors.web.conftest import Visitor

EVERY_PAGE = ["Memories", "Apps", "Activity", "Time", "Connect", "Settings", "System"]


def navigation(shown: str) -> list[str]:
    """The labels in the bar at the top."""
    bar = shown.partition('<nav aria-label="Main">')[2].partition("</nav>")[0]
    return re.findall(r"<a [^>]*>(\w+)</a>", bar)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("memory/00000000-0000-0000-0000-000000000000", 404),
        ("nothing/at/all", 404),
        ("apps/no-id", 422),
        ("memories?state=gone", 422),
        ("activity/upcoming?days=-1", 422),
    ],
)
async def test_it_has_the_navigation_of_every_page(visitor: Visitor, path: str, status: int) -> None:
    path, _, query = path.partition("?")
    await visitor.get(path, status=status, **dict([query.split("=")] if query else []))
    assert navigation(visitor.shown) == EVERY_PAGE
    up = "../" * path.count("/") or "./"
    assert f'href="{up}activity?user={visitor.user}"' in visitor.shown


async def test_its_navigation_leaves_a_user_who_does_not_exist(visitor: Visitor) -> None:
    await visitor.get("memories", user="nobody-at-all", status=404)
    assert navigation(visitor.shown) == EVERY_PAGE
    assert 'href="./activity"' in visitor.shown
    assert "nobody-at-all" not in visitor.shown


async def test_its_navigation_has_only_what_the_key_opens(make_client: Any, services: Services, new_user: str) -> None:
    made = await services.keys.create(LOCAL, KeyCreate(name="r", user_id=new_user, app="claude", scopes=[Scope.READ]))
    async with make_client(access={"require": "always"}) as http:
        headers = {"Authorization": f"Bearer {made.key}", "Accept": "text/html"}
        shown = (await http.get("/ui/nothing", headers=headers)).text
        refused = (await http.get("/ui/nothing", headers={"Accept": "text/html"})).text
    assert navigation(shown) == ["Memories", "Time", "Connect", "Settings"]
    assert "Sign out" in shown
    assert navigation(refused) == []
    assert "Sign out" not in refused
