"""The pages of assistants, as a browser without scripts sees them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any
from uuid import uuid4

import pytest

from openmemory.doors.web.charts import DAYS, sparkline
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate, MemoryQuery
from openmemory.services import Services
from tests.doors.web.conftest import Visitor


@pytest.fixture
async def app(services: Services, visitor: Visitor) -> Caller:
    """An assistant of the visitor that has written something."""
    app = await services.directory.caller(visitor.user, "claude")
    await services.memories.add_many(
        app,
        [
            MemoryCreate("Alice drinks tea", categories=("drinks",)),
            MemoryCreate("Her PIN is on the fridge", categories=("private",)),
        ],
    )
    return app


async def test_apps_are_listed_with_what_they_did(visitor: Visitor, services: Services, app: Caller) -> None:
    await services.memories.list(app, MemoryQuery())
    await visitor.get("apps")
    assert re.search(r"claude Last seen .* ago|claude Last seen just now", visitor.words)
    assert "2 written" in visitor.words
    assert "2 read 2 in 7 days" in visitor.words
    assert "2 written in the last 30 days, most on" in visitor.shown


async def test_an_app_is_paused_and_the_pause_undone(visitor: Visitor, app: Caller) -> None:
    await visitor.get("apps")
    await visitor.submit(f"apps/{app.app_id}/pause", next="apps")
    assert "claude is paused: it reads and writes nothing." in visitor.words
    assert f"apps/{app.app_id}/resume" in visitor.shown.partition("Undo")[0]
    await visitor.submit(f"apps/{app.app_id}/resume")
    assert "claude reads and writes again." in visitor.words
    assert visitor.at.partition("?")[0].endswith(f"/ui/apps/{app.app_id}")


async def test_its_memories_and_accesses_are_paged(visitor: Visitor, services: Services, app: Caller) -> None:
    await services.memories.add_many(app, [MemoryCreate(f"Fact {number}") for number in range(20)])
    await services.memories.list(app, MemoryQuery(size=100))
    await visitor.get(f"apps/{app.app_id}")
    assert "22 memories that are not deleted" in visitor.words
    assert visitor.words.count("Page 1 of 3") == 2
    await visitor.get(f"apps/{app.app_id}", memories=3, accesses=2)
    assert "Page 3 of 3" in visitor.words
    assert "Page 2 of 3" in visitor.words
    assert "Alice drinks tea" in visitor.words


async def test_a_rule_is_made_said_in_words_removed_and_brought_back(
    visitor: Visitor, services: Services, app: Caller
) -> None:
    at = f"apps/{app.app_id}"
    await visitor.get(at)
    assert "It may read 2 of 2 active memories." in visitor.words
    await visitor.submit(f"{at}/rules", effect="deny", object_type="category", object="private")
    assert "Now claude may not read memories of private." in visitor.words
    assert "It may read 1 of 2 active memories." in visitor.words
    await visitor.submit(f"{at}/rules", effect="deny", object_type="category", object="private")
    assert "There is such a rule already." in visitor.words
    [rule] = await services.grants.list(await services.directory.caller(visitor.user, None, owner=True))
    await visitor.submit(f"{at}/rules/remove", rule=str(rule.id))
    assert "No longer a rule: claude may not read memories of private." in visitor.words
    undo = visitor.shown.partition(">Undo<")[0].rpartition("<form")[2]
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', undo))
    await visitor.submit(f"{at}/rules", **fields)
    assert "claude may not read memories of private" in visitor.words


async def test_a_rule_for_every_app_comes_back_as_one(visitor: Visitor, app: Caller) -> None:
    at = f"apps/{app.app_id}"
    await visitor.get(at)
    await visitor.submit(f"{at}/rules", effect="deny", object_type="namespace", object="work", every="1")
    assert "Now Every app may not read memories in work." in visitor.words
    rule = re.search(r'name="rule" value="([^"]+)"', visitor.shown)
    assert rule
    await visitor.submit(f"{at}/rules/remove", rule=rule[1].upper())
    assert 'name="every" value="1"' in visitor.shown.partition(">Undo<")[0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"effect": "maybe", "object_type": "all"}, "effect: must be one of allow, deny"),
        ({"effect": "deny", "object_type": "colour"}, "object_type: must be one of memory, app, namespace"),
        ({"effect": "deny", "object_type": "namespace"}, "object: must name the namespace"),
        ({"effect": "deny", "object_type": "memory", "object": "x"}, "object: must be the id (a UUID) of a memory"),
        ({"effect": "deny", "object_type": "namespace", "object": "x" * 3000}, "object: must have at most"),
    ],
)
async def test_a_wrong_rule_is_refused_in_words(
    visitor: Visitor, app: Caller, fields: dict[str, str], words: str
) -> None:
    await visitor.get(f"apps/{app.app_id}")
    await visitor.submit(f"apps/{app.app_id}/rules", status=422, **fields)
    assert words in visitor.words


async def test_removing_no_rule_is_refused(visitor: Visitor, app: Caller) -> None:
    at = f"apps/{app.app_id}"
    await visitor.get(at)
    await visitor.submit(f"{at}/rules/remove", status=422, rule="x")
    assert "rule: must be an id, which is a UUID" in visitor.words
    await visitor.get(at)
    await visitor.submit(f"{at}/rules/remove", status=404, rule=str(uuid4()))


@pytest.mark.slow
async def test_a_search_as_an_app_finds_what_it_may_read_and_is_no_access_of_it(
    visitor: Visitor, services: Services, app: Caller
) -> None:
    at = f"apps/{app.app_id}"
    await visitor.get(at)
    await visitor.submit(f"{at}/rules", effect="deny", object_type="category", object="private")
    await visitor.get(at, q="where is her PIN?")
    results = visitor.words.partition("It does not count as read by it.")[2].partition("What it wrote")[0]
    assert "PIN" not in results.replace("“PIN”", "")  # the note names what was looked for
    await visitor.get(at, q="what does she drink?")
    assert "Alice drinks tea" in visitor.words
    assert "0 memories that it found" in visitor.words


async def test_a_paused_app_would_see_nothing(visitor: Visitor, app: Caller) -> None:
    at = f"apps/{app.app_id}"
    await visitor.get(at)
    await visitor.submit(f"{at}/pause")
    await visitor.get(at, q="tea")
    assert "It may read 0 of 2 active memories." in visitor.words
    assert "currently paused" in visitor.words


async def test_another_users_app_is_not_there(visitor: Visitor, services: Services) -> None:
    other = await services.directory.caller(f"{visitor.user}-other", "cursor")
    await visitor.get("apps")
    await visitor.get(f"apps/{other.app_id}", status=404)
    await visitor.get("apps")
    await visitor.submit(f"apps/{other.app_id}/pause", status=404)
    await visitor.get("apps")
    await visitor.submit(f"apps/{other.app_id}/rules", status=404, effect="deny", object_type="all")


async def test_a_search_form_keeps_the_user(visitor: Visitor, app: Caller, remember: Callable[..., Any]) -> None:
    await visitor.get("memories")
    assert f'name="user" value="{visitor.user}"' in visitor.shown
    await visitor.get(f"apps/{app.app_id}")
    assert f'name="user" value="{visitor.user}"' in visitor.shown


def test_a_sparkline_says_its_figures_and_shows_every_day_with_something() -> None:
    today = date(2026, 5, 31)
    chart = sparkline({today: 1, today - timedelta(days=2): 1_000, today - timedelta(days=DAYS): 7}, "written", today)
    assert chart.label == "1,001 written in the last 30 days, most on 29 May: 1,000"
    heights = [bar.height for bar in chart.bars]
    assert len(heights) == DAYS
    assert heights[-3:] == [24.0, 0.5, 2.0]
    assert sparkline({}, "read", today).label == "0 read in the last 30 days"
