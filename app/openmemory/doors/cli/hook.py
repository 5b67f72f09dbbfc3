"""`openmemory hook`: the programs that assistants run at the start and end of a session and with each prompt.

A hook must never fail or delay a session. It ends with exit code 0 within its time whatever happens, and prints nothing
on any failure. Only a part of the standard library is imported here: typer, httpx and the application take longer to
import than the hook may take. For the same reason HTTP is spoken over a plain socket.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn
from urllib.parse import SplitResult, urlsplit

from openmemory.doors.cli import project

EVENT_NAMES = {"session-start": "SessionStart", "prompt": "UserPromptSubmit"}
CAPTURES = ("pre-compact", "session-end")
"""The hooks that send what was said, and print nothing."""
TIMEOUT = 300
"""Milliseconds from the start of the process to its end."""
LOG_TIMEOUT = 4_000
"""The same with `--log`, where nobody waits for what is printed."""
_MARGIN = 0.015
"""Seconds that are kept for printing and ending."""
BUDGETS = {"session-start": 600, "prompt": 200}
"""Tokens that a hook may print, unless an option says otherwise."""
_QUERY = 1_000
"""Characters of a prompt that are searched for."""
_LARGEST = 1_000_000
_INPUT = 10_000_000

Options = Mapping[str, str]


class HookError(Exception):
    """The hook has nothing to print. The message says why, for `--verbose`."""


def run(arguments: Sequence[str]) -> NoReturn:
    """Runs a hook and ends the process with exit code 0, in time."""
    event, *rest = arguments or [""]
    answer: list[str] = []
    problem = ["no answer in time"]

    def work() -> None:
        try:
            answer.append(_answer(event, dict(_pairs(rest))))
            problem.clear()
        except BaseException as error:  # nothing may reach the session
            problem[:] = [str(error) or type(error).__name__]

    # A thread that can be left behind bounds everything at once: input that never ends, names that are not resolved,
    # and a service that sends one byte a second.
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(max(0.0, _timeout(rest) - _elapsed_seconds() - _MARGIN))
    try:
        if "--verbose" in arguments and problem:
            os.write(2, f"openmemory hook: {problem[0]}\n".encode(errors="replace"))
        if answer and answer[0]:
            os.write(1, answer[0].encode(errors="replace") + b"\n")
    finally:
        os._exit(0)  # also if nobody reads what is printed


def _timeout(arguments: Sequence[str]) -> float:
    usual = LOG_TIMEOUT if "--log" in arguments else TIMEOUT
    try:
        return float(dict(_pairs(arguments)).get("timeout", usual)) / 1_000
    except (HookError, ValueError):
        return usual / 1_000


def _elapsed_seconds() -> float:
    """Seconds since the start of the process: exactly on Linux, elsewhere those in which it ran."""
    try:
        ticks = int(_read_text("/proc/self/stat").rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return time.process_time()


def _answer(event: str, options: Options) -> str:
    """Asks the service, and returns the text to print."""
    if event not in (*EVENT_NAMES, *CAPTURES):
        raise HookError(f"{event!r} is no hook; valid are {', '.join((*EVENT_NAMES, *CAPTURES))}")
    payload = _read_payload()
    folder = next(
        (path for path in (payload.get("cwd"), *_roots(payload)) if isinstance(path, str) and path), os.getcwd()
    )
    namespace = options.get("namespace")
    here = project.FolderProject(namespace) if namespace else project.of_folder(folder)
    body: dict[str, Any] = {
        "user_id": options.get("user"),
        "app": options.get("client"),
        "namespace": here.namespace,
    }
    if event in CAPTURES:
        (_log if "log" in options else _capture)(options, payload, body)
        return ""
    body["head"] = None if "namespace" in options else project.describe(folder).get("head")
    body["budget"] = int(options.get("budget", BUDGETS[event]))
    if event == "prompt":
        body["query"] = str(payload.get("prompt") or "").strip()[:_QUERY]
        if not body["query"]:
            raise HookError("there is no prompt")
        if "min-score" in options:
            body["min_score"] = float(options["min-score"])
    status, answer = _post(options, "/api/v1/brief", body)
    if status != 200:
        raise HookError(f"the service answers {status}")
    text = answer.get("text")
    if not isinstance(text, str):
        raise HookError("the answer has no text")
    if here.unconfirmed and event == "session-start":
        text = "\n".join(filter(None, (text, project.UNCONFIRMED)))
    return _format_answer(options.get("client", ""), event, text)


def _capture(options: Options, payload: Mapping[str, Any], body: Mapping[str, Any]) -> None:
    """Sends what the user wrote since the last time, for the language model. Without one, the service keeps nothing."""
    from openmemory.doors.cli.transcript import send_new

    if not isinstance(transcript := payload.get("transcript_path"), str):
        raise HookError("there is no transcript")

    def send(texts: list[str], key: str) -> str | None:
        messages = [{"role": "user", "content": text} for text in texts]
        more = {"messages": messages, "infer": True, "async": True}
        status, answer = _post(options, "/api/v1/memories", {**body, **more}, key)
        if status in (200, 202):
            return None
        if status not in _REFUSED or answer.get("error") == "no_language_model":
            raise HookError(f"the service answers {status}, {answer.get('detail')}")
        return str(answer.get("detail"))

    send_new(transcript, sessions_folder(), send)


def _log(options: Options, payload: Mapping[str, Any], body: Mapping[str, Any]) -> None:
    """Stores what both sides said since the last time, verbatim. With `infer`, the language model reads it too."""
    from openmemory.doors.cli.transcript import Message, acceptable, log_new

    if not isinstance(transcript := payload.get("transcript_path"), str):
        raise HookError("there is no transcript")

    def log(session: str, messages: list[Message], *, again: bool = True) -> list[str]:
        more = {"messages": messages, "infer": "infer" in options}
        status, answer = _post(options, f"/api/v1/threads/{session}/messages", {**body, **more})
        if status == _TOO_LARGE and len(messages) > 1:
            middle = len(messages) // 2
            return log(session, messages[:middle], again=again) + log(session, messages[middle:], again=again)
        rejections = [{"index": 0, **answer}] if status == _TOO_LARGE else answer.get("refused")
        if not isinstance(rejections, list) or (status != 200 and not rejections):
            raise HookError(f"the service answers {status}, {answer.get('detail')}")
        other, reasons = (
            acceptable(messages, rejections) if again else ([], [str(each.get("detail")) for each in rejections])
        )
        return reasons + (log(session, other, again=False) if other else [])

    log_new(transcript, sessions_folder(), log)


_TOO_LARGE = 413
_REFUSED = (400, 409, 413, 422)
"""Statuses of a batch that would be refused again."""


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The options: `--name value` or `--name=value`."""
    rest = iter(arguments)
    for argument in rest:
        name, separator, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or name not in OPTIONS:
            raise HookError(f"{argument!r} is no option of a hook")
        yield name, value if separator or name in _FLAGS else next(rest, "")


