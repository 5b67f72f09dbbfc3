"""Which addresses are public, and how the settings name those that are not."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmemory.config.addresses import (
    Allowed,
    effective_address,
    hands_out_credentials,
    is_loopback,
    network_of,
    not_public,
    web_url,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("127.0.0.1", "loopback"), ("127.255.255.254", "loopback"), ("::1", "loopback"),
        ("0.0.0.0", "unspecified"), ("0.1.2.3", "unspecified"), ("::", "unspecified"),
        ("10.1.2.3", "private"), ("172.16.0.1", "private"), ("172.31.255.255", "private"), ("192.168.1.1", "private"),
        ("100.64.0.1", "private"), ("100.127.255.255", "private"), ("fc00::1", "private"), ("fd12:3456::1", "private"),
        ("169.254.169.254", "credentials"), ("169.254.0.1", "credentials"), ("fe80::1", "credentials"),
        ("fd00:ec2::254", "credentials"), ("fd20:ce::254", "credentials"), ("100.100.100.200", "credentials"),
        ("168.63.129.16", "credentials"), ("192.0.0.192", "credentials"),
        ("224.0.0.1", "multicast"), ("239.255.255.250", "multicast"), ("ff02::1", "multicast"),
        ("240.0.0.1", "reserved"), ("255.255.255.255", "reserved"), ("192.0.0.1", "reserved"),
        ("192.0.2.1", "reserved"), ("198.18.0.1", "reserved"), ("198.51.100.1", "reserved"),
        ("203.0.113.1", "reserved"), ("192.88.99.1", "reserved"), ("2001:db8::1", "reserved"),
        ("2001::1", "reserved"), ("3fff::1", "reserved"), ("100::1", "reserved"), ("5f00::1", "reserved"),
        ("64:ff9b:1::a00:1", "reserved"), ("fec0::1", "reserved"), ("::127.0.0.1", "reserved"),
        ("::ffff:127.0.0.1", "loopback"), ("::ffff:10.0.0.1", "private"), ("::ffff:169.254.169.254", "credentials"),
        ("64:ff9b::7f00:1", "loopback"), ("64:ff9b::a9fe:a9fe", "credentials"), ("64:ff9b::c0a8:1", "private"),
        ("2002:7f00:1::", "loopback"), ("2002:a9fe:a9fe::1", "credentials"), ("2002:a00:1::", "private"),
    ],
)  # fmt: skip
def test_an_address_that_is_not_public_is_told_by_what_it_is(text: str, words: str) -> None:
    found = not_public(ip_address(text))
    assert found is not None
    assert words in found
    assert hands_out_credentials(ip_address(text)) == (words == "credentials")


@pytest.mark.parametrize(
    "text",
    [
        "1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "169.253.255.255",
        "192.0.1.0", "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::808:808",
        "2002:808:808::1",
    ],
)  # fmt: skip
def test_the_public_internet_is_public(text: str) -> None:
    assert not_public(ip_address(text)) is None


@pytest.mark.slow
@given(st.ip_addresses(v=4))
def test_no_form_of_an_address_is_more_public_than_the_address(address) -> None:
    for form in (
        f"::ffff:{address}",
        f"64:ff9b::{address}",
        f"2002:{int(address) >> 16:x}:{int(address) & 0xFFFF:x}::",
    ):
        assert effective_address(ip_address(form)) == address
        assert not_public(ip_address(form)) == not_public(address)


@given(st.ip_addresses())
def test_what_python_calls_private_is_never_public_here(address) -> None:
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        embedded = effective_address(address)
        assert not_public(address) is not None or (embedded != address and not embedded.is_private)


@pytest.mark.parametrize(
    ("entry", "reached", "not_reached"),
    [
        ("10.0.0.0/8", [("10.9.8.7", 1)], [("11.0.0.1", 1)]),
        ("10.0.0.5", [("10.0.0.5", 1), ("::ffff:10.0.0.5", 2)], [("10.0.0.6", 1)]),
        ("10.0.0.5:8080", [("10.0.0.5", 8080)], [("10.0.0.5", 8081)]),
        ("[fd00::1]:8080", [("fd00::1", 8080)], [("fd00::1", 80), ("fd00::2", 8080)]),
        ("fd00::/8", [("fdff::1", 80)], [("fc00::1", 80)]),
        ("::1", [("::1", 80)], [("127.0.0.1", 80)]),
    ],
)
def test_an_entry_holds_what_it_names(entry, reached, not_reached) -> None:
    allowed = Allowed.parse(entry)
    assert [allowed.holds(ip_address(address), port) for address, port in reached] == [True] * len(reached)
    assert [allowed.holds(ip_address(address), port) for address, port in not_reached] == [False] * len(not_reached)


def test_a_name_is_an_entry_with_or_without_port() -> None:
    assert Allowed.parse("Ollama.Internal").names("ollama.internal", 11434)
    assert Allowed.parse("ollama:11434").names("ollama", 11434)
    assert not Allowed.parse("ollama:11434").names("ollama", 80)
    assert not Allowed.parse("ollama").names("notollama", 80)
    assert not Allowed.parse("10.0.0.5").names("", 80)


@pytest.mark.parametrize(
    "entry", ["", " ", "http://x", "10.0.0.1/8", "10.0.0.0/33", "*.example.com", "a b", "[x]", "h:0", "h:70000", "h:x"]
)
def test_an_entry_that_is_none_is_refused_with_what_would_be(entry: str) -> None:
    with pytest.raises(ValueError, match=r"host, host:port|CIDR looks like|name its host|from 1 to 65535"):
        Allowed.parse(entry)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_this_machine_is_known_by_its_name_and_addresses(host: str) -> None:
    assert is_loopback(host)
    assert not is_loopback("localhost.example.com")


@pytest.mark.parametrize(
    "url",
    [
        "", "example.com", "ftp://example.com", "HTTPS://example.com", "https://", "https://:80", "https://a b",
        "https://u:p@example.com", "https://u@example.com", "https://example.com/?q", "https://example.com/#f",
        "https://example.com:0", "https://example.com:70000", "https://[::1", "https://exämple.com", "https://e.com/\n",
    ],
)  # fmt: skip
def test_a_base_url_is_a_plain_address(url: str) -> None:
    with pytest.raises(ValueError, match="must"):
        web_url(url)
    assert web_url("https://example.com:8443/path") == "https://example.com:8443/path"
    assert web_url("https://example.com/x?y=1", base=False) == "https://example.com/x?y=1"


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"), ("2001:db8:1:3::9", "2001:db8:1:3::/64"), (None, "local"),
        ("fe80::1%eth0", "fe80::/64"), ("x" * 9_000, "x" * 64),
    ],
)  # fmt: skip
def test_one_client_is_one_address_or_one_network_of_ipv6(address: str | None, network: str) -> None:
    assert network_of(address) == network
