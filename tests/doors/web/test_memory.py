"""The page of one memory in a browser without scripts."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any
from uuid import uuid4

import httpx
import pytest

from openmemory.access.schemas import GrantCreate
from openmemory.doors.web.differences import MOST_WORDS, Piece, difference
from openmemory.memories.lifecycle.superseding import supersede
from openmemory.services import Services
from tests.doors.web.conftest import Visitor


@pytest.fixture
async def page(visitor: Visitor, remember: Callable[..., Any]) -> str:
    """The address of the page of a memory, which the visitor has opened."""
    added = await remember(
        visitor.user, "Alice drinks her coffee black.", app="claude", categories=["drinks"], metadata={"source": "talk"}
    )
    await visitor.get(address := f"memory/{added['id']}")
    return address


async def act(visitor: Visitor, page: str, action: str, *, status: int = 200, **fields: Any) -> str:
    """Does what a button of the page does."""
    fields = {"id": page.removeprefix("memory/"), "next": page, "action": action, **fields}
    return await visitor.submit("memories/change", status=status, **fields)


async def undo(visitor: Visitor, page: str) -> str:
    """Presses Undo."""
    form = re.search(
        r'action="([^"]*)"[^>]*>\s*<input type="hidden" name="token"[^>]*><input[^>]*>\s*(.*)\s*<button[^>]*data-undo',
        visitor.shown,
    )
    assert form, "the page offers no undo"
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form[2]))
    path = form[1].partition("?")[0].removeprefix("../").removeprefix("./")
    return await visitor.submit(path, next=page, **fields)


async def test_it_shows_what_is_known(visitor: Visitor, page: str) -> None:
    for words in ("Alice drinks her coffee black.", "Written by claude", "drinks", "source talk", "Added by claude"):
        assert words in visitor.words
    assert "No app has read it yet." in visitor.words


async def test_what_is_not_there_or_not_theirs_is_not_found(visitor: Visitor, remember: Callable[..., Any]) -> None:
    other = await remember(f"{visitor.user}-else", "Somebody's secret")
    for id_ in (uuid4(), other["id"]):
        await visitor.get(f"memory/{id_}", status=404)
        assert "Memory not found" in visitor.words
        assert "secret" not in visitor.words


async def test_the_first_characters_of_an_id_lead_to_its_page(visitor: Visitor, page: str) -> None:
    await visitor.get(page[:-20])
    assert page in visitor.at
    assert "Alice drinks her coffee black." in visitor.words


async def test_what_is_no_id_is_refused_in_words(visitor: Visitor) -> None:
    await visitor.get("memory/none", status=422)
    assert "memory_id: " in visitor.words


async def test_an_edit_shows_the_difference_and_is_undone(visitor: Visitor, page: str) -> None:
    await visitor.submit(f"{page}/edit", text="Alice drinks her coffee with milk.")
    assert "Saved." in visitor.words
    assert "<del>black</del><ins>with milk</ins>" in visitor.shown
    await undo(visitor, page)
    assert "It is as before." in visitor.words
    assert (
        '<div class="whole" dir="auto" tabindex="0" role="group" aria-label="Text">Alice drinks her coffee black.</div>'
        in visitor.shown
    )


@pytest.mark.slow
async def test_metadata_is_edited_and_undone(visitor: Visitor, page: str) -> None:
    assert '{\n  "source": "talk"\n}</textarea>' in unescape(visitor.shown)
    new = '{"big": 123456789012345678901234567890, "source": "<b>", "tags": ["a"]}'
    await visitor.submit(f"{page}/edit", text="Alice drinks tea.", metadata=new)
    for words in ("big 123456789012345678901234567890", "source <b>", 'tags ["a"]'):
        assert words in visitor.words
    await visitor.submit(f"{page}/edit", text="Alice drinks tea.", metadata=new)
    assert "Nothing changed" in visitor.words
    await visitor.submit(f"{page}/edit", text="Alice drinks tea.", metadata=" ")
    assert "Metadata changed by" in visitor.words
    assert "source <b>" not in visitor.words
    await undo(visitor, page)
    assert "source <b>" in visitor.words
    await visitor.submit(f"{page}/edit", text="Alice drinks milk.")  # a form without the field leaves it
    assert "source <b>" in visitor.words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metadata", "status", "told"),
    [
        ("{", 422, 'metadata: must be a JSON object such as {"source": "notebook"}: '),
        ("[1]", 422, 'metadata: must be a JSON object such as {"source": "notebook"}'),
        ('{"a": NaN}', 422, "metadata: must be a JSON object"),
        ('{"a": 1e999}', 422, "metadata: must be a JSON object"),
        ("[" * 100_000, 422, "metadata: must be a JSON object"),
        ('{"a": ' + "1" * 20 + ', "b": ' + "[" * 100_000, 422, "metadata: must be a JSON object"),
        ('{"a": "\\u0000"}', 422, "metadata.a: "),
        ('{"a": "' + "x" * 100_000 + '"}', 413, "metadata: has 100,008 bytes; the limit is"),
    ],
)
async def test_metadata_that_is_no_object_is_refused_by_name(
    visitor: Visitor, page: str, metadata: str, status: int, told: str
) -> None:
    for path, more in ((f"{page}/edit", {}), ("memories", {"next": page})):
        await visitor.get(page)
        await visitor.submit(path, status=status, text="Alice drinks tea.", metadata=metadata, **more)
        assert told in visitor.words
    await visitor.get(page)
    assert "Alice drinks her coffee black." in visitor.words
    assert "source talk" in visitor.words


async def test_a_memory_is_added_with_metadata(visitor: Visitor) -> None:
    await visitor.get("memories")
    await visitor.submit("memories", text="Alice sails.", metadata='{"source": "notebook"}')
    [id_] = re.findall(r'href="\./memory/([0-9a-f-]{36})', visitor.shown)
    await visitor.get(f"memory/{id_}")
    assert "source notebook" in visitor.words


@pytest.mark.slow
async def test_an_edit_is_not_undone_over_a_later_one(visitor: Visitor, page: str) -> None:
    await visitor.submit(f"{page}/edit", text="Second")
    await visitor.submit(f"{page}/edit", text="Third")
    await visitor.submit(f"{page}/revert", revision="2", status=409)
    assert "The memory was changed since" in visitor.words


async def test_an_edit_does_not_overwrite_a_change_that_the_page_did_not_show(visitor: Visitor, page: str) -> None:
    await visitor.get(page)
    assert 'name="revision" value="1"' in visitor.shown
    await visitor.submit(f"{page}/edit", text="From another tab")
    await visitor.submit(f"{page}/edit", text="From here", revision="1", status=409)
    assert "The memory was changed since" in visitor.words
    await visitor.get(page)
    assert "From another tab" in visitor.words
    await visitor.submit(f"{page}/edit", text="From here", revision="two", status=422)
    assert "revision: must be a whole number" in visitor.words


async def test_an_edit_to_a_known_text_is_refused(visitor: Visitor, page: str, remember: Callable[..., Any]) -> None:
    await remember(visitor.user, "Known", app="claude")
    await visitor.submit(f"{page}/edit", text="Known", status=409)
    assert "Another active memory of the same app and namespace says exactly this." in visitor.words
    await visitor.get(page)
    await visitor.submit(f"{page}/edit", text=" ", status=422)
    assert "text:" in visitor.words


@pytest.mark.parametrize(("action", "words"), [("pause", "Paused"), ("archive", "Archived"), ("delete", "Deleted")])
async def test_it_is_put_aside_and_comes_back(visitor: Visitor, page: str, action: str, words: str) -> None:
    await act(visitor, page, action)
    assert f"{words} 1 memory." in visitor.words
    assert f"{words} by {visitor.user}" in visitor.words
    await undo(visitor, page)
    assert "Undone for 1 memory." in visitor.words
    assert re.search(r'class="tag good">active', visitor.shown)


async def test_it_is_erased_after_a_question(visitor: Visitor, page: str) -> None:
    await act(visitor, page, "delete")
    assert "Erase for good" in visitor.words
    await act(visitor, page, "erase", next="memories?state=deleted")
    assert "This cannot be undone." in visitor.words
    await visitor.submit("memories/erase", id=page.removeprefix("memory/"), next="memories?state=deleted")
    assert "Erased 1 memory for good." in visitor.words
    await visitor.get(page, status=404)


async def test_it_is_filed_and_expires(visitor: Visitor, page: str) -> None:
    await visitor.submit(f"{page}/file", categories="work, Plans")
    assert "Filed under plans, work." in visitor.words
    await undo(visitor, page)
    assert "Filed under drinks." in visitor.words
    await act(visitor, page, "expire", expires="2199-05-31")
    assert "expires 1 Jun 2199" in visitor.words
    await undo(visitor, page)
    assert "Expires never" in visitor.words
    await act(visitor, page, "expire", expires="2001-05-31", status=422)
    assert "must lie in the future" in visitor.words


@pytest.mark.slow
async def test_it_names_what_superseded_it(
    visitor: Visitor, page: str, remember: Callable[..., Any], services: Services
) -> None:
    owner = await services.directory.caller(visitor.user, None, owner=True)
    newer = await remember(visitor.user, "Alice drinks tea.")
    async with services.database.transaction() as tx:
        await supersede(tx, owner, page.removeprefix("memory/"), newer["id"])
    await visitor.get(page)
    assert "This is no longer true: a newer memory took its place" in visitor.words
    await visitor.get(f"memory/{newer['id']}")
    assert "Took the place of Alice drinks her coffee black." in visitor.words


async def test_it_tells_who_read_it_and_who_may(
    visitor: Visitor, page: str, client: httpx.AsyncClient, services: Services
) -> None:
    asked = {"query": "coffee", "user_id": visitor.user, "app": "cursor"}
    assert (await client.post("/api/v1/memories/search", json=asked)).status_code == 200
    owner = await services.directory.caller(visitor.user, None, owner=True)
    await services.grants.create(owner, GrantCreate(effect="deny", app="claude", object_type="all"))
    await visitor.get(page)
    assert "cursor search for “coffee”" in visitor.words
    await visitor.get(page, who=1)
    assert "claude no denied by the rule that hides everything from claude" in visitor.words
    assert "cursor yes no rule speaks of it" in visitor.words


@pytest.mark.slow
async def test_related_memories_are_linked(visitor: Visitor, page: str, remember: Callable[..., Any]) -> None:
    for number in range(7):
        await remember(visitor.user, f"Drink {number}", categories=["drinks"])
    await visitor.get(page)
    assert "Related Drink 6" in visitor.words
    await visitor.get(page, related=2)
    assert "Drink 0" in visitor.words


@pytest.mark.slow
async def test_many_changes_are_shown_on_request(visitor: Visitor, page: str) -> None:
    for number in range(22):
        await visitor.submit(f"{page}/edit", text=f"Text {number}")
    assert "Show 3 older changes" in visitor.words
    await visitor.get(page, all=1)
    assert "Added by claude" in visitor.words


def test_a_difference_shortens_what_is_the_same() -> None:
    before, after = (" ".join(f"{name}{number}" for number in range(200)) for name in ("before", "after"))
    pieces = difference(f"{before} old {after}", f"{before} new {after}")
    assert [(piece.kind, len(piece.text) < 200) for piece in pieces] == [
        ("same", True), ("removed", True), ("added", True), ("same", True),
    ]  # fmt: skip


def test_long_texts_are_compared_by_lines_and_very_long_ones_not_at_all() -> None:
    lines = [f"line {number}\n" for number in range(MOST_WORDS)]
    pieces = difference("".join(lines), "".join([*lines[:9], "new\n", *lines[10:]]))
    assert Piece("removed", "line 9\n") in pieces
    assert Piece("added", "new\n") in pieces
    assert [piece.kind for piece in difference("".join(lines) + "a\n", "".join(lines))] == ["removed", "added"]
