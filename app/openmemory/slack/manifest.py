"""The manifest of an app that the user makes in Slack: https://api.slack.com/apps, "From a manifest"."""

from __future__ import annotations

READING = (
    "channels:history", "channels:read", "groups:history", "groups:read", "im:history", "im:read", "mpim:history",
    "mpim:read", "users:read",
)  # fmt: skip
"""The scopes that read. Those of `groups`, `im` and `mpim` are for private channels and direct messages."""
SENDING = ("chat:write", "files:write", "im:write", "users:read.email")
"""The scopes that send."""
_EVENTS = ("message.channels", "message.groups", "message.im", "message.mpim")


def manifest(*, public_only: bool = False, listen: bool = True, send: bool = False) -> str:
    """Returns the manifest as YAML. `public_only`: without private channels. `listen`: with Socket Mode. `send`: for
    assistants that send."""
    scopes = [one for one in READING if not public_only or one.startswith(("channels:", "users:"))]
    scopes += SENDING if send else []
    events = [one for one in _EVENTS if not public_only or one == "message.channels"]
    lines = [
        "display_information:",
        "  name: OpenMemory",
        "  description: Keeps channels in the memory of your assistants",
        "features:",
        "  bot_user:",
        "    display_name: openmemory",
        "    always_online: false",
        "oauth_config:",
        "  scopes:",
        *_scopes("bot", scopes),
        *_scopes("user", scopes),
        "settings:",
        *(_listed("event_subscriptions:\n    bot_events", events) if listen else []),
        "  org_deploy_enabled: false",
        f"  socket_mode_enabled: {'true' if listen else 'false'}",
        "  token_rotation_enabled: false",
    ]
    return "\n".join(lines)


def _scopes(whose: str, scopes: list[str]) -> list[str]:
    return [f"    {whose}:", *(f"      - {one}" for one in scopes)]


def _listed(name: str, entries: list[str]) -> list[str]:
    return [f"  {name}:", *(f"      - {one}" for one in entries)]