_FLAGS = ("log", "infer", "verbose")
OPTIONS = ("client", "user", "namespace", "budget", "min-score", "url", "data-dir", "timeout", *_FLAGS)


def _read_payload() -> dict[str, Any]:
    """The JSON that the assistant writes to standard input. A terminal writes none."""
    if sys.stdin is None or sys.stdin.isatty():
        return {}
    data = b""
    while (chunk := os.read(0, 1 << 16)) and len(data) < _INPUT:
        data += chunk
    payload = json.loads(data) if data.strip() else {}
    if not isinstance(payload, dict):
        raise HookError("standard input is no JSON object")
    return payload


def _roots(payload: Mapping[str, Any]) -> list[Any]:
    roots = payload.get("workspace_roots")
    return roots if isinstance(roots, list) else []


def _format_answer(client: str, event: str, text: str) -> str:
    """The text in the form that the assistant reads. Where it can, the person sees the first line, too."""
    if not text or not client:
        return text
    if client == "cursor":
        return json.dumps({"additional_context": text})
    own = {"hookEventName": EVENT_NAMES[event], "additionalContext": text}
    return json.dumps({"systemMessage": text.partition("\n")[0], "hookSpecificOutput": own})


def _post(
    options: Options, path: str, body: Mapping[str, Any], idempotency_key: str = ""
) -> tuple[int, dict[str, Any]]:
    """Posts to the service and returns the status and the JSON object of its answer."""
    url, key = _service(options)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise HookError("the service has no address")
    content = json.dumps({name: value for name, value in body.items() if value is not None}).encode()
    head = [f"POST {url.path.rstrip('/')}{path} HTTP/1.0", f"Host: {url.netloc.rpartition('@')[2]}"]
    head += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    head += [f"Authorization: Bearer {key}"] if key else []
    head += [f"Idempotency-Key: {idempotency_key}"] if idempotency_key else []
    if any(not line.isprintable() for line in head):
        raise HookError("the address or the key cannot be sent")
    data = _exchange(url, "\r\n".join(head).encode() + b"\r\n\r\n" + content)
    status, _, answer = data.partition(b"\r\n\r\n")
    try:
        fields = json.loads(answer)
    except ValueError:
        raise HookError(f"the service answers {status.splitlines()[:1]!r}") from None
    if not isinstance(fields, dict):
        raise HookError("the service does not answer with a JSON object")
    return int(status.split(b" ", 2)[1]), fields


def _exchange(url: SplitResult, request: bytes) -> bytes:
    secure = url.scheme == "https"
    plain = socket.create_connection((url.hostname or "", url.port or (443 if secure else 80)))
    if secure:
        import ssl

        plain = ssl.create_default_context().wrap_socket(plain, server_hostname=url.hostname)
    with plain:
        plain.sendall(request)
        data = b""
        while (chunk := plain.recv(1 << 16)) and len(data) < _LARGEST:
            data += chunk
    return data


def _service(options: Options) -> tuple[SplitResult, str]:
    """The address of the service and the key for it."""
    key = os.environ.get("OPENMEMORY_API_KEY", "")
    if url := options.get("url"):
        return urlsplit(url), key
    data_dir = options.get("data-dir") or os.environ.get("OPENMEMORY_DATA_DIR")
    for folder in map(os.path.expanduser, [data_dir] if data_dir else _data_folders()):
        if _has_owner(folder):
            url = json.loads(_read_text(os.path.join(folder, "service.json")))["url"]
            return urlsplit(url), key or _read_text(os.path.join(folder, "local.key")).strip()
    raise HookError("no service is running")


def _has_owner(folder: str) -> bool:
    """Returns True if a process owns the data folder. What a dead owner left may lead to somebody else's port."""
    try:
        lock = os.open(os.path.join(folder, "openmemory.lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _data_folders() -> list[str]:
    """Where a service without settings keeps its data: `openmemory.embedded.folder` decides between them."""
    if sys.platform == "darwin":
        home = "~/Library/Application Support"
    else:
        home = os.environ.get("XDG_DATA_HOME", "").strip() or "~/.local/share"
    return [os.path.join(home, "openmemory"), "/var/lib/openmemory"]


def sessions_folder() -> str:
    """The folder in which the hooks remember how far they stored each session."""
    home = "~/Library/Caches" if sys.platform == "darwin" else os.environ.get("XDG_CACHE_HOME", "").strip()
    return os.path.join(os.path.expanduser(home or "~/.cache"), "openmemory", "sessions")


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
