"""The egress policy: the service may connect to the public internet and to configured hosts, not to private ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import httpx

from openmemory.config.addresses import IP, Allowed, hands_out_credentials, not_public, parsed

_PORTS = {"http": 80, "https": 443}


class EgressRefused(httpx.RequestError):
    """A request that may not be sent: its host is private, and no setting allows it.

    Users of httpx, including provider SDKs, see it as an ordinary request failure; they pass it on or chain it.
    """


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port: the unit of trust."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: httpx.URL | str) -> Self:
        """Returns the origin of a URL.

        Raises:
            EgressRefused: it is not a web URL.
        """
        try:
            url = httpx.URL(url)
            host = url.raw_host.decode("ascii").lower().rstrip(".")
        except (httpx.InvalidURL, UnicodeDecodeError):
            raise EgressRefused("not a valid URL") from None
        if url.scheme not in _PORTS or not host:
            raise EgressRefused(f"{host or 'a URL without host'}: must begin with http:// or https://")
        return cls(url.scheme, host, url.port or _PORTS[url.scheme])

    @property
    def shown(self) -> str:
        """Host and port in the format of `egress.allow`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """The policy that `egress.allow` defines."""

    allow: tuple[Allowed, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> Self:
        """Returns the policy for a list from the settings."""
        return cls(tuple(Allowed.parse(entry) for entry in entries))

    def check(self, origin: Origin, addresses: Sequence[IP], *, trusted: bool) -> None:
        """Check every address of a host. `trusted`: an administrator configured exactly this origin.

        One refused address refuses the host, because its name server chooses the address of a later connection.

        Raises:
            EgressRefused: one of them may not be reached.
        """
        known = trusted or any(entry.names(origin.host, origin.port) for entry in self.allow)
        for address in addresses:
            what = not_public(address)
            if what is None or any(entry.holds(address, origin.port) for entry in self.allow):
                continue
            literal = parsed(origin.host) is not None
            if hands_out_credentials(address):
                hint = "name its address in egress.allow if that is meant"
            elif known:
                continue
            else:
                hint = f'add "{origin.shown}" to egress.allow if that is meant'
            raise EgressRefused(f"{origin.shown}: {'is' if literal else 'leads to'} {what}; {hint}")
