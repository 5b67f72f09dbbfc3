"""The list of memories, as a browser without scripts sees it."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any
from uuid import UUID

import httpx
import pytest

from openmemory.access.schemas import KeyCreate
from openmemory.identity.principal import LOCAL, Scope
from openmemory.memories.schemas import MemoryCreate, MemoryQuery
from openmemory.projects.schemas import NewValue
from openmemory.services import Services
from tests.doors.web.conftest import Visitor


async def test_a_browser_is_led_to_the_page_and_a_program_is_not(client: httpx.AsyncClient) -> None:
    browser = await client.get("/", headers={"Accept": "text/html,*/*"}, follow_redirects=True)
    program = await client.get("/")
    assert browser.url.path == "/ui/memories"
    assert browser.headers["content-type"].startswith("text/html")
    assert program.json()["service"] == "openmemory"


async def test_an_added_memory_is_listed_and_found_by_meaning(visitor: Visitor, services: Services) -> None:
    await visitor.get("memories")
    assert "Nothing is remembered yet" in visitor.words
    await visitor.submit("memories", text="Alice drinks her coffee black.", categories="Drinks, home")
    assert "1 memory" in visitor.words
    await services.outbox_delivery.drain()
    await visitor.get("memories", q="how does she take her espresso")
    assert "Alice drinks her coffee black." in visitor.words
    assert "1 memory found" in visitor.words


async def test_a_search_that_finds_nothing_says_so_and_an_overview_has_no_scores(
    visitor: Visitor, remember: Callable[..., Any]
) -> None:
    await remember(visitor.user, "My name is Ada.")
    await visitor.get("memories", q="quasar redshift")
    assert "Nothing was found for “quasar redshift” in the only memory that you may read" in visitor.words
    assert "No memory matches" in visitor.words
    shown = await visitor.get("memories", q="who am I?")
    assert "My name is Ada." in visitor.words
    assert "The chance that it is relevant" not in shown


async def test_matches_are_marked(visitor: Visitor, remember: Callable[..., Any]) -> None:
    await remember(visitor.user, "Her coffee is <b>black</b>.")
    shown = await visitor.get("memories", q="coffee")
    assert "Her <mark>coffee</mark> is &lt;b&gt;black&lt;/b&gt;." in shown


@pytest.mark.slow
async def test_rows_name_the_app_of_the_text_and_the_one_that_added_it_where_they_differ(
    visitor: Visitor, services: Services
) -> None:
    for app, said in (("claude", "black"), ("cursor", "bitter")):
        caller = await services.directory.caller(visitor.user, app)
        await services.values.set(caller, NewValue("drinks", "coffee", said))
    await services.values.set(caller, NewValue("drinks", "tea", "green"))
    await services.outbox_delivery.drain()
    for asked in ({}, {"app": "claude"}, {"q": "how is the coffee"}, {"q": "how is the coffee", "app": "claude"}):
        await visitor.get("memories", **asked)
        assert ": bitter" in visitor.words.replace(" : ", ": ")
        assert "cursor, added by claude" in visitor.words
        assert visitor.words.count("added by") == 1
    await visitor.get("memories", app="cursor")
    assert "coffee" not in visitor.words.partition("1 memory")[2]
    assert "added by" not in visitor.words
    listed = (await services.memories.list(caller, MemoryQuery())).items
    [coffee] = [one for one in listed if "bitter" in one.content]
    await visitor.get(f"memory/{coffee.id}")
    assert "Written by cursor, added by claude" in visitor.words


@pytest.mark.slow
async def test_filters_stay_on_the_second_page(visitor: Visitor, remember: Callable[..., Any]) -> None:
    for number in range(60):
        await remember(visitor.user, f"Note {number}", kind="note")
    await remember(visitor.user, "Something else")
    await visitor.get("memories", kind="note", sort="oldest")
    assert "60 memories" in visitor.words
    assert "kind=note&amp;sort=oldest&amp;page=2" in visitor.shown
    await visitor.get("memories", kind="note", sort="oldest", page=2)
    assert "Note 59" in visitor.words
    assert "Something else" not in visitor.words


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"state": "gone"}, "state: must be any or one of active, paused, archived, deleted"),
        ({"sort": "size"}, "sort: must be one of newest, oldest, text, app"),
        ({"since": "yesterday"}, "since: must be a date such as 2026-05-31"),
        ({"page": "0"}, "page: must be from 1 to 1,000,000, not 0"),
    ],
)
async def test_a_wrong_filter_is_refused_in_words(visitor: Visitor, parameters: dict[str, str], words: str) -> None:
    await visitor.get("memories", status=422, **parameters)
    assert words in visitor.words


async def test_a_form_without_its_token_is_refused(visitor: Visitor) -> None:
    await visitor.get("memories")
    await visitor.submit("memories", text="Planted", token="0" * 64, status=403)
    assert "This form is from another session of the browser." in visitor.words
    await visitor.get("memories")
    assert "Planted" not in visitor.words


async def test_unseen_characters_are_shown_by_their_code(visitor: Visitor, remember: Callable[..., Any]) -> None:
    await remember(visitor.user, "abc\u202edef\u200bghi")
    shown = await visitor.get("memories")
    assert "U+202E" in shown
    assert "U+200B" in shown
    assert "\u202e" not in shown


async def picked(visitor: Visitor, *, action: str, status: int = 200, **fields: Any) -> str:
    return await visitor.submit("memories/change", action=action, status=status, **fields)


async def undo(visitor: Visitor) -> str:
    change = re.search(r'name="change" value="([\w-]+)"', visitor.shown)
    assert change, "the page offers no undo"
    return await visitor.submit("memories/undo", change=change[1])


@pytest.fixture
async def ids(visitor: Visitor, remember: Callable[..., Any]) -> list[str]:
    """Three memories of the visitor, who sees the list of them."""
    added = [(await remember(visitor.user, text))["id"] for text in ("Red", "Green", "Blue")]
    await visitor.get("memories")
    return added


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "words", "state"),
    [("pause", "Paused", "paused"), ("archive", "Archived", "archived"), ("delete", "Deleted", "deleted")],
)
async def test_selected_memories_change_and_come_back(
    visitor: Visitor, ids: list[str], action: str, words: str, state: str
) -> None:
    await picked(visitor, action=action, id=ids[:2])
    assert f"{words} 2 memories." in visitor.words
    assert "Red" not in visitor.words
    await visitor.get("memories", state=state)
    assert "2 memories" in visitor.words
    await undo(visitor)
    assert "Undone for 2 memories." in visitor.words
    await visitor.get("memories")
    assert "3 memories" in visitor.words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "then", "words"),
    [("pause", "resume", "Resumed"), ("archive", "restore", "Restored"), ("delete", "restore", "Restored")],
)
async def test_what_was_put_aside_is_active_again(
    visitor: Visitor, ids: list[str], first: str, then: str, words: str
) -> None:
    await picked(visitor, action=first, id=ids[0])
    await picked(visitor, action=then, id=ids[0])
    assert f"{words} 1 memory." in visitor.words
    await visitor.get("memories")
    assert "3 memories" in visitor.words


@pytest.mark.slow
async def test_all_that_match_the_filters_change(visitor: Visitor, remember: Callable[..., Any]) -> None:
    for number in range(60):
        await remember(visitor.user, f"Note {number}", kind="note")
    await remember(visitor.user, "Something else")
    await visitor.get("memories", kind="note")
    assert "All 60 that match" in visitor.words
    await picked(visitor, action="delete", all="1", kind="note")
    assert "Deleted 60 memories." in visitor.words
    await undo(visitor)
    await visitor.get("memories", kind="note")
    assert "60 memories" in visitor.words


async def test_memories_are_filed_and_expire(visitor: Visitor, ids: list[str]) -> None:
    await picked(visitor, action="file", id=ids, file_under="Colours {1}")
    assert "Filed 3 memories under Colours {1}." in visitor.words
    await visitor.get("memories", category="colours {1}")
    assert "3 memories" in visitor.words
    await undo(visitor)
    await picked(visitor, action="expire", id=ids, expires="2199-05-31")
    assert "Set 3 memories to expire after 2199-05-31." in visitor.words
    await visitor.get("memories", only="expiring")
    assert "expires 1 Jun 2199" in visitor.words
    await picked(visitor, action="keep", id=ids[:1])
    assert "Took the expiry off 1 memory." in visitor.words
    await visitor.get("memories", only="expiring")
    assert "2 memories" in visitor.words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"action": "pause"}, 422, "select at least one first"),
        ({"action": "burn"}, 422, "action: must be one of pause, resume,"),
        ({"action": "pause", "id": "x"}, 422, "id: must be an id"),
        ({"action": "file", "id": str(UUID(int=1))}, 422, "must name a category"),
        ({"action": "expire", "id": str(UUID(int=1))}, 422, "must be a date such as 2027-05-31"),
        ({"action": "delete", "id": str(UUID(int=1))}, 404, "Memory not found"),
        ({"action": "delete", "all": "1", "q": "red"}, 422, "is not possible for a search"),
    ],
)
async def test_a_refused_change_says_why(
    visitor: Visitor, ids: list[str], fields: dict[str, str], status: int, words: str
) -> None:
    await visitor.submit("memories/change", status=status, **fields)
    assert words in visitor.words
    await visitor.get("memories")
    assert "3 memories" in visitor.words


async def test_a_state_that_forbids_the_change_is_named(visitor: Visitor, ids: list[str]) -> None:
    await picked(visitor, action="delete", id=ids[:2])
    await picked(visitor, action="pause", id=ids[0], status=409)
    assert "A memory that is deleted cannot become paused." in visitor.words
    await visitor.get("memories", state="any")
    await picked(visitor, action="pause", id=ids)
    assert "Paused 1 memory. 2 others stayed as they are." in visitor.words


async def test_a_restore_that_would_make_a_duplicate_is_refused(
    visitor: Visitor, ids: list[str], remember: Callable[..., Any]
) -> None:
    await picked(visitor, action="delete", id=ids[0])
    await remember(visitor.user, "Red")
    await visitor.get("memories", state="deleted")
    await picked(visitor, action="restore", id=ids[0], status=409)
    assert "Another active memory of the same app and namespace says exactly this." in visitor.words


async def test_erasing_asks_first(visitor: Visitor, ids: list[str]) -> None:
    await picked(visitor, action="delete", id=ids[:2])
    await visitor.get("memories", state="deleted")
    await picked(visitor, action="erase", id=ids[:2], next="memories?state=deleted")
    assert "Erase 2 memories for good?" in visitor.words
    assert "This cannot be undone." in visitor.words
    assert "Red" in visitor.words
    await visitor.submit("memories/erase", id=ids[:2], next="memories?state=deleted")
    assert "Erased 2 memories for good." in visitor.words
    assert "No memory matches." in visitor.words
    await visitor.get(f"memory/{ids[0]}", status=404)


async def test_all_deleted_are_erased(visitor: Visitor, ids: list[str]) -> None:
    await picked(visitor, action="delete", id=ids[:2])
    await picked(visitor, action="erase", all="1", state="deleted")
    assert "Erase 2 memories for good?" in visitor.words
    await visitor.submit("memories/erase", all="1", state="deleted")
    assert "Erased 2 memories for good." in visitor.words
    await visitor.get("memories")
    assert "1 memory" in visitor.words


async def test_a_filter_is_taken_off_by_its_tag(visitor: Visitor, remember: Callable[..., Any]) -> None:
    await remember(visitor.user, "Alice drinks tea", kind="note", namespace="home")
    await visitor.get("memories", kind="note", namespace="home", q="tea", sort="text")
    assert "kind: note" in visitor.words
    tag = re.search(r'<a class="tag removable" href="\./([^"]*)" title="Remove this filter">kind', visitor.shown)
    assert tag
    assert unescape(tag[1]) == f"memories?user={visitor.user}&q=tea&namespace=home&sort=text"


async def test_the_score_is_explained_in_words(
    visitor: Visitor, remember: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    await remember(visitor.user, "Alice drinks her coffee black.")

    async def compared_by_meaning() -> bool:
        await visitor.get("memories", q="black coffee")
        return "Meaning of the text" in visitor.words

    await eventually(compared_by_meaning)
    assert "Why it is here" in visitor.words
    assert "Words in common" in visitor.words


async def test_facts_that_disagree_are_shown(visitor: Visitor, remember: Callable[..., Any]) -> None:
    await remember(visitor.user, "budget=40K | lead=Ada", app="claude")
    await remember(visitor.user, "budget=50K", app="cursor")
    await remember(visitor.user, "Nothing of this kind")
    await visitor.get("memories", only="disputed")
    assert "2 memories" in visitor.words
    await visitor.get("memories", q="budget")
    assert "These facts disagree:" in visitor.words


async def test_what_was_never_recalled_is_listed_oldest_first_and_changed(
    visitor: Visitor, services: Services, remember: Callable[..., Any]
) -> None:
    app = await services.directory.caller(visitor.user, "claude")
    for text in ("Old and unread", "Read by claude", "New and unread"):
        await remember(visitor.user, text)
    await services.memories.list(app, MemoryQuery(text="Read by"))
    await visitor.get("activity")
    assert f"memories?user={visitor.user}&amp;only=never&amp;sort=oldest" in visitor.shown
    await visitor.get("memories", only="never", sort="oldest")
    assert "2 memories No assistant has been given these in the 365 days" in visitor.words
    assert visitor.words.index("Old and unread") < visitor.words.index("New and unread")
    assert "Read by claude" not in visitor.words
    await picked(visitor, action="archive", all="1", only="never")
    assert "Archived 2 memories." in visitor.words
    await undo(visitor)
    await visitor.get("memories", only="never")
    assert "2 memories" in visitor.words


async def test_a_key_that_only_reads_sees_no_buttons(make_client: Any, services: Services, new_user: str) -> None:
    owner = await services.directory.caller(new_user, None, owner=True)
    await services.memories.add(owner, MemoryCreate(text="Something"))
    made = await services.keys.create(LOCAL, KeyCreate(name="reader", user_id=new_user, scopes=[Scope.READ]))
    async with make_client(access={"require": "always"}) as http:
        headers = {"Authorization": f"Bearer {made.key}", "Accept": "text/html"}
        shown = (await http.get("/ui/memories", headers=headers)).text
    assert "Something" in shown
    assert "<button name=" not in shown
    assert 'type="checkbox"' not in shown
