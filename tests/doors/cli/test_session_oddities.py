"""Whatever a transcript holds, `hook session-end --log` stores what was said, or names what it left out."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from openmemory.doors.cli.left_out import left_out_of_sessions
from openmemory.embedded.folder import running_service
from tests.doors.cli.test_hook import AMPLE, SILENT, Outcome, hook

Run = Callable[..., subprocess.CompletedProcess[str]]

AT = "2026-05-01T10:00:00.000Z"
NOT_READ = "its line cannot be read as a JSON object"
NO_TEXT = "it is no text, but an image or a document"
NO_TIME = "created_at: "


class Oddity(NamedTuple):
    """A line of a transcript, the texts that are stored of it, and the beginning of what is named."""

    line: bytes
    stored: tuple[str, ...] = ()
    named: str | None = None


def entry(content: Any, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"type": role, "message": {"role": role, "content": content}, "timestamp": AT} | more


def odd(content: Any, *stored: str, named: str | None = None, **more: Any) -> Oddity:
    return Oddity(json.dumps(entry(content, **more)).encode(), stored, named)


LONG = "".join(f"word {number} " for number in range(9_000)).strip()
ODDITIES = {
    "half of a surrogate pair": odd("cut \ud83d here", "cut \ufffd here"),
    "a whole pair": odd("rocket \U0001f680", "rocket \U0001f680"),
    "an escaped NUL": odd("nul \0 here", "nul \ufffd here"),
    "a raw NUL": Oddity(json.dumps(entry("raw # nul")).encode().replace(b"#", b"\0"), ("raw \ufffd nul",)),
    "an unreadable time": odd("said at noon", "said at noon", timestamp="yesterday", named=NO_TIME),
    "a time in milliseconds": odd("said in May", "said in May", timestamp=1_777_629_600_000),
    "a time without an offset": odd("said at ten", "said at ten", timestamp="2026-05-01T10:00:00", named=NO_TIME),
    "a time that is NaN": odd("said never", "said never", timestamp=float("nan")),
    "a long message": odd(LONG, LONG[:16_000], LONG[16_000:32_000], LONG[32_000:48_000], LONG[48_000:64_000],
                          LONG[64_000:80_000], LONG[80_000:]),
    "invalid UTF-8": Oddity(json.dumps(entry("caf# au lait")).encode().replace(b"#", b"\xe9"), ("caf\ufffd au lait",)),
    "a line that ends in CRLF": Oddity(json.dumps(entry("from Windows")).encode() + b"\r", ("from Windows",)),
    "a line that is no JSON": Oddity(b'{"type": "user", broken', named=NOT_READ),
    "a line that was cut by the next": Oddity(b'{"type": "user", "mess{"type": "user"}', named=NOT_READ),
    "deep nesting": Oddity(b'{"type": "user", "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", named=NOT_READ),
    "a list in place of an object": Oddity(b'["user"]', named=NOT_READ),
    "NaN beside the message": odd("with a cost", "with a cost", costUSD=float("nan")),
    "an id of another message": odd("another text of this id", "another text of this id", uuid="same"),
    "the message with this id": odd("the text of this id", "the text of this id", uuid="same"),
    "an id that is a number": odd("number as id", "number as id", uuid=7),
    "an id that no message can have": odd("id with lines", "id with lines", uuid="a\nb" * 200),
    "no content": odd(""),
    "null in place of content": odd(None),
    "a list of parts": odd([{"type": "text", "text": "part one"}, "part two", {"text": "part three"}],
                           "part one\npart two\npart three"),
    "a part without a text": odd([{"type": "text", "text": None}, {"type": "text", "text": "beside"}], "beside"),
    "the result of a tool, with a text": odd(
        [{"type": "tool_result", "tool_use_id": "t", "content": "the output"}, {"type": "text", "text": "and go on"}],
        "and go on", toolUseResult={"stdout": "the output"}),
    "only the result of a tool": odd([{"type": "tool_result", "content": "the output"}], toolUseResult="the output"),
    "an image": odd([{"type": "image", "source": {"data": "aGk="}}], named=NO_TEXT),
    "a number in place of a text": odd(42, "42"),
    "an object in place of a text": odd({"type": "text", "text": "a single part"}, "a single part"),
    "a message that is a text": Oddity(json.dumps({"type": "user", "message": "bare"}).encode(), ("bare",)),
    "an unknown role": odd("who says this?", role="human", named="its role is not known"),
    "a mark of the byte order": Oddity(b"\xef\xbb\xbf" + json.dumps(entry("after a mark")).encode(), ("after a mark",)),
    "a blank line": Oddity(b"  "),
}  # fmt: skip


class Logged:
    """A session whose transcript is logged to a running service."""

    def __init__(self, served: Path, user: str, folder: Path) -> None:
        info = running_service(served)
        assert info is not None
        self.transcript = folder / "session.jsonl"
        self._cache = folder / "cache"
        self._where = ("--url", info.url, "--user", user, "--namespace", "odd", "--log", AMPLE)

    def ends(self, *arguments: str) -> Outcome:
        stdin = json.dumps({"cwd": "/", "transcript_path": str(self.transcript)}).encode()
        where = {"XDG_CACHE_HOME": str(self._cache), "HOME": str(self._cache)}
        return hook("session-end", *self._where, *arguments, stdin=stdin, **where)

    @property
    def sessions(self) -> Path:
        return next(self._cache.rglob("sessions"))


@pytest.fixture
def logged(served: Path, user: str, tmp_path: Path) -> Logged:
    return Logged(served, user, tmp_path)


@pytest.fixture
def stored(om: Run, user: str) -> Callable[[], list[str]]:
    """Returns the texts of all messages that are stored, sorted."""

    def read() -> list[str]:
        found = json.loads(om("threads", "list", "--user", user, "--json").stdout)["items"]
        texts = []
        for thread in found:
            shown = om("threads", "show", thread["thread_id"], "--user", user, "--json", "--limit", "100")
            texts += [item["content"] for item in json.loads(shown.stdout)["items"]]
        return sorted(texts)

    return read


@pytest.mark.slow
def test_nothing_is_lost_and_all_that_is_left_out_is_named(
    logged: Logged, stored: Callable[[], list[str]], om: Run, user: str
) -> None:
    logged.transcript.write_bytes(b"".join(odd.line + b"\n" for odd in ODDITIES.values()))
    assert logged.ends("--verbose") == SILENT
    expected = [text.strip() for odd in ODDITIES.values() for text in odd.stored]
    assert [text.strip() for text in stored()] == sorted(expected)
    [session] = left_out_of_sessions(str(logged.sessions))
    assert session.waiting is None
    assert session.transcript == str(logged.transcript)
    due = [odd.named for odd in ODDITIES.values() if odd.named]
    assert sum(session.messages.values()) == len(due)
    for named in due:
        assert sum(count for why, count in session.messages.items() if why.startswith(named)) == due.count(named)
    assert logged.ends() == SILENT
    assert len(stored()) == len(expected)
    told = om("doctor", XDG_CACHE_HOME=str(logged.sessions.parents[1]))
    assert re.search(rf"left out of a session\t4\t{NOT_READ} \({logged.transcript}\)", told.stdout), told.stdout


def test_a_last_line_is_stored_once_it_is_whole(logged: Logged, stored: Callable[[], list[str]]) -> None:
    whole, cut = (json.dumps(entry(text)).encode() for text in ("without an end of line", "cut in two"))
    logged.transcript.write_bytes(whole)
    assert logged.ends() == SILENT
    assert stored() == ["without an end of line"]
    logged.transcript.write_bytes(whole + b"\n" + cut[:30])
    assert logged.ends() == SILENT
    logged.transcript.write_bytes(whole + b"\n" + cut)
    assert logged.ends() == SILENT
    assert stored() == ["cut in two", "without an end of line"]
    assert left_out_of_sessions(str(logged.sessions)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--namespace", "a\nb"), "namespace: "), (("--url", "http://127.0.0.1:1"), "refused")],
    ids=["another field is refused", "no service"],
)
def test_a_session_that_could_not_be_stored_waits_and_is_named(
    logged: Logged, stored: Callable[[], list[str]], arguments: tuple[str, ...], words: str
) -> None:
    logged.transcript.write_text(json.dumps(entry("not lost")) + "\n")
    assert logged.ends(*arguments) == SILENT
    [session] = left_out_of_sessions(str(logged.sessions))
    assert words in (session.waiting or "")
    assert session.messages == {}
    assert logged.ends() == SILENT
    assert stored() == ["not lost"]
    assert left_out_of_sessions(str(logged.sessions)) == []


@pytest.mark.slow
def test_many_long_messages_are_sent_in_batches_that_the_service_takes(
    logged: Logged, stored: Callable[[], list[str]]
) -> None:
    texts = [f"message {number} " + "\U0001f680" * 15_000 for number in range(40)]
    logged.transcript.write_text("".join(json.dumps(entry(text)) + "\n" for text in texts))
    assert logged.ends() == SILENT
    assert stored() == sorted(texts)
