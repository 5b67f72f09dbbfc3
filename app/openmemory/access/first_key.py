"""The check at the start of a service that somebody can use it."""

from __future__ import annotations

from openmemory.access.authentication import beyond_loopback, credentials_required, is_here
from openmemory.access.directory import Directory
from openmemory.access.keys import ApiKeys
from openmemory.config.settings import Settings
from openmemory.database.engine import Database
from openmemory.errors import SetupError


async def require_a_key(settings: Settings, database: Database) -> None:
    """Checks that a credential exists if every request needs one. Otherwise nobody could use the service.

    Raises:
        SetupError: there is none.
    """
    if not credentials_required(settings) or settings.access.api_key.get_secret_value() or settings.oauth.issuer:
        return
    if not await ApiKeys(database, Directory(database, settings.access)).exist():
        where = f" --data-dir {settings.data_dir}" if settings.data_dir else ""
        raise SetupError(
            f"{_what_requires(settings)}: every request needs a credential, and there is no key yet; make the first "
            f"administrator's with `openmemory keys create --admin NAME{where}`, then start again"
        )


def _what_requires(settings: Settings) -> str:
    """Returns the setting that makes credentials necessary."""
    if not is_here(settings.host):
        return f"host {settings.host!r} lets other machines in"
    if beyond_loopback(settings):
        return f"http.allowed_hosts {', '.join(settings.http.allowed_hosts)!r} lets other machines in"
    if settings.http.trusted_proxies:
        return f"http.trusted_proxies {', '.join(settings.http.trusted_proxies)!r} lets other machines in"
    return f"access.require is {settings.access.require!r}"
