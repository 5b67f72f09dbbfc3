from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from openmemory.embedded.folder import running_service
from tests.backup.archives import tables_of
from tests.clusters import furnish

Run = Callable[..., subprocess.CompletedProcess[str]]


def write(file: Path, *memories: dict[str, Any] | str) -> str:
    lines = [memory if isinstance(memory, str) else json.dumps(memory) for memory in memories]
    file.write_text("\n".join(lines) + "\n")
    return str(file)


def listed(om: Run, user: str, state: str = "all") -> list[dict[str, Any]]:
    answer = json.loads(om("list", "--user", user, "--state", state, "--limit", "100", "--json").stdout)
    return list(answer["items"])


def test_good_lines_are_stored_whatever_stands_between_them(om: Run, user: str, tmp_path: Path) -> None:
    file = write(
        tmp_path / "some.jsonl",
        {"text": "First", "app": "notes", "namespace": "home", "created_at": "2020-05-01T12:00:00Z", "kind": "fact"},
        "rubbish",
        {"text": ""},
        "",
        {"text": "Second", "metadata": {"page": 3}, "categories": ["books"], "importance": 0.5},
        {"text": "Third", "importance": 7},
        {"text": "Fourth", "created_at": "yesterday"},
        {"text": "First", "app": "notes", "namespace": "home"},
    )
    told = om("import", file, "--user", user)
    assert told.returncode == 1
    assert told.stdout == "2 added, 1 already there, 4 failed.\n"
    assert [line.partition(":")[0] for line in told.stderr.splitlines()] == ["line 2", "line 3", "line 6", "line 7"]
    assert "line 6: importance: " in told.stderr
    found = {item["content"]: item for item in listed(om, user)}
    assert found.keys() == {"First", "Second"}
    assert (found["First"]["app_name"], found["First"]["namespace"], found["First"]["kind"]) == (
        "notes",
        "home",
        "fact",
    )
    assert found["First"]["created_at"] == 1588334400
    assert (found["Second"]["metadata_"], found["Second"]["categories"]) == ({"page": 3}, ["books"])


