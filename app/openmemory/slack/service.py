"""The use cases of Slack, put together."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from openmemory.access.rate_limits import RateLimiter
from openmemory.config.settings import Settings
from openmemory.database.engine import Database
from openmemory.egress.clients import Egress
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.search.service import Search
from openmemory.slack.channels import SlackChannels
from openmemory.slack.searching import SlackSearch
from openmemory.slack.sending import SlackSending
from openmemory.slack.shared import SharedChannels


class Slack(NamedTuple):
    """Stores, searches and loads channels, and sends to them: `services.slack.channels`."""

    channels: SlackChannels
    searching: SlackSearch
    shared: SharedChannels
    sending: SlackSending

    @classmethod
    def of(
        cls,
        database: Database,
        delivery: OutboxDelivery,
        search: Search,
        *,
        settings: Settings,
        rates: RateLimiter,
        folder: Path,
        egress: Egress,
    ) -> Slack:
        """Returns the use cases over these parts. `folder`: the data folder."""
        channels = SlackChannels(
            database, delivery, limits=settings.limits, capture=settings.capture, rates=rates
        )  # fmt: skip
        shared = SharedChannels(channels, settings.slack, folder, egress)
        sending = SlackSending(channels, settings.slack, settings.limits, folder, egress)
        return cls(channels, SlackSearch(search, channels), shared, sending)
