"""The block in an assistant's rules file that tells it to use the memory. It can be found and removed again."""

from __future__ import annotations

from pathlib import Path

_BEGIN = "<!-- openmemory:begin -->"
_END = "<!-- openmemory:end -->"
_CURSOR = "---\ndescription: Long-term memory\nalwaysApply: true\n---\n"
"""The head without which Cursor ignores a rules file."""

RULES = f"""\
{_BEGIN}
## Memory

You have a long-term memory: the tools of the MCP server `openmemory`.

- Before you start on a task, call `search_memory` with what the task is about.
- When the user states a lasting fact, preference or decision, store it with `add_memories` in one plain sentence.
- When a memory turns out to be wrong, update or delete it.
- Never store secrets, or what the files of the project say already.
{_END}
"""


def with_rules(text: str, file: Path) -> str:
    """Returns the text of a rules file with the block at its end, or with a present block renewed."""
    if (block := _block(text)) is not None:
        return text[: block[0]] + RULES + text[block[1] :]
    if not text:
        return (_CURSOR if file.suffix == ".mdc" else "") + RULES
    return text + ("\n" if text.endswith("\n") else "\n\n") + RULES


def without_rules(text: str) -> str | None:
    """Returns the text without the block, or None if nothing else was in the file."""
    block = _block(text)
    if block is None:
        return text
    before, after = text[: block[0]], text[block[1] :]
    if before.endswith("\n\n"):
        before = before[:-1]
    rest = before + after
    return None if rest in ("", _CURSOR) else rest


def _block(text: str) -> tuple[int, int] | None:
    start = text.find(_BEGIN)
    end = text.find(_END, start)
    if start < 0 or end < 0:
        return None
    end += len(_END)
    return start, end + 1 if text[end : end + 1] == "\n" else end
