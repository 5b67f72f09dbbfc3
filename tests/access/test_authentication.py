from __future__ import annotations

import pytest

from openmemory.access.authentication import beyond_loopback, credentials_required, is_here
from openmemory.config.settings import Settings


@pytest.mark.parametrize(
    "name",
    ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "[::1]:8765", "localhost", "LOCALHOST:1", "localhost.", "127.0.0.1:80"],
)
def test_these_names_mean_this_machine(name: str) -> None:
    assert is_here(name)


@pytest.mark.parametrize(
    "name", ["0.0.0.0", "::", "[::]:1", "192.0.2.1", "2001:db8::1", "localhost.example.com", "*", "memory.example", ""]
)
def test_any_other_name_does_not(name: str) -> None:
    assert not is_here(name)


@pytest.mark.parametrize(
    ("settings", "required"),
    [
        ({}, False),
        ({"host": "localhost"}, False),
        ({"host": "0.0.0.0"}, True),
        ({"http": {"allowed_hosts": ["localhost:8765"]}}, False),
        ({"http": {"allowed_hosts": ["memory.example"]}}, True),
        ({"http": {"allowed_hosts": ["*"]}}, True),
        ({"http": {"trusted_proxies": ["127.0.0.1"]}}, True),
        ({"access": {"api_key": "Vd7-kq2Xw9-pLr4mZt8n"}}, True),
        ({"access": {"require": "always"}}, True),
        ({"oauth": {"issuer": "https://as.example", "resource": "https://memory.example"}}, True),
    ],
)
def test_a_credential_is_needed_unless_this_machine_alone_can_call(settings: dict, required: bool) -> None:
    loaded = Settings.model_validate(settings)
    assert credentials_required(loaded) is required
    beyond = settings.get("host") == "0.0.0.0" or ("allowed_hosts" in settings.get("http", {}) and required)
    assert beyond_loopback(loaded) is beyond
