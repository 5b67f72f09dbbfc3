"""Messages of Slack as plain texts. Pure functions over JSON that anybody may have written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard

from openmemory.slack.schemas import SlackMessage

_TS = re.compile(r"[0-9]{1,11}\.[0-9]{6}")
_NOTICES = re.compile(
    r"(channel|group)_(join|leave|topic|purpose|name|archive|unarchive|posting_permissions|convert_to_private)"
    r"|bot_(add|remove|enable|disable)|pinned_item|unpinned_item|reminder_add|tombstone|sh_room_created|ekm_.*"
)
"""Subtypes of messages that nobody has written."""
_ANGLES = re.compile(r"<([^<>]*)>")
_LONGEST = 100_000
"""The number of characters of a text that are read."""


def is_ts(value: Any) -> TypeGuard[str]:
    """True if a value is the id of a message."""
    return isinstance(value, str) and _TS.fullmatch(value) is not None


class Person(NamedTuple):
    """A member of the workspace."""

    user_name: str
    real_name: str


def person_of(raw: Any) -> tuple[str, Person] | None:
    """The id and the names of a member; None if it is no member."""
    if not isinstance(raw, Mapping) or not (id_ := _text(raw.get("id"))):
        return None
    profile = raw.get("profile")
    profile = profile if isinstance(profile, Mapping) else {}
    real = _text(raw.get("real_name")) or _text(profile.get("real_name")) or _text(profile.get("display_name"))
    return id_, Person(_name(raw.get("name")), _name(real))


def people_of(raw: Iterable[Any]) -> dict[str, Person]:
    """The members in a list, by id."""
    return dict(person for one in raw if (person := person_of(one)) is not None)


def messages_of(
    raw: Iterable[Any], people: Mapping[str, Person], skipped: Counter[str], channels: Mapping[str, str] = {}
) -> Iterator[SlackMessage]:
    """Yields the messages that people and bots have written. `skipped` counts the others, by reason."""
    for one in raw:
        message = message_of(one, people, channels)
        if isinstance(message, SlackMessage):
            yield message
        else:
            skipped[message] += 1


def message_of(raw: Any, people: Mapping[str, Person], channels: Mapping[str, str] = {}) -> SlackMessage | str:
    """The message, or why it is none. `people` and `channels` have the names of those that a text mentions, by id."""
    if not isinstance(raw, Mapping) or not _TS.fullmatch(ts := _text(raw.get("ts"))):
        return "not a message with a ts"
    if _NOTICES.fullmatch(_text(raw.get("subtype"))):
        return "a notice of Slack"
    text = _whole(raw, people, channels)
    if not text.strip():
        return "no text"
    thread = _text(raw.get("thread_ts"))
    user_id = _text(raw.get("user")) or _text(raw.get("bot_id"))
    user_name, real_name = _names(raw, people.get(user_id))
    return SlackMessage(
        ts, text, thread if _TS.fullmatch(thread) else None, user_id[:100], user_name, real_name
    )  # fmt: skip


def plain_text(text: str, people: Mapping[str, Person], channels: Mapping[str, str] = {}) -> str:
    """The text without Slack's markup: mentions become names, and links their label and address."""

    def replacement(match: re.Match[str]) -> str:
        target, bar, label = match[1].partition("|")
        if target.startswith(("@", "#", "!")):
            return _mention(target, label, people, channels)
        return f"{label} ({target})" if bar and label not in ("", target) else target

    text = _ANGLES.sub(replacement, text[:_LONGEST])
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _mention(target: str, label: str, people: Mapping[str, Person], channels: Mapping[str, str]) -> str:
    sign, id_ = target[0], target[1:]
    if sign == "@":
        person = people.get(id_)
        return "@" + (label or (person and (person.real_name or person.user_name)) or id_)
    if sign == "#":
        return "#" + (label or channels.get(id_) or id_)
    # <!here>, <!subteam^S1|@team>, <!date^...|shown>
    return label or ("@" + id_.partition("^")[0])


def _whole(raw: Mapping[str, Any], people: Mapping[str, Person], channels: Mapping[str, str]) -> str:
    """The text, the texts of attachments if there is no other, and the names of files."""
    pieces = [_text(raw.get("text"))]
    if not pieces[0].strip():
        for one in _objects(raw.get("attachments")):
            pieces += [_text(one.get(name)) for name in ("pretext", "title", "text")]
            if not any(piece.strip() for piece in pieces):
                pieces.append(_text(one.get("fallback")))
    pieces = [plain_text(piece, people, channels) for piece in pieces if piece.strip()]
    names = (_name(one.get("title")) or _name(one.get("name")) for one in _objects(raw.get("files")))
    pieces += [f"[file: {name}]" for name in names if name]
    # NUL and halves of surrogate pairs cannot be stored.
    return "\n".join(pieces)[:_LONGEST].replace("\x00", "").encode(errors="replace").decode()


def _names(raw: Mapping[str, Any], person: Person | None) -> tuple[str, str]:
    """The name and the real name of who says it."""
    if person is not None:
        return person
    profile = raw.get("user_profile") or raw.get("bot_profile")
    profile = profile if isinstance(profile, Mapping) else {}
    return _name(profile.get("name") or raw.get("username")), _name(profile.get("real_name"))


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _name(value: Any) -> str:
    """A name on one line that can be stored."""
    text = " ".join("".join(one if one.isprintable() else " " for one in _text(value)).split())
    return text[:200].encode(errors="replace").decode()
