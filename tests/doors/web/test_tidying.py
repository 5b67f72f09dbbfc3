"""The pages for keeping a memory tidy, as a browser without scripts sees them."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any
from uuid import UUID

import pytest

from openmemory.access.schemas import KeyCreate
from openmemory.identity.principal import LOCAL, Scope
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services
from openmemory.tidying import duplicates
from tests.doors.web.conftest import Visitor

Remember = Callable[..., Any]


def given(visitor: Visitor, name: str) -> list[str]:
    """The values of the fields or buttons with this name on the page."""
    return [unescape(value) for value in re.findall(rf'name="{name}" value="([^"]*)"', visitor.shown)]


async def undo(visitor: Visitor) -> None:
    [change] = given(visitor, "change")
    await visitor.submit("memories/undo", change=change, next="activity/conflicts")


async def test_a_conflict_is_decided_and_undone(visitor: Visitor, remember: Remember) -> None:
    await visitor.get("activity/conflicts")
    assert "No facts disagree." in visitor.words
    await remember(visitor.user, "budget=40K | lead=Ada", app="claude")
    await remember(visitor.user, "budget=50K", app="cursor")
    await visitor.get("activity/conflicts")
    assert "1 conflict, newest first" in visitor.words
    assert "budget 50K cursor just now Keep this one Edit 40K claude" in visitor.words
    assert "in “budget=40K | lead=Ada”" in visitor.words
    keep = given(visitor, "keep")
    await visitor.submit("activity/conflicts", key="budget", keep=keep[1], other=given(visitor, "other"))
    assert "Kept budget = 40K: superseded 1 memory." in visitor.words
    assert "No facts disagree." in visitor.words
    await undo(visitor)
    assert "Undone for 1 memory." in visitor.words
    assert "1 conflict" in visitor.words
    await visitor.submit("activity/conflicts", key="budget", keep=keep[0], other=given(visitor, "other"))
    assert "Kept budget = 50K: corrected 1 memory with more facts." in visitor.words
    await visitor.get("memories")
    assert "budget=50K | lead=Ada" in visitor.words


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"keep": "x", "other": f"{UUID(int=1)} 1"}, 422, "keep: must be the id of a memory and the revision"),
        ({"keep": f"{UUID(int=1)} 1", "other": str(UUID(int=1))}, 422, "other: must be the id of a memory"),
        ({"keep": f"{UUID(int=1)} 1"}, 422, "other: must name the other memories"),
        ({"keep": f"{UUID(int=1)} 1", "other": f"{UUID(int=2)} 1"}, 404, "Memory not found"),
    ],
)
async def test_a_refused_decision_says_why(visitor: Visitor, fields: dict[str, str], status: int, words: str) -> None:
    await visitor.get("memories")
    await visitor.submit("activity/conflicts", status=status, key="budget", **fields)
    assert words in visitor.words


async def test_values_are_shown_as_data(visitor: Visitor, remember: Remember) -> None:
    await remember(visitor.user, "x=<b>bold</b>", app="claude")
    await remember(visitor.user, "x=pla\u00adin", app="cursor")
    shown = await visitor.get("activity/conflicts")
    assert "&lt;b&gt;bold&lt;/b&gt;" in shown
    assert "U+00AD" in visitor.words


async def test_an_emptied_last_page_leads_to_the_first(visitor: Visitor) -> None:
    await visitor.get("activity/conflicts", page=3)
    assert "page=3" not in visitor.at
    await visitor.get("activity/conflicts", status=422, page=0)


async def test_a_key_that_only_reads_decides_nothing(make_client: Any, services: Services, new_user: str) -> None:
    owner = await services.directory.caller(new_user, None, owner=True)
    for app, value in (("claude", 1), ("cursor", 2)):
        await services.memories.add(owner, MemoryCreate(f"size={value}", app=app))
    key = await services.keys.create(LOCAL, KeyCreate(name="reader", user_id=new_user, scopes=[Scope.READ]))
    async with make_client(access={"require": "always"}) as http:
        headers = {"Authorization": f"Bearer {key.key}", "Accept": "text/html"}
        shown = (await http.get("/ui/activity/conflicts", headers=headers)).text
    assert "1 conflict" in shown
    assert 'name="keep"' not in shown


async def pair(visitor: Visitor, services: Services) -> None:
    """Opens the page with one pair of near duplicates."""
    app = await services.directory.caller(visitor.user, "claude")
    for text in ("Alice is allergic to peanuts.", "Alice has a peanut allergy.", "Bob <b>keeps</b> bees."):
        await services.memories.add(app, MemoryCreate(text))
    await services.outbox_delivery.drain()
    await visitor.get("activity/duplicates")


async def decided(visitor: Visitor, keep: str) -> None:
    [newer], [older] = given(visitor, "newer"), given(visitor, "older")
    await visitor.submit("activity/duplicates", newer=newer, older=older, keep=keep, next="activity/duplicates")


@pytest.mark.parametrize(("keep", "left"), [("newer", "Alice has a"), ("older", "Alice is allergic")])
async def test_one_of_two_near_duplicates_is_kept_and_undone(
    visitor: Visitor, services: Services, keep: str, left: str
) -> None:
    await visitor.get("activity/duplicates")
    assert "No near duplicates found." in visitor.words
    await pair(visitor, services)
    assert "1 pair among the newest 3 memories" in visitor.words
    assert "Newer Alice has a peanut allergy. just now claude Open Older Alice is allergic to peanuts." in visitor.words
    await decided(visitor, keep)
    assert f"Kept the {keep} one. The other one is in the archive" in visitor.words
    assert "0 pairs among the newest 2 memories" in visitor.words
    await undo(visitor)
    await visitor.get("memories", state="archived")
    assert "No memory matches." in visitor.words
    await services.outbox_delivery.drain()
    await visitor.get("activity/duplicates")
    assert "1 pair" in visitor.words
    await decided(visitor, keep)
    await visitor.get("memories")
    assert left in visitor.words
    assert "2 memories" in visitor.words


async def test_both_near_duplicates_are_kept_and_listed_again(visitor: Visitor, services: Services) -> None:
    await pair(visitor, services)
    await decided(visitor, "both")
    assert "Kept both." in visitor.words
    assert "0 pairs among the newest 3 memories" in visitor.words
    [one], [other] = given(visitor, "one"), given(visitor, "other")
    await visitor.submit("activity/duplicates/again", one=one, other=other, next="activity/duplicates")
    assert "Undone: the two are listed again." in visitor.words
    assert "1 pair" in visitor.words
    await visitor.submit("activity/duplicates/again", status=404, one=one, other=other)
    await visitor.get("activity/duplicates")
    await visitor.submit("activity/duplicates/again", status=422, one=one, other="x")
    assert "other: must be an id" in visitor.words


async def test_pages_of_near_duplicates_lead_to_older_memories(
    visitor: Visitor, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "STRETCH", 1)
    monkeypatch.setattr(duplicates, "STRETCHES", 1)
    await pair(visitor, services)
    assert "0 pairs among the newest 1 memory" in visitor.words
    [older] = re.findall(r'href="([^"]*)" rel="next"', visitor.shown)
    answer = await visitor.http.get(f"/ui/activity/{unescape(older)}")
    assert "1 pair among the next 1 memory" in " ".join(answer.text.split())
    await visitor.get("activity/duplicates", status=422, after="soon")


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"keep": "all"}, 422, "keep: must be newer, older or both"),
        ({"keep": "newer", "newer": "x"}, 422, "newer: must be the id of a memory and the revision"),
        ({"keep": "newer"}, 404, "Memory not found"),
        ({"keep": "both", "older": f"{UUID(int=1)} 1"}, 422, "older: must be another memory"),
    ],
)
async def test_a_refused_pair_says_why(visitor: Visitor, fields: dict[str, str], status: int, words: str) -> None:
    await visitor.get("memories")
    versions = {"newer": f"{UUID(int=1)} 1", "older": f"{UUID(int=2)} 1"}
    await visitor.submit("activity/duplicates", status=status, **versions | fields)
    assert words in visitor.words


async def test_what_a_newer_memory_replaces_is_decided_and_undone(visitor: Visitor, services: Services) -> None:
    await visitor.get("activity/replacements")
    assert "Nothing is to be decided." in visitor.words
    app = await services.directory.caller(visitor.user, "claude")
    for text in ("I live in Hamburg.", "I moved to <b>Leipzig</b> last week."):
        await services.memories.add(app, MemoryCreate(text))
    await services.outbox_delivery.drain()
    await visitor.get("activity/replacements")
    assert "This replaces that, it seems" in visitor.words
    [newer], [older] = given(visitor, "newer"), given(visitor, "older")
    versions = {"newer": newer, "older": older, "next": "activity/replacements"}
    await visitor.submit("activity/replacements", decision="both", **versions)
    assert "Kept both. They are not listed again." in visitor.words
    assert "Nothing is to be decided." in visitor.words
    await visitor.submit("activity/replacements", decision="replace", **versions)
    assert "Replaced. The older one is in the archive" in visitor.words
    await undo(visitor)
    await visitor.submit("activity/replacements", status=422, decision="perhaps", **versions)
