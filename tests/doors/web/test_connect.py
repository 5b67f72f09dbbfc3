"""Connecting assistants at the page."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from openmemory.access.schemas import KeyCreate
from openmemory.connect.clients import assistants
from openmemory.identity.principal import LOCAL
from openmemory.services import Services
from tests.doors.rest.conftest import MakeClient
from tests.doors.web.conftest import Visitor

OUTSIDE = "http://memory.example:8765"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The home folder of an account without assistants."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    return tmp_path


def row(shown: str, name: str) -> str:
    """The text in the row of an assistant."""
    found = re.search(rf'<tr>\s*<th scope="row">{re.escape(name)}</th>.*?</tr>', shown, re.DOTALL)
    assert found, f"{name} has no row"
    return " ".join(re.sub("<[^>]*>", " ", found[0]).split())


def links(shown: str) -> dict[str, str]:
    """The links that an assistant opens, by the words on them."""
    found = re.findall(r'<a class="button" href="((?:cursor|vscode|lmstudio):[^"]+)" hx-boost="false">([^<]+)<', shown)
    return {words: unescape(address) for address, words in found}


async def test_every_assistant_can_be_added(visitor: Visitor) -> None:
    await visitor.get("connect")
    for one in assistants():
        assert one.title in visitor.words
        assert f"openmemory connect {one.app}" in visitor.words
    assert "None has written or read a memory yet." in visitor.words
    assert "http://localhost:8765/mcp/sse" in visitor.words


async def test_links_start_the_command_of_this_machine_for_the_shown_user(visitor: Visitor, services: Services) -> None:
    found = links(await visitor.get("connect"))
    assert sorted(found) == ["Add to Cursor", "Add to LM Studio", "Add to VS Code"]
    entry = json.loads(base64.b64decode(parse_qs(urlsplit(found["Add to Cursor"]).query)["config"][0]))
    assert entry["command"].endswith("openmemory")
    assert f"--data-dir={services.settings.data_dir}" in entry["args"]
    assert f"--user={visitor.user}" in entry["args"]
    assert entry["args"][-2:] == ["--client", "cursor"]
    vscode = json.loads(unquote(found["Add to VS Code"].partition("?")[2]))
    assert (vscode["name"], vscode["args"][-1]) == ("openmemory", "vscode")


async def test_what_an_assistant_did_is_shown(visitor: Visitor, remember: Callable[..., Any]) -> None:
    await remember(visitor.user, "One", app="cursor")
    await remember(visitor.user, "Two", app="cursor")
    await remember(visitor.user, "Three", app="my <script>")
    shown = await visitor.get("connect")
    assert row(shown, "Cursor") == "Cursor in use 2 (2) 0 never"
    assert row(shown, "my &lt;script&gt;") == "my &lt;script&gt; in use 1 (1) 0 never"
    assert "openmemory connect cursor" not in visitor.words


async def test_what_is_connected_on_this_machine_is_found(visitor: Visitor, home: Path) -> None:
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text('{"mcpServers": {"openmemory": {"command": "openmemory"}}}')
    (home / ".codex").mkdir()
    (home / ".lmstudio").mkdir()
    (home / ".lmstudio/mcp.json").write_text("{ broken")
    shown = await visitor.get("connect")
    assert row(shown, "Cursor") == "Cursor nothing yet connected on this machine 0 0 never"
    assert "<h3>Codex <span" in shown
    assert "<h3>LM Studio <span" in shown
    assert "<h3>Zed</h3>" in shown


async def test_from_another_machine_the_address_is_connected(
    make_client: MakeClient, services: Services, new_user: str, home: Path
) -> None:
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text('{"mcpServers": {"openmemory": {"command": "openmemory"}}}')
    key = await services.keys.create(LOCAL, KeyCreate(name="test", user_id=new_user))
    async with make_client(base_url=OUTSIDE, access={"require": "always"}, host="0.0.0.0") as http:
        await http.post("/ui/sign-in", data={"key": key.key}, headers={"Origin": OUTSIDE})
        shown = (await http.get("/ui/connect")).text
    assert f"openmemory connect cursor --remote={OUTSIDE} --key=KEY<" in shown
    assert f">{OUTSIDE}/mcp</code>" in shown
    assert "on this machine" not in shown.replace("On the machine of the assistant", "")
    assert key.key not in shown
    assert str(home) not in shown
    entry = json.loads(base64.b64decode(parse_qs(urlsplit(links(shown)["Add to Cursor"]).query)["config"][0]))
    assert entry == {"url": f"{OUTSIDE}/mcp", "headers": {"Authorization": "Bearer KEY"}}


async def test_a_key_for_every_user_names_the_user_in_the_address(
    make_client: MakeClient, services: Services, new_user: str
) -> None:
    await services.directory.caller(new_user, None, owner=True)
    key = await services.keys.create(LOCAL, KeyCreate(name="test", everyone=True))
    async with make_client(base_url=OUTSIDE, access={"require": "always"}, host="0.0.0.0") as http:
        await http.post("/ui/sign-in", data={"key": key.key}, headers={"Origin": OUTSIDE})
        shown = (await http.get("/ui/connect", params={"user": new_user})).text
    assert f"--remote={OUTSIDE} --key=KEY --user={new_user}" in shown
    assert f"{OUTSIDE}/mcp/APP/http/{new_user}" in shown
