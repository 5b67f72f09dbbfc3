"""A workspace with its server, and rows as they are stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import text

from openmemory.egress.clients import Egress
from openmemory.identity.caller import Caller
from openmemory.services import Services
from openmemory.slack.schemas import APP, ChannelPart, Save, SlackSaved
from openmemory.slack.web_api import WebApi, web_api
from tests.slack.fake import BOT, FakeSlack, slack_of
from tests.slack.workspace import Workspace

Rows = Callable[[str], Awaitable[list[tuple[Any, ...]]]]


@pytest.fixture
def workspace() -> Workspace:
    """A workspace of one's own."""
    return Workspace()


@pytest.fixture
def fake(workspace: Workspace) -> Iterator[FakeSlack]:
    """Slack, as this workspace sees it."""
    with slack_of(workspace) as server:
        yield server


@pytest.fixture
async def slack(fake: FakeSlack) -> AsyncIterator[WebApi]:
    """The Web API of that server. `waits` of it are the seconds that it was told to wait."""

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    waits = list[float]()
    async with web_api(Egress(), BOT, fake.base_url, pause) as api:
        api.waits = waits  # type: ignore[attr-defined]
        yield api


@pytest.fixture
async def loader(services: Services, new_user: str) -> Caller:
    """The app that loads channels for the test's own user."""
    return await services.directory.caller(new_user, APP)


@pytest.fixture
def save(services: Services, loader: Caller) -> Save:
    """Stores parts for that user."""

    async def stored(part: ChannelPart) -> SlackSaved:
        return await services.slack.channels.save(loader, part)

    return stored


@pytest.fixture
def rows(services: Services) -> Rows:
    """Returns what is stored for a user: conversation, position, ts, speaker, text, metadata and title, in order."""

    async def stored(user: str) -> list[tuple[Any, ...]]:
        found = text(
            """
            SELECT p.thread_id, p.position, p.external_id, p.speaker, p.content, p.metadata, s.title, p.created_at,
                s.length
            FROM passages AS p JOIN sources AS s ON s.id = p.source_id JOIN users AS u ON u.id = p.user_id
            WHERE u.user_id = :user ORDER BY p.thread_id, p.position
            """
        )
        async with services.database.statement() as tx:
            return [tuple(row) for row in await tx.execute(found, {"user": user})]

    return stored
