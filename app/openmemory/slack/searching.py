"""Searches the channels of one user or of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from openmemory.identity.caller import Caller
from openmemory.search.schemas import Method, PassageResult, SearchQuery
from openmemory.search.service import Search
from openmemory.slack.channels import SlackChannels
from openmemory.slack.schemas import SLACK_BOT, SlackAnswer, SlackHit
from openmemory.sources.models import PassageKind

TEXT_NOTE = "Using text search (vector store unavailable)"


@dataclass(frozen=True, slots=True)
class SlackQuery:
    """A question to channels. Times include both ends."""

    text: str
    channel: str | None = None
    author: str | None = None
    after: datetime | None = None
    before: datetime | None = None
    limit: int = 10


class SlackSearch:
    """Finds messages of channels: `await searching.search([alice, slack_bot], SlackQuery("who deploys?"))`."""

    def __init__(self, search: Search, channels: SlackChannels) -> None:
        self._search = search
        self._channels = channels

    async def search(self, callers: Sequence[Caller], query: SlackQuery) -> SlackAnswer:
        """The messages nearest to the query that one of the callers may read, best first.

        Scores are chances, so those of several users are in one order.

        Raises:
            Invalid: the query or a filter cannot be used.
            TooMany, Unavailable: as a search of passages.
        """
        hits, methods, notes = list[SlackHit](), set[Method](), list[str]()
        namespace = None if query.channel is None else self._channels.namespace(query.channel)
        for caller in callers:
            stored = await self._channels.stored(caller)
            names = [one.channel for one in stored.channels if one.messages]
            if namespace is not None:
                names = [name for name in names if self._channels.namespace(name) == namespace]
            speakers = () if query.author is None else tuple(await self._channels.speakers(caller, query.author))
            if not names or (query.author is not None and not speakers):
                continue
            for at in range(0, len(names), _TOGETHER):
                some = tuple(self._channels.namespace(name) for name in dict.fromkeys(names[at : at + _TOGETHER]))
                answer = await self._search.passages(caller, self._query(query, some, speakers))
                methods.add(answer.search_method)
                notes += [answer.note] if answer.note and answer.results else []
                hits += [_hit(one) for one in answer.results]
        hits.sort(key=lambda one: -one.score)
        method = "database_text" if Method.LEXICAL in methods else "qdrant_vector"
        if not methods:
            notes.append(self._nothing(callers, query))
        elif method == "database_text":
            notes.insert(0, TEXT_NOTE)
        note = ". ".join(dict.fromkeys(notes)) or None
        return SlackAnswer(hits[: query.limit], query.text, query.channel, method, note)

    def _query(self, query: SlackQuery, namespaces: tuple[str, ...], speakers: tuple[str, ...]) -> SearchQuery:
        return SearchQuery(
            query.text, limit=self._search.at_most(query.limit), namespaces=namespaces, speakers=speakers,
            kinds=(PassageKind.TURN.value,), created_from=query.after, created_to=query.before,
        )  # fmt: skip

    def _nothing(self, callers: Sequence[Caller], query: SlackQuery) -> str:
        """Says why nothing was searched."""
        if query.channel is not None or query.author is not None:
            return "No channel that you may read is stored under this name, or has messages of this author"
        shared = any(caller.user == SLACK_BOT for caller in callers)
        hint = "" if shared else f"; public channels are those of the user {SLACK_BOT}"
        return f"No channel that you may read is stored{hint}"


_TOGETHER = 100
"""The number of namespaces that one search may name."""


def _hit(one: PassageResult) -> SlackHit:
    metadata: dict[str, Any] = one.metadata
    return SlackHit(
        str(one.id), one.content, str(metadata.get("slack_channel_name", "")), one.role or "",
        str(metadata.get("message_ts", "")), one.score, metadata.get("slack_thread_ts"), metadata, one.labels,
    )  # fmt: skip