def test_an_import_that_is_run_again_adds_nothing(om: Run, user: str, tmp_path: Path) -> None:
    file = write(
        tmp_path / "some.jsonl",
        *({"text": f"Fact {number}", "user": user} for number in range(450)),
        {"text": "Set aside", "user": user, "state": "archived"},
        {"text": "Hidden", "user": user, "state": "paused"},
        {"text": "Given up", "user": user, "state": "deleted"},
    )
    first = om("import", file, "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout) == {"added": 452, "already_there": 0, "deleted_left_out": 1, "failed": 0}
    assert [item["content"] for item in listed(om, user, "archived")] == ["Set aside"]
    assert [item["content"] for item in listed(om, user, "paused")] == ["Hidden"]
    again = om("import", "-", "--json", stdin=Path(file).read_text())
    assert json.loads(again.stdout) == {"added": 0, "already_there": 452, "deleted_left_out": 1, "failed": 0}


def test_an_import_that_ended_between_two_steps_is_finished_by_the_next(om: Run, user: str, tmp_path: Path) -> None:
    line = {"text": "To be archived", "created_at": "2020-05-01T12:00:00Z"}
    assert om("import", write(tmp_path / "half.jsonl", line), "--user", user).returncode == 0
    whole = write(tmp_path / "whole.jsonl", line | {"state": "archived"})
    for _ in range(2):
        assert om("import", whole, "--user", user).returncode == 0
        assert [(item["content"], item["state"]) for item in listed(om, user)] == [("To be archived", "archived")]


def test_a_number_that_json_cannot_say_fails_its_line_only(om: Run, user: str, tmp_path: Path) -> None:
    file = write(tmp_path / "inf.jsonl", {"text": "Good"}, '{"text": "Bad", "metadata": {"a": 1e999}}')
    told = om("import", file, "--user", user)
    assert "line 2: " in told.stderr
    assert [item["content"] for item in listed(om, user)] == ["Good"]


def test_lines_with_secrets_are_told_by_number_and_field_and_the_others_are_stored(
    om: Run, user: str, tmp_path: Path
) -> None:
    token = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    texts = ["One", f"Two {token}", "Three", {"token": token}, "Five"]
    lines = [{"text": each} if isinstance(each, str) else {"text": "Four", "metadata": each} for each in texts]
    told = om("import", write(tmp_path / "some.jsonl", *lines), "--user", user)
    assert (told.returncode, told.stdout) == (1, "3 added, 0 already there, 2 failed.\n")
    assert [line.partition(": looks")[0] for line in told.stderr.splitlines()] == [
        "line 2: text", "line 4: metadata.token",
    ]  # fmt: skip
    assert token not in told.stdout + told.stderr
    assert {item["content"] for item in listed(om, user)} == {"One", "Three", "Five"}
    none = om("import", write(tmp_path / "none.jsonl", lines[1], lines[3]), "--user", user)
    assert (none.returncode, none.stdout) == (1, "0 added, 0 already there, 2 failed.\n")
    assert [line.partition(": looks")[0] for line in none.stderr.splitlines()] == [
        "line 1: text", "line 2: metadata.token",
    ]  # fmt: skip


def test_a_paused_app_fails_its_own_lines_only(om: Run, user: str, tmp_path: Path) -> None:
    om("add", "Before", "--user", user, "--app", "noisy")
    om("apps", "pause", "noisy", "--user", user)
    lines = [{"text": f"Text {number}", "app": "noisy" if number == 3 else "calm"} for number in range(8)]
    told = om("import", write(tmp_path / "some.jsonl", *lines), "--user", user)
    assert told.returncode == 1
    assert told.stdout == "7 added, 0 already there, 1 failed.\n"
    assert told.stderr.startswith("line 4: ")


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_file_that_cannot_be_read_is_told_on_one_line(om: Run, tmp_path: Path, name: str) -> None:
    told = om("import", str(tmp_path / name))
    assert told.returncode == 2
    [line] = told.stderr.splitlines()
    assert str(tmp_path) in line


def test_an_export_moves_everything_to_another_user(om: Run, user: str, tmp_path: Path) -> None:
    file = write(
        tmp_path / "in.jsonl",
        *({"text": f"Fact {number}", "created_at": 1_600_000_000 + number} for number in range(150)),
        {
            "text": "Käse \u2028 \U0001f9c0", "app": "notes", "namespace": "home", "thread_id": "t", "kind": "fact",
            "key": "k", "importance": 0.25, "categories": ["food"], "metadata": {"a": [1, None]},
            "created_at": "2001-02-03T04:05:06Z", "expires_at": "2101-02-03T04:05:06Z", "state": "archived",
        },
    )  # fmt: skip
    assert om("import", file, "--user", user).returncode == 0
    out = tmp_path / "out.jsonl"
    told = om("export", str(out), "--user", user)
    assert told.returncode == 0, told.stderr
    assert out.stat().st_mode & 0o777 == 0o600
    exported = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(exported) == 151
    assert exported[0] | {"id": "", "updated_at": ""} == {
        "id": "", "user": user, "app": "notes", "namespace": "home", "thread_id": "t", "kind": "fact", "key": "k",
        "text": "Käse \u2028 \U0001f9c0", "metadata": {"a": [1, None]}, "categories": ["food"], "importance": 0.25,
        "state": "archived", "revision": 1, "created_at": "2001-02-03T04:05:06Z", "updated_at": "",
        "expires_at": "2101-02-03T04:05:06Z",
    }  # fmt: skip
    archive = tmp_path / "out.zip"
    assert om("export", str(archive), "--user", user).returncode == 0
    changed = {row["id"]: row["updated_at"][:19] for row in tables_of(archive.read_bytes())["memories"]}
    assert {line["id"]: line["updated_at"][:19] for line in exported} == changed
    assert [line["text"] for line in exported[1:]] == [f"Fact {number}" for number in range(150)]
    other = f"{user}-copy"
    moved = om("import", "-", stdin=out.read_text().replace(f'"user": "{user}"', f'"user": "{other}"'))
    assert moved.stdout == "151 added, 0 already there, 0 failed.\n"
    copied = [json.loads(line) for line in om("export", "--user", other).stdout.split("\n")[:-1]]
    own = {"id", "user", "updated_at"}
    assert [{k: v for k, v in line.items() if k not in own} for line in copied] == [
        {k: v for k, v in line.items() if k not in own} for line in exported
    ]


def test_an_export_of_some_states_holds_only_those(om: Run, user: str, tmp_path: Path) -> None:
    om("import", write(tmp_path / "in.jsonl", {"text": "Kept"}, {"text": "Away", "state": "paused"}), "--user", user)
    paused = om("export", "--user", user, "--state", "paused").stdout.splitlines()
    assert [json.loads(line)["text"] for line in paused] == ["Away"]
    assert om("export", "--user", user, "--state", "gone").returncode == 2


def test_an_export_that_fails_leaves_no_file(om: Run, tmp_path: Path) -> None:
    told = om("export", str(tmp_path / "out.jsonl"), "--user", "nobody-of-this-name")
    assert told.returncode == 1
    assert list(tmp_path.iterdir()) == []


class Shaky(BaseHTTPRequestHandler):
    """Passes requests on to a service; every other one it answers with 503 instead."""

    target = ""
    refused = 0
    passed = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if type(self).refused <= type(self).passed:
            type(self).refused += 1
            self.send_response(503)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        type(self).passed += 1
        answer = httpx.post(f"{self.target}{self.path}", content=body, headers={"Content-Type": "application/json"})
        self.send_response(answer.status_code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.mark.slow
def test_a_service_that_is_away_for_moments_costs_no_line(om: Run, user: str, served: Path, tmp_path: Path) -> None:
    service = running_service(served)
    assert service is not None
    handler = type("Handler", (Shaky,), {"target": service.url})
    file = write(tmp_path / "some.jsonl", *({"text": f"Fact {number}", "user": user} for number in range(600)))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            told = om("import", file, "--url", f"http://127.0.0.1:{proxy.server_port}")
        finally:
            proxy.shutdown()
            thread.join()
    assert (told.returncode, told.stdout) == (0, "600 added, 0 already there, 0 failed.\n"), told.stderr
    assert handler.refused == handler.passed == 3


@pytest.mark.slow
def test_ctrl_c_ends_an_import_that_waits_for_more_and_keeps_what_was_stored(om: Run, user: str, served: Path) -> None:
    command = [sys.executable, "-m", "openmemory", "import", "-", "--data-dir", str(served)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None
            # A line of another user sends the first one off.
            process.stdin.write(
                f'{{"text": "Stored", "user": "{user}"}}\n{{"text": "x", "user": "{user}-2"}}\n'.encode()
            )
            process.stdin.flush()
            deadline = time.monotonic() + 60
            while "Stored" not in om("list", "--user", user).stdout:
                assert time.monotonic() < deadline, "the first line was not stored in time"
            process.send_signal(signal.SIGINT)
            assert process.wait(5) == 130
            assert process.stdout is not None
            assert process.stdout.read() == b"1 added, 0 already there, 0 failed.\n"
        finally:
            process.kill()
    assert [item["content"] for item in listed(om, user)] == ["Stored"]


def test_a_line_with_a_secret_is_told_apart_without_repeating_it(om: Run, user: str, tmp_path: Path) -> None:
    token = "gh" + "p_" + "a1B2c3D4e5F6" * 3
    file = write(tmp_path / "some.jsonl", {"text": "First"}, {"text": f"My token is {token}"}, {"text": "Third"})
    told = om("import", file, "--user", user)
    assert told.stdout == "2 added, 0 already there, 1 failed.\n"
    assert told.stderr.startswith("line 2: text: looks like it holds a GitHub token; secrets are not stored")
    assert token not in told.stderr


@pytest.mark.slow
def test_a_redacted_line_that_was_put_away_is_not_imported_twice(run: Run, folder: Path, tmp_path: Path) -> None:
    token = "gh" + "p_" + "a1B2c3D4e5F6" * 3
    file = write(tmp_path / "some.jsonl", {"text": f"CI used {token}", "state": "archived"})
    settings = {"OPENMEMORY_DATA_DIR": str(furnish(folder)), "OPENMEMORY_CAPTURE_SECRETS": "redact"}
    for told in ("1 added, 0 already there, 0 failed.\n", "0 added, 1 already there, 0 failed.\n"):
        assert run("import", file, "--user", "alice", **settings).stdout == told
    listed = run("list", "--user", "alice", "--state", "all", "--json", **settings).stdout
    assert [item["content"] for item in json.loads(listed)["items"]] == ["CI used [redacted: GitHub token]"]
