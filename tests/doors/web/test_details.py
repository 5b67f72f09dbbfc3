"""By whom a memory is, and where its details lead, as a browser without scripts sees it."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from openmemory.access.schemas import KeyCreate
from openmemory.identity.principal import LOCAL
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services
from tests.doors.web.conftest import Visitor


async def test_what_users_did_themselves_is_under_their_name(
    visitor: Visitor, services: Services, remember: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where assistants of this machine are looked for
    me = visitor.user
    await visitor.get("memories")
    await visitor.submit("memories", text="Alice drinks tea.", kind="note", namespace="home")
    [memory_id] = visitor.memory_ids
    assert f"just now {me} note home" in visitor.words
    await visitor.submit(f"memory/{memory_id}/edit", text="Alice drinks coffee.")
    assert f"Text changed by {me}, just now , revision 2" in visitor.words
    assert f"Written by {me} Written just now" in visitor.words
    await remember(me, "Bob drinks milk.", app="claude")
    await visitor.get("memories")
    assert "just now claude" in visitor.words
    await visitor.get("activity")
    assert f"{me} wrote 1 memory" in visitor.words
    assert "claude wrote 1 memory" in visitor.words
    for path in ("time", "time/changes", f"memory/{memory_id}"):
        await visitor.get(path, who=True)
        assert services.settings.access.default_app not in visitor.words.split(), path
    await visitor.get("connect")
    assert re.findall('<th scope="row">([^<]*)<', visitor.shown) == ["claude"]


async def test_with_a_key_of_your_own_you_are_you(make_client: Any, services: Services, new_user: str) -> None:
    owner = await services.directory.caller(new_user, None, owner=True)
    added = await services.memories.add(owner, MemoryCreate("Alice drinks tea."))
    keys = {
        app: (await services.keys.create(LOCAL, KeyCreate(name="k", user_id=new_user, app=app))).key
        for app in (None, "claude")
    }
    async with make_client(access={"require": "always"}) as http:

        async def opened(path: str, app: str | None) -> str:
            headers = {"Authorization": f"Bearer {keys[app]}", "Accept": "text/html"}
            answer = await http.get(f"/ui/{path}", headers=headers)
            assert answer.status_code == 200, answer.text
            return " ".join(re.sub("<[^>]*>", " ", answer.text).split())

        assert "Written by you" in await opened(f"memory/{added.id}", None)
        assert "You wrote 1 memory" in await opened("activity", None)
        assert f"Written by {new_user}" in await opened(f"memory/{added.id}", "claude")


async def test_the_page_of_a_memory_is_under_the_tab_of_the_list(
    visitor: Visitor, remember: Callable[..., Any]
) -> None:
    memory = await remember(visitor.user, "Alice drinks tea.")
    await visitor.get(f"memory/{memory['id']}")
    assert re.findall('aria-current="page">([^<]*)<', visitor.shown) == ["Memories"]


async def test_the_details_lead_to_more_of_the_same(visitor: Visitor, remember: Callable[..., Any]) -> None:
    same = {"app": "claude", "kind": "note", "namespace": "home", "thread_id": "thread 1"}
    await remember(visitor.user, "Alice drinks tea.", **same)
    await remember(visitor.user, "Bob drinks milk.", **same)
    await remember(visitor.user, "Something else")
    await visitor.get("memories", q="Bob", state="any")
    await visitor.get(f"memory/{visitor.memory_ids[0]}")
    details = visitor.shown.partition("<h2>Details</h2>")[2].partition("</section>")[0]
    links = dict(re.findall(r'href="\.\./([^"]*)">([^<]*)</a>', details))
    assert set(links.values()) == {"claude", "note", "home", "thread 1"}
    for href, words in links.items():
        path, _, query = unescape(href).partition("?")
        await visitor.get(path, **dict(parse_qsl(query)))
        assert "Alice drinks tea." in visitor.words, words
        assert "Bob drinks milk." in visitor.words, words
        assert "Something else" not in visitor.words, words
