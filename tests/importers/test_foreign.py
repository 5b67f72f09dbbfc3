"""Files of other programs are told what they are, and what can be done with them."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest

from openmemory.backup.format import TABLES
from openmemory.importers.cleaning import Unusable, moment, names
from openmemory.importers.foreign import foreign_json, foreign_zip
from openmemory.importers.source import BadSource, FileKind, kind_of

CHATGPT = [{"title": None, "create_time": 1.7e9, "mapping": {"a": {"message": None}}, "current_node": "a"}]
CLAUDE = [{"uuid": "u", "name": "", "chat_messages": [{"sender": "human", "text": 'My "mapping": none'}]}]


def zipped(**files: Any) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content if isinstance(content, str) else json.dumps(content))
    return file.getvalue()


FOREIGN: dict[str, tuple[bytes, str, str]] = {
    "ChatGPT": (json.dumps(CHATGPT, indent=2).encode(), "an export of ChatGPT", "openmemory threads log"),
    "ChatGPT, zipped": (zipped(**{"x/conversations-000.json": CHATGPT, "chat.html": ""}), "an export of ChatGPT",
                        "openmemory threads log"),
    "Claude": (b"\xef\xbb\xbf" + json.dumps(CLAUDE).encode(), "an export of Claude", "openmemory threads log"),
    "Claude, zipped": (zipped(**{TABLES: [], "users.json": [], "conversations.json": CLAUDE}), "an export of Claude",
                       "openmemory threads log"),
    "memories of Claude": (json.dumps([{"conversations_memory": "Likes tea"}]).encode(), "memories of Claude",
                           "openmemory import FILE"),
    "messages": (json.dumps([{"role": "user", "content": "hello"}]).encode(), "a list of messages",
                 "openmemory threads log"),
    "Gemini": (json.dumps([{"header": "Gemini", "titleUrl": "x"}]).encode(), "Google Takeout", "threads log"),
    "server-memory": (b'{"type": "entity", "name": "Ada", "entityType": "person", "observations": []}\n',
                      "a knowledge graph", "openmemory import FILE"),
    "Letta": (json.dumps({"agents": [], "blocks": []}).encode(), "an agent file of Letta", "openmemory import FILE"),
    "a JSON array": (json.dumps([{"text": "Likes tea"}]).encode(), "a JSON array of memories", "jq -c"),
    "Slack, zipped": (zipped(**{"users.json": [], "channels.json": []}), "an export of Slack", "threads log"),
    "notes, zipped": (zipped(**{"a.md": "# A", "b/c.md": "# C"}), "a folder of Markdown", "openmemory ingest"),
    "a Word document": (zipped(**{"[Content_Types].xml": "", "word/document.xml": ""}), "a document", "documents add"),
    "another zip": (zipped(**{"a.bin": "x"}), "of another program", "openmemory export"),
    "Markdown": (b"# Notes\n\n- tea\n", "Markdown or plain text", "openmemory documents add"),
    "PDF": (b"%PDF-1.7\n%\xe2\xe3", "a document", "openmemory documents add"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "name", "remedy"), FOREIGN.values(), ids=FOREIGN)
def test_a_file_of_another_program_is_refused_with_its_kind_and_a_remedy(
    content: bytes, name: str, remedy: str
) -> None:
    with pytest.raises(BadSource, match=name) as refused:
        kind_of(io.BytesIO(content))
    assert remedy in (refused.value.hint or "")


@pytest.mark.parametrize(
    "content",
    [
        [{"memory": "Likes tea", "metadata": {"role": "user", "content": "x", "text": "y"}}],
        {"results": [{"memory": "Likes tea", "text": "x"}]},
        [{"data": "Likes tea", "role": "user", "content": "x"}],
    ],
)
def test_memories_of_mem0_are_not_taken_for_anything_else(content: Any) -> None:
    assert kind_of(io.BytesIO(json.dumps(content).encode())) is FileKind.MEM0


def test_our_own_and_broken_archives_are_left_to_those_who_read_them() -> None:
    assert foreign_zip(io.BytesIO(zipped(**{TABLES: {"user": {}}})), TABLES) is None
    assert foreign_zip(io.BytesIO(zipped(a="b")[:-30]), TABLES) is None
    assert foreign_json(b'{"a": 1}') is None


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("pets", ["pets"]), ("pets, work ,", ["pets", "work"]), (["pets", " ", "pets", 3], ["pets"]),
        ('["pets", "work"]', ["pets", "work"]), ([{"name": "pets"}], ["pets"]), ("[draft", ["[draft"]), (None, []),
        (7, []),
    ],
)  # fmt: skip
def test_categories_come_in_several_forms(value: Any, found: list[str]) -> None:
    assert names(value) == found


@pytest.mark.parametrize(
    "value", [1777629600, 1777629600.0, 1777629600000, "1777629600000", 1777629600000000, 1777629600 * 10**9,
              "2026-05-01T10:00:00Z", "2026-05-01T12:00:00+02:00", "2026-05-01 10:00:00"],
)  # fmt: skip
def test_a_time_of_an_old_installation_is_read_in_any_unit(value: Any) -> None:
    assert moment("created_at", value) == "2026-05-01T10:00:00+00:00"


@pytest.mark.parametrize("value", [True, float("nan"), 10**40, "yesterday", [], "1777629600 s"])
def test_what_is_no_time_is_named(value: Any) -> None:
    with pytest.raises(Unusable, match="created_at: must be"):
        moment("created_at", value)
