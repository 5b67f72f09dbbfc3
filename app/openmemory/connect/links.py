"""Links that make an assistant offer to add the server, for those that support it."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, urlencode

from openmemory.connect.clients import NAME, AssistantClient, ServerAddress


def link(client: AssistantClient, server: ServerAddress) -> str | None:
    """A link that adds the server to the assistant when it is opened, or None if it supports no such links."""
    if server.url and client.remote is None:
        return None
    entry = client.entry(server)
    if client.app in ("vscode", "vscode-insiders", "vscodium"):
        return f"{client.app}:mcp/install?" + quote(json.dumps({"name": NAME} | entry), safe="")
    if client.app in ("cursor", "lm-studio"):
        address = {
            "cursor": "cursor://anysphere.cursor-deeplink/mcp/install",
            "lm-studio": "lmstudio://add_mcp",
        }[client.app]
        config = base64.b64encode(json.dumps(entry).encode()).decode()
        return f"{address}?{urlencode({'name': NAME, 'config': config})}"
    return None
