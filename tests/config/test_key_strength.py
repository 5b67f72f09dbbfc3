from __future__ import annotations

import base64
import random
import re
import string
from pathlib import Path
from uuid import UUID

import pytest

from openmemory.config import key_strength
from openmemory.config.settings import load
from openmemory.errors import SetupError

ROOT = Path(__file__).parents[2]
STRONG = "Vd7-kq2Xw9-pLr4mZt8n"

WEAK = [
    "x", "hunter2", " ", "Vd7-kq2Xw9-pLr4mZt8", "a" * 20, "a" * 400, "ab" * 16, "aaaaaaaaaaaaaaaaaaaB", "0" * 64,
    "-" * 30, "1234567890" * 3, "12345678901234567890123", "abcdefghijklmnopqrstuvwxyz", "zyxwvutsrqponmlkjihgfedcba",
    "passwordpasswordpassword", "changeme-changeme-changeme", "CHANGE_ME_PLEASE_CHANGE_ME",
    "your-api-key-goes-here-please", "replace-this-with-a-long-random-string", "my-super-secret-api-key-123",
    "insert_your_secret_token_here", "openmemory-access-api-key", "correct horse battery staple",
    "qwertyuiopasdfghjklzxcvbnm", "<your long random key here>", "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx",
]  # fmt: skip


@pytest.mark.parametrize("key", WEAK)
def test_a_key_that_can_be_guessed_stops_the_start_with_the_setting_and_a_remedy(tmp_path: Path, key: str) -> None:
    file = tmp_path / "openmemory.toml"
    file.write_text(f"[access]\napi_key = '{key}'\n")
    ways = [
        (f"{file}: access.api_key: ", lambda: load(file, environ={})),
        (
            "environment: OPENMEMORY_ACCESS_API_KEY: ",
            lambda: load(environ={"OPENMEMORY_ACCESS_API_KEY": key}, inherit=False),
        ),
        ("--api-key: ", lambda: load(environ={}, flags={"access.api_key": key}, inherit=False)),
    ]
    for where, read in ways:
        with pytest.raises(SetupError) as refused:
            read()
        message = refused.value.message
        assert message.startswith(f"{where}must ")
        assert message.endswith("; make one with `openssl rand -hex 32`")
        assert "\n" not in message
        assert key == " " or len(key) < 2 or key not in message


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_it_makes_no_difference_where_the_service_listens(host: str) -> None:
    for environ in ({"OPENMEMORY_HOST": host}, {"OPENMEMORY_HOST": host, "OPENMEMORY_HTTP_ALLOWED_HOSTS": "a.example"}):
        with pytest.raises(SetupError, match="OPENMEMORY_ACCESS_API_KEY: must have at least 20 characters"):
            load(environ=environ | {"OPENMEMORY_ACCESS_API_KEY": "x"}, inherit=False)
        settings = load(environ=environ | {"OPENMEMORY_ACCESS_API_KEY": STRONG}, inherit=False)
        assert settings.access.api_key.get_secret_value() == STRONG


def test_no_key_is_none_and_the_keys_of_clients_and_of_the_old_server_are_none_of_ours() -> None:
    # Compose passes on what is not set as an empty text.
    environ = {"OPENMEMORY_ACCESS_API_KEY": "", "OPENMEMORY_API_KEY": "x", "API_KEY": "x"}
    assert load(environ=environ).access.api_key.get_secret_value() == ""


def test_whatever_is_drawn_at_random_is_strong_enough() -> None:
    rng = random.Random(7)
    for _ in range(3_000):
        bytes_ = rng.randbytes(32)
        for key in (
            bytes_.hex(), bytes_[:12].hex(), base64.b64encode(bytes_).decode(), base64.b64encode(bytes_[:15]).decode(),
            base64.urlsafe_b64encode(bytes_).decode().rstrip("="), str(UUID(bytes=bytes_[:16])),
            "".join(rng.choices(string.ascii_letters + string.digits + string.punctuation, k=32)),
            "".join(rng.choices(string.digits, k=40)),
        ):  # fmt: skip
            assert key_strength.checked(key) == key


def test_what_the_documentation_makes_is_strong_enough() -> None:
    [made] = re.findall(r"openssl rand -hex (\d+)", (ROOT / "docs/operations/docker.md").read_text(encoding="utf-8"))
    assert key_strength.checked(random.Random(1).randbytes(int(made)).hex())
    assert f"openssl rand -hex {made}" in (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert f"openssl rand -hex {made}" in str(key_strength._MAKE_ONE)
