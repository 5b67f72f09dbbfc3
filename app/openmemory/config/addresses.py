"""Classifies network addresses as public or not, and parses the forms in which settings name them. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

IP = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


_CREDENTIALS = "a link-local or metadata address, where clouds hand out credentials"
# Custom tables, because the meaning of `is_global` in ipaddress differs between the supported Python versions.
_NOT_PUBLIC: tuple[tuple[str, tuple[Network, ...]], ...] = (
    (
        _CREDENTIALS,
        # Link-local, plus the metadata addresses of Alibaba, Oracle, Azure, Amazon and Google outside that range.
        _networks(
            "169.254.0.0/16", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32",
            "fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128",
        ),
    ),
    ("a loopback address", _networks("127.0.0.0/8", "::1/128")),
    ("an unspecified address", _networks("0.0.0.0/8", "::/128")),
    ("a private address", _networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")),
    ("a multicast address", _networks("224.0.0.0/4", "ff00::/8")),
    (
        "a reserved address",
        _networks(
            "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
            "240.0.0.0/4", "2001::/23", "2001:db8::/32", "3fff::/20",
        ),
    ),
)  # fmt: skip
_GLOBAL_V6 = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")


def parsed(host: str) -> IP | None:
    """Returns the IP address that `host` spells; None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def effective_address(address: IP) -> IP:
    """Returns the IPv4 address behind a mapped, NAT64 or 6to4 address; any other address unchanged."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def network_of(address: str | None) -> str:
    """The network that one client is assumed to own: a /64 for IPv6, the smallest that a machine gets, or else the
    address itself."""
    ip = parsed(address or "")
    if ip is None:
        return (address or "local")[:64]
    ip = ip.ipv4_mapped or ip if isinstance(ip, ipaddress.IPv6Address) else ip
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return f"{ipaddress.IPv6Address(int(ip) >> 64 << 64)}/64"


def not_public(address: IP) -> str | None:
    """Returns the kind of an address in words if it is not on the public internet; None if it is public."""
    address = effective_address(address)
    for words, networks in _NOT_PUBLIC:
        if any(address in network for network in networks):
            return words
    outside = isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_V6
    return "a reserved address" if outside else None


def hands_out_credentials(address: IP) -> bool:
    """Returns True if a cloud metadata service, which trusts every caller, may answer at this address."""
    return not_public(address) == _CREDENTIALS


@dataclass(frozen=True, slots=True)
class Allowed:
    """One entry of the allowlist of private hosts."""

    name: str = ""
    network: Network | None = None
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `host`, `host:port`, an address with or without port, or a CIDR.

        Raises:
            ValueError: it is none of them; the message states what is valid.
        """
        whole = text.strip().lower()
        if "://" in whole:
            raise ValueError(f"{text!r} is a URL; name its host, or host:port")
        if "/" in whole:
            return cls(network=_network(whole))
        address = parsed(whole)
        if address is not None:
            return cls(network=ipaddress.ip_network(address))
        match = re.fullmatch(r"\[(.*)\](?::([0-9]+))?", whole)
        host, port = (match[1], match[2]) if match else _split(whole)
        number = int(port) if port else None
        if number is not None and not 1 <= number <= 65_535:
            raise ValueError(f"{text!r} has a port that is not from 1 to 65535")
        address = parsed(host)
        if address is not None:
            return cls(network=ipaddress.ip_network(address), port=number)
        if match or not _NAME.fullmatch(host):
            raise ValueError(f"{text!r} must be a host, host:port, address or CIDR such as 10.0.0.0/8")
        return cls(name=host, port=number)

    def names(self, host: str, port: int) -> bool:
        """Returns True if this entry names that host and port."""
        return bool(self.name) and self.name == host and self.port in (None, port)

    def holds(self, address: IP, port: int) -> bool:
        """Returns True if this entry is that address or a network that contains it."""
        if self.network is None or self.port not in (None, port):
            return False
        return address in self.network or effective_address(address) in self.network


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{error}; a CIDR looks like 10.0.0.0/8") from None


def _split(text: str) -> tuple[str, str]:
    host, _, port = text.rpartition(":")
    return (host, port) if port.isascii() and port.isdigit() else (text, "")


def is_loopback(host: str) -> bool:
    """Returns True if a host refers to this machine, judged by its text alone."""
    address = parsed(host)
    return host == "localhost" if address is None else not_public(address) == "a loopback address"


def web_url(text: str, *, base: bool = True) -> str:
    """Returns a web URL after checking it has no credentials. `base`: other URLs are built on it, so it has no query.

    Raises:
        ValueError: it is not one; the message states what is wrong.
    """
    try:
        parts = urlsplit(text)
        usable = text.startswith(("http://", "https://")) and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not re.fullmatch(r"[!-~]+", text):
        raise ValueError("must be a URL such as https://example.com")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user or password")
    if "#" in text or (base and "?" in text):
        raise ValueError(f"must be a URL without {'query or ' if base else ''}fragment")
    return text
