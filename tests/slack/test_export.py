"""Reading exports, also those that somebody made to do harm."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from openmemory.errors import Invalid
from openmemory.slack.export import SlackExport, opened
from openmemory.slack.schemas import SlackMessage
from openmemory.slack.texts import Person, message_of, messages_of, people_of, plain_text
from tests.slack.workspace import ADA, BOB, CROWD, DIRECT, GENERAL, SECRET, Workspace, ts_at, zipped

PEOPLE = {ADA: Person("ada", "Ada Lovelace"), BOB: Person("bob", "")}


def _read(export: SlackExport) -> dict[str, list[str]]:
    return {
        one.channel.id: [said.ts for day in export.days(one) for said in messages_of(day, export.people, Counter())]
        for one in export.channels
    }


def test_a_folder_and_its_zip_files_read_the_same(workspace: Workspace, tmp_path: Path) -> None:
    folder = workspace.export(tmp_path / "export")
    with opened(folder) as export:
        read = _read(export)
        assert {one.channel.id: (one.channel.name, one.channel.shared) for one in export.channels} == {
            GENERAL: ("general", True), SECRET: ("secret", False), DIRECT: ("dm-ada-bob", False),
            CROWD: ("mpdm-ada--bob--cleo-1", False),
        }  # fmt: skip
    assert {channel: len(all_) for channel, all_ in read.items()} == {GENERAL: 7, SECRET: 1, DIRECT: 1, CROWD: 1}
    for below in ("", "Analytical Engines Slack export/"):
        with opened(zipped(folder, tmp_path / "export.zip", below)) as export:
            assert _read(export) == read


def test_only_listed_folders_are_read_and_links_are_not_followed(workspace: Workspace, tmp_path: Path) -> None:
    folder = workspace.export(tmp_path / "export")
    outside = tmp_path / "outside"
    outside.mkdir()
    message = json.dumps([{"ts": ts_at(0), "text": "A secret of the machine", "user": ADA}])
    (outside / "2026-03-02.json").write_text(message)
    (folder / "linked").symlink_to(outside)
    (folder / "stranger").mkdir()
    (folder / "stranger" / "2026-03-02.json").write_text(message)
    (folder / "general" / "2026-03-09.json").symlink_to(outside / "2026-03-02.json")
    names = [
        {"id": f"C{number}", "name": name} for number, name in enumerate(("../outside", "linked", "/etc", "."), 10)
    ]
    (folder / "channels.json").write_text(json.dumps([*workspace.channels[:1], *names]))
    with opened(folder) as export:
        read = _read(export)
        assert export.unlisted == ["stranger"]
    assert [read[f"C{number}"] for number in range(10, 14)] == [[]] * 4
    assert len(read[GENERAL]) == 7


@pytest.mark.parametrize("content", [b"{}", b"[" * 100_000, b"[1", b"\xff", b'"x"'])
def test_a_file_that_is_no_list_is_named(workspace: Workspace, tmp_path: Path, content: bytes) -> None:
    folder = workspace.export(tmp_path / "export")
    (folder / "general" / "2026-03-02.json").write_bytes(content)
    with opened(folder) as export, pytest.raises(Invalid, match=r"general/2026-03-02\.json"):
        _read(export)


def test_what_is_no_export_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file.zip").write_bytes(b"PK\x03\x04 no")
    for path in (tmp_path, tmp_path / "file.zip", tmp_path / "nowhere"):
        with pytest.raises(Invalid, match="path"), opened(path):
            pass


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("&lt;b&gt; &amp;amp;", "<b> &amp;"), ("<@U0ADA> <@U0BOB> <@U9>", "@Ada Lovelace @bob @U9"),
        ("<@U9|nina> <#C1|shop> <#C2> <#C3>", "@nina #shop #two #C3"),
        ("<!here> <!subteam^S1|@ops> <!subteam^S1> <!date^1^{date}|May 8>", "@here @ops @subteam May 8"),
        ("<https://x.org> <https://x.org|x>", "https://x.org x (https://x.org)"),
        ("a < b > c <>", "a  b  c "), ("<<<@U0ADA>", "<<@Ada Lovelace"),
    ],
)  # fmt: skip
def test_markup_becomes_text(text: str, shown: str) -> None:
    assert plain_text(text, PEOPLE, {"C2": "two"}) == shown


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just(ts_at(0)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = st.sampled_from(
    ["ts", "thread_ts", "text", "user", "subtype", "files", "attachments", "user_profile", "bot_profile", "username"]
)


@pytest.mark.slow
@hypothesis.given(st.dictionaries(_FIELDS, _JSON, max_size=8), _JSON)
def test_any_json_is_a_message_or_a_reason(raw: dict[str, Any], anything: Any) -> None:
    for one in (raw, {**raw, "ts": ts_at(0), "text": "x"}, anything):
        found = message_of(one, PEOPLE)
        if isinstance(found, SlackMessage):
            "".join((found.text, found.author, found.user_name, found.real_name)).encode()
            assert found.text.strip()
            assert "\x00" not in found.text
    people_of([raw, anything])
