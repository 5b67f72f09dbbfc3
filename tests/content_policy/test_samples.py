"""Samples that documentation and sample code have are no secrets; random ones of every form are.

Values that look like keys are put together from parts, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable

import pytest

from openmemory.content_policy import samples, secrets


def _base64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


HEAD = _base64({"alg": "HS256", "typ": "JWT"})
OF_TUTORIALS = _base64({"sub": "1234567890", "name": "John Doe", "iat": 1516239022})
LETTERS, DIGITS = string.ascii_letters, string.digits
COUNTED = "1234567890" + "abcdef"

SAMPLES = [
    'password = "mysecretpassword"',
    "SLACK_BOT_TOKEN='xoxb-" + "your-slack-token'",
    'curl -X POST http://localhost:5000/signup -d "username=testuser&password=testpass"',
    'curl http://127.0.0.1:8000/token \\\n  -d "username=alice&password=wonderland"',
    '-d \'{"email": "test@example.com", "password": "SecurePass123!"}\'',
    '{"password": "Test1234!"}',
    "const password = 'admin123';",
    "password = 'Test@123!'",
    'password="test_password_1"',
    "MYSQL_ROOT_PASSWORD: somerootpassword",
    "POSTGRES_PASSWORD=postgres",
    "password: P@ssw0rd123",
    '"password": "newpassword456"',
    "DB_PASSWORD=12345678",
    "password = hashedPassword",
    "pwd = currentPassword",
    "JWT_SECRET=supersecretkey123",
    "SECRET_KEY=changethisinproduction123",
    'api_key="test-api-key-12345"',
    f'client_secret: "{COUNTED * 2}"',
    f'"access_token": "{"abcdef" + "123456"}"',
    "token=abc123def...",
    f'token = "{HEAD}..."',
    f"Authorization: Bearer {HEAD}…",
    f"{HEAD}.{OF_TUTORIALS}.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
    "Authorization: Bearer test-token-1234567890",
    "Authorization: Basic " + base64.b64encode(b"admin:admin").decode(),
    "Authorization: Basic " + base64.b64encode(b"user:password").decode(),
    "OPENAI_API_KEY=sk-" + "your-openai-api-key-here",
    "OPENAI_API_KEY=sk-" + COUNTED * 2,
    "OPENAI_API_KEY=sk-or-" + "v1-" + COUNTED * 3,
    "OPENAI_API_KEY=sk-proj-" + "x" * 20 + "1234",
    "ANTHROPIC_API_KEY=sk-ant-" + "api03-your-key-here",
    "GITHUB_TOKEN=ghp_" + string.ascii_lowercase + "0123456789",
    "GITHUB_TOKEN=github_pat_" + "your_actual_github_token_here_please",
    "STRIPE_SECRET_KEY=sk_test_" + "your_key_here_now",
    "STRIPE_SECRET_KEY=sk_test_" + COUNTED + "ghijklmn",
    "https://hooks.slack.com/" + "services/T00000000/B00000000/" + "X" * 24,
    "https://hooks.slack.com/" + "services/YOUR/SLACK/WEBHOOKURL",
    "1234567890" + ":ABCdefGHIjklMNOpqrsTUVwxyz123456789",
    "AWS_ACCESS_KEY_ID=AKIA" + "IOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY=" + "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "AIza" + "Sy" + "X" * 33,
    "GOOGLE_API_KEY=AIza" + "SyYour-Google-API-Key-Here-xxxxxxxxx",
    "SG." + "your_sendgrid_api_key_here.and_the_rest_of_it",
    "glpat-" + "your-gitlab-token-here",
    "SLACK_BOT_TOKEN=xoxb-" + "acme-corporation-token",
    "postgresql://postgres:postgres@db:5432/app",
    "postgresql://user:pass@localhost:5432/app",
    "https://abc:xyz@sub.example.com",
    "postgresql://scott:tiger@host/test",
    "mongodb://admin:secret123@localhost:27017",
    "mongodb://admin:devpassword@mongodb:27017",
]

REAL = [
    "password: Tr0ub4dor&3",
    "passwort ist Sommer2024!",
    "Wifi password: Welcome2024",
    "password: MySecret1987",
    "password=Admin2024!",
    "my password is Password123!",
    "my wifi password is admin1234",
    "password: testament42!",
    "password: secret-Tr0ub4dor",
    '{"password": "swordfish"}',
    '{"password": "secretxkvqzpfr"}',
    "password=swordfish1 # http://localhost:3000",
    "password='correcthorsebatterystaple' # http://localhost:3000",
    'password="swordfish"\n\nhttp://localhost:3000',
    "postgres://app:swordfish@db.internal/app",
    "postgres://app:tiger42@localhost/app",
    "password=swordfish http://example.community",
    "secret=test9aK2mQ7xLp0",
    "token: a8F3kQ9zLw2XpT5vB...",
]


@pytest.mark.parametrize("text", SAMPLES)
@pytest.mark.parametrize("around", ["{}", "Like this:\n\n```\n{}\n```\n"])
def test_a_sample_is_no_secret(text: str, around: str) -> None:
    assert secrets.find(around.format(text)) == []


@pytest.mark.parametrize("text", REAL)
def test_a_word_of_examples_beside_or_in_a_real_value_makes_it_no_sample(text: str) -> None:
    assert len(secrets.find(text)) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("password", "testpass123"), ("api_key", "sk-or-" + "v1-" + COUNTED * 2), ("token", "abc123...")],
)
def test_a_sample_in_a_structure_is_none_either(name: str, value: str) -> None:
    assert secrets.find_called(name, value) == []


BASE62, URL_SAFE, HEX = LETTERS + DIGITS, LETTERS + DIGITS + "-_", DIGITS + "abcdef"
UPPER, BASE32 = string.ascii_uppercase + DIGITS, string.ascii_uppercase + "234567"

_Chars = Callable[[str, int], str]

VENDORS: dict[str, tuple[str, Callable[[_Chars], str]]] = {
    "GitHub, classic": ("a GitHub token", lambda r: "gh" + r("pousr", 1) + "_" + r(BASE62, 36)),
    "GitHub, fine-grained": ("a GitHub token", lambda r: "github" + "_pat_" + r(BASE62, 22) + "_" + r(BASE62, 59)),
    "GitLab": ("a GitLab token", lambda r: "gl" + "pat-" + r(URL_SAFE, 20)),
    "Slack": ("a Slack token", lambda r: "xo" + "xb-" + r(DIGITS, 12) + "-" + r(DIGITS, 12) + "-" + r(BASE62, 24)),
    "Slack webhook": (
        "a Slack webhook",
        lambda r: "hooks.slack.com/" + "services/T" + r(UPPER, 8) + "/B" + r(UPPER, 8) + "/" + r(BASE62, 24),
    ),
    "Discord webhook": (
        "a Discord webhook",
        lambda r: "discord.com/api/" + "webhooks/" + r(DIGITS, 18) + "/" + r(URL_SAFE, 68),
    ),
    "Discord": (
        "a Discord token",
        lambda r: base64.b64encode(r("123456789", 18).encode()).decode() + "." + r(BASE62, 6) + "." + r(URL_SAFE, 27),
    ),
    "Stripe, live": ("a Stripe key", lambda r: "sk_" + "live_" + r(BASE62, 24)),
    "Stripe, test": ("a Stripe key", lambda r: "sk_" + "test_" + r(BASE62, 24)),
    "Stripe webhook": ("a Stripe secret", lambda r: "wh" + "sec_" + r(BASE62, 32)),
    "OpenAI": ("an OpenAI key", lambda r: "sk-" + r(BASE62, 24) + r(DIGITS, 1) + r(BASE62, 23)),
    "OpenAI project": ("an OpenAI key", lambda r: "sk-" + "proj-" + r(URL_SAFE, 120)),
    "Anthropic": ("an Anthropic key", lambda r: "sk-" + "ant-api03-" + r(URL_SAFE, 93) + "AA"),
    "Google": ("a Google API key", lambda r: "AI" + "zaSy" + r(URL_SAFE, 33)),
    "Google client": ("a Google client secret", lambda r: "GOC" + "SPX-" + r(URL_SAFE, 28)),
    "npm": ("an npm token", lambda r: "np" + "m_" + r(BASE62, 36)),
    "PyPI": ("a PyPI token", lambda r: "pypi" + "-AgEIcHlwaS5vcmc" + r(URL_SAFE, 100)),
    "Hugging Face": ("a Hugging Face token", lambda r: "h" + "f_" + r(LETTERS, 34)),
    "SendGrid": ("a SendGrid key", lambda r: "S" + "G." + r(URL_SAFE, 22) + "." + r(URL_SAFE, 43)),
    "Twilio": ("a Twilio key", lambda r: "S" + "K" + r(HEX, 32)),
    "DigitalOcean": ("a DigitalOcean token", lambda r: "do" + "p_v1_" + r(HEX, 64)),
    "AWS": ("an AWS access key", lambda r: "AK" + "IA" + r(BASE32, 16)),
    "Telegram": ("a Telegram bot token", lambda r: r("123456789", 10) + ":A" + r(URL_SAFE, 34)),
    "JWT": (
        "a JSON Web Token",
        lambda r: HEAD + "." + _base64({"sub": r(DIGITS, 10), "name": "John Doe"}) + "." + r(URL_SAFE, 43),
    ),
    "OpenMemory": ("an OpenMemory key", lambda r: "o" + "m_" + r(string.ascii_lowercase, 8) + "_" + r(URL_SAFE, 43)),
}

PASSWORDS: dict[str, Callable[[_Chars], str]] = {
    "8 letters and digits": lambda r: r(string.ascii_lowercase, 4) + r("234567", 4),
    "10 of base62": lambda r: r(BASE62, 9) + "7",
    "16 with signs": lambda r: r(BASE62 + "!@#$%&*+", 15) + "7",
    "a marker word and 8 random ones": lambda r: ("my", "test", "secret")[len(r("ab", 1)) % 3] + r(BASE62, 7) + "5",
    "a name and a year": lambda r: r(string.ascii_uppercase, 1) + r("aeiou", 1) + "rl" + r("aeiou", 1) + "n19" + "84!",
}

MADE = 400
AROUND = ["{}", "example: {}", "For example {} is only a test key.", "test-key={}", "The sample token {}: replace it."]


@pytest.mark.parametrize("form", VENDORS)
def test_every_random_key_of_a_vendor_is_found_also_where_an_example_is_spoken_of(form: str) -> None:
    rng = random.Random(form)
    kind, make = VENDORS[form]
    keys = [make(lambda signs, length: "".join(rng.choices(signs, k=length))) for _ in range(MADE)]
    missed = [key for at, key in enumerate(keys) if kind not in _kinds(AROUND[at % len(AROUND)].format(key))]
    assert missed == []


@pytest.mark.parametrize("form", PASSWORDS)
def test_every_random_password_is_found(form: str) -> None:
    rng = random.Random(form)
    values = [PASSWORDS[form](lambda signs, length: "".join(rng.choices(signs, k=length))) for _ in range(MADE)]
    assert [value for value in values if not secrets.find(f'"password": "{value}"')] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "signs", [BASE62, URL_SAFE, URL_SAFE + "!@#$%&*+./", HEX, BASE32, LETTERS, string.ascii_lowercase]
)
@pytest.mark.parametrize("length", [12, 16, 24, 40])
def test_no_random_value_is_taken_for_a_sample(signs: str, length: int) -> None:
    rng = random.Random(signs + str(length))
    values = ["".join(rng.choices(signs, k=length)) for _ in range(5_000)]
    assert [value for value in values if samples.sample_of_vendor(value) and not samples.placeholder(value)] == []


def _kinds(text: str) -> list[str]:
    return [one.kind for one in secrets.find(text)]
