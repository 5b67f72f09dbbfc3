"""The hooks of assistants: programs that they start by themselves, written into their files beside those of others."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from openmemory.connect import jsonc
from openmemory.connect.clients import NAME, AssistantClient, ServerAddress, named_folder, variables

Hook = Literal["session-start", "prompt", "pre-compact", "session-end"]
BRIEF: tuple[Hook, ...] = ("session-start",)
CAPTURE: tuple[Hook, ...] = ("pre-compact", "session-end")

_OURS = re.compile(r"""openmemory(\.exe)?["']? hook (session-start|prompt|pre-compact|session-end)\b""")
_STARTS = "startup|resume|clear|compact"
_SECONDS = 5
"""After which the assistant ends a hook. It ends by itself much sooner."""


@dataclass(frozen=True, slots=True)
class HookNotation:
    """The notation of an assistant: its name of the event of each hook. `grouped`: as Claude Code writes them."""

    events: Mapping[Hook, str]
    grouped: bool = True

    def entry(self, hook: Hook, command: str) -> dict[str, Any]:
        """The entry of a hook in the list of an event."""
        own: dict[str, Any] = {"command": command, "timeout": _SECONDS}
        if not self.grouped:
            return own
        matcher = {"matcher": _STARTS} if hook == "session-start" else {}
        return matcher | {"hooks": [{"type": "command"} | own]}


class HooksFormat:
    """JSON with lists of hooks. As a value, our entries stand apart under `SECTION`, and empty lists do not count."""

    SECTION = "ours"

    def __init__(self, head: Mapping[str, Any]) -> None:
        """`head`: what a file must hold besides hooks."""
        self._head = head

    def loads(self, text: str) -> dict[str, Any]:
        """Returns the content of the file, and our entries by event.

        Raises:
            JsoncError: it is not JSON, or its hooks are not lists in an object.
        """
        document = jsonc.loads(text)
        ours: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for event, entries in _lists(document).items():
            for entry in entries:
                (ours if is_ours(entry) else others).setdefault(event, []).append(entry)
        rest = {key: value for key, value in document.items() if key != "hooks"}
        file = {**self._head, **rest} | ({"hooks": others} if others else {})
        return {"file": file, self.SECTION: {NAME: ours} if ours else {}}

    def insert(self, text: str, _path: Sequence[str], value: dict[str, Any]) -> str:
        """Returns the text with our entries, which replace those that were there."""
        text = self._without_ours(text)
        for key, needed in self._head.items():
            if key not in jsonc.loads(text):
                text = jsonc.insert(text, [key], needed)
        for event, entries in value.items():
            for entry in entries:
                text = jsonc.insert(text, ["hooks", event, len(_lists(jsonc.loads(text)).get(event, []))], entry)
        return text

    def remove(self, text: str, _path: Sequence[str]) -> str:
        """Returns the text without our entries and without the lists that are empty then."""
        return self._without_ours(text)

    def _without_ours(self, text: str) -> str:
        for event, entries in _lists(jsonc.loads(text)).items():
            mine = [at for at, entry in enumerate(entries) if is_ours(entry)]
            if mine and len(mine) == len(entries):
                text = jsonc.remove(text, ["hooks", event])
                continue
            for at in reversed(mine):
                text = jsonc.remove(text, ["hooks", event, at])
        return jsonc.remove(text, ["hooks"]) if jsonc.loads(text).get("hooks") == {} else text


def is_ours(entry: Any) -> bool:
    """Returns True if nothing but our program is in an entry."""
    commands = list(_commands(entry))
    return bool(commands) and all(_OURS.search(command) for command in commands)


def hooks_in(entries: Mapping[str, Any]) -> list[str]:
    """The names of our hooks among our entries of a file."""
    commands = (command for mine in entries.values() for entry in mine for command in _commands(entry))
    return list(dict.fromkeys(match[2] for command in commands if (match := _OURS.search(command))))


def _commands(entry: Any) -> Iterator[str]:
    parts = entry.get("hooks", [entry]) if isinstance(entry, dict) else []
    for part in parts if isinstance(parts, list) else []:
        yield str(part.get("command", "")) if isinstance(part, dict) else ""


def _lists(document: Any) -> dict[str, list[Any]]:
    hooks = document.get("hooks", {}) if isinstance(document, dict) else None
    if not isinstance(hooks, dict) or not all(isinstance(entries, list) for entries in hooks.values()):
        raise jsonc.JsoncError("its hooks are not lists in an object")
    return hooks


def _entries(notation: HookNotation, hooks: Collection[Hook], server: ServerAddress) -> dict[str, Any]:
    """Our entries by event. The command of the `server` lacks only the name of the hook, after the word `hook`."""
    at = server.command.index("hook") + 1
    return {
        event: [notation.entry(hook, shlex.join([*server.command[:at], hook, *server.command[at:]]))]
        for hook, event in notation.events.items()
        if hook in hooks
    }


_CODEX = HookNotation({"session-start": "SessionStart", "prompt": "UserPromptSubmit"})
_CLAUDE = HookNotation({**_CODEX.events, "pre-compact": "PreCompact", "session-end": "SessionEnd"})
_CURSOR = HookNotation({"session-start": "sessionStart"}, grouped=False)


def hooked(
    hooks: Collection[Hook] = BRIEF, home: Path | None = None, environ: Mapping[str, str] | None = None
) -> list[AssistantClient]:
    """The assistants that have hooks: each as the file with its hooks, and the entries for the chosen ones. `environ`
    is that of `assistants`."""
    environ = variables(home, environ)
    home = home or Path.home()
    claude = named_folder(environ, "CLAUDE_CONFIG_DIR", home / ".claude")
    codex = named_folder(environ, "CODEX_HOME", home / ".codex")

    def client(app: str, title: str, file: Path, notation: HookNotation, then: str, **head: Any) -> AssistantClient:
        own = partial(_entries, notation, hooks)
        return AssistantClient(
            app, title, (file,), own, own, HooksFormat.SECTION, HooksFormat(head), then=then,
            after_removal="Start a new session.",
        )  # fmt: skip

    return [
        client("claude-code", "Claude Code", claude / "settings.json", _CLAUDE, "It runs from the next session on."),
        client("codex", "Codex", codex / "hooks.json", _CODEX, "Trust it there: /hooks."),
        client("cursor", "Cursor", home / ".cursor/hooks.json", _CURSOR, "Open a new chat.", version=1),
    ]
