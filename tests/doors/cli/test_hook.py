"""Hooks never fail a session: real processes against real sockets that answer, refuse, hang and lie."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from openmemory.doors.cli import project
from openmemory.doors.cli.confirmed import confirm

Run = Callable[..., subprocess.CompletedProcess[str]]

PATIENCE = 30.0
"""Seconds after which a hook hangs."""
AMPLE = "--timeout=20000"
"""For hooks whose answer is looked at: starting may take long on a busy machine."""
BRIEF = "OpenMemory: 1 of 1 memory, 20 of 600 tokens\n3f2a91c0 2026-11-20 Ada drinks green tea"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def hook(*arguments: str, stdin: bytes | None = b"{}", folder: Path | None = None, **environment: str) -> Outcome:
    """Runs a hook to its end in an interpreter of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OPENMEMORY_")}
    done = subprocess.run(
        [sys.executable, "-m", "openmemory", "hook", *arguments],
        input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL, capture_output=True, check=False,
        timeout=PATIENCE, env=clean | environment, cwd=folder,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


SILENT = Outcome(0, "", "")

Serve = Callable[[Callable[[socket.socket, bytes], None]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a service on a socket: each connection's request is passed to a function. Returns its URL."""
    listeners: list[socket.socket] = []

    def start(answer: Callable[[socket.socket, bytes], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with closing(connection), suppress(OSError):
                        answer(connection, received(connection))

        threading.Thread(target=run, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def received(connection: socket.socket) -> bytes:
    def more() -> bytes:
        if not (part := connection.recv(1 << 16)):
            raise ConnectionResetError
        return part

    read = b""
    while b"\r\n\r\n" not in read:
        read += more()
    head, _, body = read.partition(b"\r\n\r\n")
    length = int(next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")).split()[1])
    while len(body) < length:
        body += more()
    return head + b"\r\n\r\n" + body


def answer(body: Any, status: str = "200 OK") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


def saying(reply: bytes) -> Callable[[socket.socket, bytes], None]:
    return lambda connection, _: connection.sendall(reply)


@pytest.fixture
def asked(serve: Serve) -> tuple[str, list[bytes]]:
    """A service that answers with a brief, and the requests that it got."""
    requests: list[bytes] = []

    def reply(connection: socket.socket, request: bytes) -> None:
        requests.append(request)
        connection.sendall(answer({"text": BRIEF}))

    return serve(reply), requests


def body_of(request: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.partition(b"\r\n\r\n")[2])
    return found


EVENTS: tuple[Sequence[str], ...] = (("session-start",), ("prompt",))
SESSION = {"cwd": "/", "session_id": "s1", "prompt": "what tea?", "source": "startup"}

WRONG = {
    "401": answer({"error": "unauthenticated"}, "401 Unauthorized"),
    "404": answer({"error": "not_found"}, "404 Not Found"),
    "500": answer(b"<h1>Internal Server Error</h1>", "500 Internal Server Error"),
    "503": answer({"error": "unavailable"}, "503 Service Unavailable"),
    "a redirect": b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "garbage": b"\x00\xff\xfe garbage \r\n\r\n" * 100,
    "nothing": b"",
    "half an answer": answer({"text": BRIEF})[:60],
    "no JSON": answer(b"hello"),
    "a list": answer([1]),
    "no text": answer({"detail": "ok"}),
    "a text that is none": answer({"text": 5}),
    "not UTF-8": answer(b'{"text": "\xff"}'),
    "deep JSON": answer(b"[" * 100_000),
}


@pytest.mark.parametrize("reply", WRONG.values(), ids=WRONG)
def test_a_wrong_answer_prints_nothing(serve: Serve, reply: bytes) -> None:
    url = serve(saying(reply))
    assert hook("session-start", "--url", url, AMPLE, stdin=json.dumps(SESSION).encode()) == SILENT


@pytest.mark.parametrize("event", EVENTS)
def test_a_service_that_is_stopped_prints_nothing(event: Sequence[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as once:
        port = once.getsockname()[1]
    stdin = json.dumps(SESSION).encode()
    assert hook(*event, "--url", f"http://127.0.0.1:{port}", AMPLE, stdin=stdin) == SILENT
    assert hook(*event, "--data-dir", str(tmp_path), AMPLE, stdin=stdin) == SILENT, "none ever ran here"
    (tmp_path / "service.json").write_text(json.dumps({"url": f"http://127.0.0.1:{port}", "pid": 1}))
    (tmp_path / "local.key").write_text("local_key\n")
    with (tmp_path / "openmemory.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert hook(*event, "--data-dir", str(tmp_path), AMPLE, stdin=stdin) == SILENT, "it does not listen yet"


def test_a_service_that_never_answers_does_not_hold_the_hook_up(serve: Serve) -> None:
    ended = threading.Event()
    url = serve(lambda *_: bool(ended.wait(PATIENCE)) and None)
    assert hook("session-start", "--url", url) == SILENT
    ended.set()


def test_a_service_that_accepts_no_connection_does_not_hold_the_hook_up() -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as listener,
        socket.socket() as first,
        socket.socket() as second,
    ):
        port = listener.getsockname()[1]
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        assert hook("session-start", "--url", f"http://127.0.0.1:{port}") == SILENT


def test_a_service_that_sends_one_byte_at_a_time_does_not_hold_the_hook_up(serve: Serve) -> None:
    ended = threading.Event()

    def trickle(connection: socket.socket, _: bytes) -> None:
        for byte in answer({"text": BRIEF}) * 100:
            connection.sendall(bytes([byte]))
            if ended.wait(0.1):
                return

    assert hook("session-start", "--url", serve(trickle)) == SILENT
    ended.set()


def test_a_service_that_sends_without_end_does_not_hold_the_hook_up(serve: Serve) -> None:
    def flood(connection: socket.socket, _: bytes) -> None:
        while True:
            connection.sendall(b"x" * 65_536)

    assert hook("session-start", "--url", serve(flood)) == SILENT


INPUTS = {
    "broken JSON": b'{"cwd": ',
    "a list": b"[1, 2]",
    "not UTF-8": b"\xff\xfe",
    "deep JSON": b"[" * 100_000,
}


@pytest.mark.parametrize("stdin", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("event", EVENTS)
def test_wrong_input_prints_nothing(asked: tuple[str, list[bytes]], event: Sequence[str], stdin: bytes) -> None:
    assert hook(*event, "--url", asked[0], AMPLE, stdin=stdin) == SILENT
    assert asked[1] == []


def test_input_that_never_ends_does_not_hold_the_hook_up(asked: tuple[str, list[bytes]]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "openmemory", "hook", "session-start", "--url", asked[0]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.wait(PATIENCE) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""


@pytest.mark.parametrize(
    "arguments", [(), ("stop",), ("session-start", "--colour"), ("session-start", "--budget=many")]
)
def test_wrong_arguments_print_nothing(asked: tuple[str, list[bytes]], arguments: Sequence[str]) -> None:
    assert hook(*arguments, *(["--url", asked[0]] if arguments else []), AMPLE) == SILENT


def test_a_closed_output_is_no_failure(asked: tuple[str, list[bytes]]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "openmemory", "hook", "session-start", "--url", asked[0], AMPLE],
        input=b"{}", stdout=writing, stderr=subprocess.PIPE, timeout=PATIENCE, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(asked[1]) == 1


def test_closed_input_and_output_are_no_failure(asked: tuple[str, list[bytes]]) -> None:
    command = f'exec "{sys.executable}" -m openmemory hook session-start --url {asked[0]} {AMPLE} <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", command], timeout=PATIENCE, check=False).returncode == 0


def test_why_nothing_is_printed_is_said_on_request(serve: Serve) -> None:
    url = serve(saying(WRONG["401"]))
    code, out, err = hook("session-start", "--url", url, AMPLE, "--verbose")
    assert (code, out) == (0, "")
    assert "the service answers 401" in err
    assert "no service is running" in hook("session-start", "--data-dir", "/nowhere", AMPLE, "--verbose").err
    assert (
        "'stop' is no hook; valid are session-start, prompt, pre-compact, session-end"
        in hook("stop", "--verbose", AMPLE).err
    )


def test_each_assistant_gets_the_brief_in_its_form(asked: tuple[str, list[bytes]]) -> None:
    def printed(event: str, *client: str) -> str:
        code, out, err = hook(event, *client, "--url", asked[0], AMPLE, stdin=json.dumps(SESSION).encode())
        assert (code, err) == (0, "")
        return out

    assert printed("session-start") == BRIEF + "\n"
    assert json.loads(printed("session-start", "--client", "cursor")) == {"additional_context": BRIEF}
    for client in ("claude-code", "codex"):
        assert json.loads(printed("session-start", "--client", client)) == {
            "systemMessage": BRIEF.splitlines()[0],
            "hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": BRIEF},
        }
        found = json.loads(printed("prompt", f"--client={client}"))
        assert found["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"


def test_an_empty_brief_prints_nothing(serve: Serve) -> None:
    assert hook("session-start", "--client", "codex", "--url", serve(saying(answer({"text": ""}))), AMPLE) == SILENT


def test_the_service_is_asked_for_the_project_as_the_assistant(
    asked: tuple[str, list[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / ".openmemory").write_text("webshop\n")
    confirm(str(tmp_path), "webshop")
    stdin = json.dumps(SESSION | {"cwd": str(tmp_path)}).encode()
    where = ("--url", asked[0], AMPLE)
    hook("session-start", "--client", "cursor", "--user", "ada", *where, stdin=stdin, OPENMEMORY_API_KEY="om_key")
    hook("prompt", "--namespace=other", "--budget", "150", "--min-score", "0.5", *where, stdin=stdin)
    hook("session-start", *where, stdin=json.dumps({"workspace_roots": [str(tmp_path)]}).encode())
    hook("session-start", *where, stdin=None, folder=tmp_path)
    assert b"Authorization: Bearer om_key" in asked[1][0]
    assert [body_of(request) for request in asked[1]] == [
        {"user_id": "ada", "app": "cursor", "namespace": "webshop", "budget": 600},
        {"namespace": "other", "budget": 150, "query": "what tea?", "min_score": 0.5},
        {"namespace": "webshop", "budget": 600},
        {"namespace": "webshop", "budget": 600},
    ]


def test_the_service_of_the_data_folder_is_asked_with_its_key(asked: tuple[str, list[bytes]], tmp_path: Path) -> None:
    folder = tmp_path / "openmemory"
    folder.mkdir()
    info = folder / "service.json"
    info.write_text(json.dumps({"url": asked[0], "pid": 1}))
    (folder / "local.key").write_text("local_secret\n")
    with (folder / "openmemory.lock").open("w") as lock:
        assert hook("session-start", AMPLE, "--data-dir", str(folder)) == SILENT
        assert asked[1] == [], "nobody owns the folder: whoever listens there now must not get its key"
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert hook("session-start", AMPLE, "--data-dir", str(folder)).out == BRIEF + "\n"
        assert hook("session-start", AMPLE, OPENMEMORY_DATA_DIR=str(folder)).out == BRIEF + "\n"
        if sys.platform.startswith("linux"):
            assert hook("session-start", AMPLE, XDG_DATA_HOME=str(tmp_path)).out == BRIEF + "\n"
        info.write_text(json.dumps({"url": "no port (a command has the stores open itself)", "pid": 1}))
        assert hook("session-start", AMPLE, "--data-dir", str(folder)) == SILENT
    assert all(b"Authorization: Bearer local_secret" in request for request in asked[1])


def git(root: Path, config: str) -> Path:
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "config").write_text(config)
    (root / "src" / "deep").mkdir(parents=True)
    return root / "src" / "deep"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("git@github.com:ada/engine.git", "ada/engine"),
        ("https://github.com/ada/engine", "ada/engine"),
        ("https://user:token@gitlab.com:8443/group/sub/engine.git/", "group/sub/engine"),
        ("ssh://git@host:2222/ada/engine.git", "ada/engine"),
        ("/srv/git/engine.git", None),
        ("../engine", None),
        ("file:///srv/engine.git", None),
        (r"C:\repos\engine", None),
        ("https://github.com/", None),
    ],
)
def test_a_project_is_named_after_its_remote(tmp_path: Path, url: str, expected: str | None) -> None:
    inside = git(tmp_path / "folder", f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {url}\n\tfetch = +refs\n')
    assert project.namespace(str(inside)) == (expected or "folder")


def test_the_remote_named_origin_comes_first(tmp_path: Path) -> None:
    upstream = '[remote "upstream"]\n  url = git@h:up/stream.git\n'
    origin = '[remote "origin"]\n  url = "git@h:my/fork.git"\n  pushurl = git@h:push/only.git\n'
    assert project.namespace(str(git(tmp_path / "one", upstream + origin))) == "my/fork"
    assert project.namespace(str(git(tmp_path / "two", upstream))) == "up/stream"
    assert project.namespace(str(git(tmp_path / "three", "broken [ config"))) == "three"


def test_a_worktree_is_the_project_of_its_repository(tmp_path: Path) -> None:
    git(tmp_path / "main", '[remote "origin"]\n\turl = git@h:ada/engine.git\n')
    private = tmp_path / "main" / ".git" / "worktrees" / "side"
    private.mkdir(parents=True)
    (private / "commondir").write_text("../..\n")
    (tmp_path / "side").mkdir()
    (tmp_path / "side" / ".git").write_text(f"gitdir: {private}\n")
    assert project.namespace(str(tmp_path / "side")) == "ada/engine"


def test_a_folder_outside_of_git_has_its_own_name_and_a_home_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "notes").mkdir()
    assert project.namespace(str(tmp_path / "notes")) == "notes"
    assert project.namespace(str(tmp_path)) is None
    assert project.namespace("/") is None


@pytest.mark.journey
def test_a_session_starts_with_the_memories_of_its_project(om: Run, served: Path, user: str, tmp_path: Path) -> None:
    inside = git(tmp_path / "repo", '[remote "origin"]\n\turl = git@h:ada/engine.git\n')
    for text, namespace in (("The engine runs on steam", "ada/engine"), ("Nobody else sees this", "other/project")):
        assert om("add", text, "--user", user, "--namespace", namespace).returncode == 0
    where = ("--data-dir", str(served), "--user", user, "--client", "cursor", AMPLE)
    stdin = json.dumps({"workspace_roots": [str(inside)]}).encode()
    code, out, err = hook("session-start", *where, stdin=stdin)
    assert (code, err) == (0, "")
    text = json.loads(out)["additional_context"]
    assert text.startswith("OpenMemory: 1 of 1 memory, ")
    assert "namespace ada/engine" in text
    assert text.endswith("The engine runs on steam")
    fitting = json.dumps({"cwd": str(inside), "prompt": "what does the engine run on?"}).encode()
    assert hook("prompt", *where[:4], AMPLE, stdin=fitting).out.endswith("The engine runs on steam\n")
    reads = {app["name"]: app for app in json.loads(om("apps", "list", "--user", user, "--json").stdout)}
    assert reads["cursor"]["total_memories_accessed"] == 1
