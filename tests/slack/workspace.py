"""A workspace of Slack: its people, channels and messages as Slack sends them, and its export as Slack writes it."""

from __future__ import annotations

import json
import zipfile
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ADA, BOB, CLEO = "U0ADA", "U0BOB", "U0CLEO"
GENERAL, SECRET, DIRECT, CROWD = "C0GENERAL", "G0SECRET", "D0DIRECT", "G0CROWD"
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def ts_at(day: int, second: int = 0) -> str:
    """The ts of a second after noon of a day, counted from the first."""
    return f"{int(NOON.timestamp()) + day * 86_400 + second}.{second % 1000:03}100"


class Workspace:
    """People, channels and messages, as JSON of Slack. Tests change `messages` as people change what they said."""

    def __init__(self) -> None:
        self.users: list[dict[str, Any]] = [
            {"id": ADA, "name": "ada", "real_name": "Ada Lovelace"},
            {"id": BOB, "name": "bob", "profile": {"real_name": "Bob Ross", "email": "bob@example.com"}},
            {"id": CLEO, "name": "cleo", "real_name": ""},
        ]
        created = int(NOON.timestamp()) - 86_400
        self.channels: list[dict[str, Any]] = [
            {"id": GENERAL, "name": "general", "created": created},
            {"id": SECRET, "name": "secret", "created": created, "is_private": True},
            {"id": DIRECT, "created": created, "is_im": True, "user": BOB, "members": [ADA, BOB]},
            {"id": CROWD, "name": "mpdm-ada--bob--cleo-1", "created": created, "is_private": True, "is_mpim": True},
        ]
        first = ts_at(0, 10)
        self.messages: dict[str, list[dict[str, Any]]] = {
            GENERAL: [
                said(ADA, ts_at(0), "<@U0ADA> has joined", subtype="channel_join"),
                said(ADA, ts_at(0, 5), "The shop is deployed on Thursday &amp; Bob watches it."),
                said(ADA, first, "Who knows the <https://shop.example|shop>, <@U0BOB>?", thread_ts=first),
                said(BOB, ts_at(0, 20), "I wrote its checkout in Rust.", thread_ts=first),
                said(CLEO, ts_at(1, 30), "Me too, see <#C0GENERAL>", thread_ts=first),
                said(CLEO, ts_at(1, 40), "Lunch at the harbour today?"),
                said("", ts_at(2, 50), "Build 812 failed", subtype="bot_message", bot_id="B0CI", username="ci"),
                said(BOB, ts_at(2, 60), "", files=[{"name": "plan.pdf", "title": "The plan"}]),
            ],
            SECRET: [said(ADA, ts_at(0, 7), "The merger with Initech is called Project Walrus.")],
            DIRECT: [said(BOB, ts_at(0, 8), "My pet iguana is called Figaro.")],
            CROWD: [said(CLEO, ts_at(0, 9), "We three go to the opera on Sunday.")],
        }  # fmt: skip

    def say(self, channel: str, user: str, ts: str, text: str, **more: Any) -> dict[str, Any]:
        """Adds a message."""
        message = said(user, ts, text, **more)
        self.messages[channel].append(message)
        return message

    def message(self, channel: str, ts: str) -> dict[str, Any]:
        """The message with this ts."""
        return next(one for one in self.messages[channel] if one["ts"] == ts)

    def fill(self, channel: str, count: int) -> None:
        """Adds many messages, with a thread among them."""
        for number in range(count):
            self.say(channel, (ADA, BOB, CLEO)[number % 3], ts_at(3 + number // 50, number % 50), f"Remark {number}")
        first = ts_at(3)
        self.message(channel, first)["thread_ts"] = first
        for number in range(25):
            self.say(channel, BOB, ts_at(3, 600 + number), f"Answer {number}", thread_ts=first)

    def export(self, folder: Path) -> Path:
        """Writes the export of the workspace into a new folder."""
        folder.mkdir(parents=True)
        lists: dict[str, list[dict[str, Any]]] = {
            "channels.json": [],
            "groups.json": [],
            "mpims.json": [],
            "dms.json": [],
        }
        for channel in self.channels:
            which = "dms" if channel.get("is_im") else "mpims" if channel.get("is_mpim") else None
            which = which or ("groups" if channel.get("is_private") else "channels")
            # A list of direct messages has members, but no `is_im`.
            lists[f"{which}.json"].append({name: channel[name] for name in channel if not name.startswith("is_")})
            days: dict[str, list[dict[str, Any]]] = defaultdict(list)
            for message in sorted(self.messages[channel["id"]], key=lambda one: float(one["ts"])):
                days[datetime.fromtimestamp(float(message["ts"]), UTC).date().isoformat()].append(message)
            below = folder / (channel["name"] if which != "dms" else channel["id"])
            below.mkdir()
            for day, messages in days.items():
                (below / f"{day}.json").write_text(json.dumps(messages))
        for name, entries in (lists | {"users.json": self.users, "integration_logs.json": []}).items():
            (folder / name).write_text(json.dumps(entries))
        return folder


def said(user: str, ts: str, text: str, **more: Any) -> dict[str, Any]:
    """A message as Slack sends it."""
    return {"type": "message", "user": user, "ts": ts, "text": text} | more


def zipped(folder: Path, file: Path, below: str = "") -> Path:
    """Packs an export, perhaps below a folder."""
    with zipfile.ZipFile(file, "w") as archive:
        for one in sorted(folder.rglob("*.json")):
            archive.write(one, below + one.relative_to(folder).as_posix())
    return file
