"""Every secret here is put together from parts, so that no scanner takes this file for a leak."""

from __future__ import annotations

import base64
import json
import re
import time
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from openmemory.content_policy import secrets

MIXED = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6"
HEX = "0123456789abcdef" * 4


def _base64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _pem(name: str, body: str = MIXED + "\n" + MIXED) -> str:
    return f"-----{'BEGIN'} {name}-----\n{body}\n-----END {name}-----"


WEB_TOKEN = f"{_base64({'alg': 'HS256', 'typ': 'JWT'})}.{_base64({'sub': 'alice'})}.{MIXED[:43]}"
DISCORD = f"{base64.b64encode(b'198622483471925248').decode()}.Cl2FMQ.{MIXED[:27]}"

FORMS = {
    "a private key": [
        _pem("PRIVATE KEY"), _pem("RSA PRIVATE KEY"), _pem("EC PRIVATE KEY"), _pem("ENCRYPTED PRIVATE KEY"),
        _pem("OPENSSH PRIVATE KEY"), _pem("PGP PRIVATE KEY BLOCK", "Version: 1\n\n" + MIXED),
        _pem("DSA PRIVATE KEY").replace("\n", "\\n"), _pem("PRIVATE KEY").partition("-----END")[0],
    ],
    "an AWS access key": ["AK" + "IA" + "Z7K2M5Q8R3T6W9Y4", "AS" + "IA" + "Z7K2M5Q8R3T6W9Y4"],
    "an AWS secret key": ["aws_secret_access_key = " + MIXED[:38] + "/+", "AWS_SECRET_ACCESS_KEY='" + MIXED[:40] + "'"],
    "a GitHub token": [f"gh{kind}_" + MIXED[:36] for kind in "pousr"] + ["github" + "_pat_" + MIXED[:22] + "_" + MIXED],
    "a GitLab token": ["gl" + "pat-" + MIXED[:20]],
    "a Slack token": [f"xo{'x'}{kind}-123456789012-" + MIXED[:24] for kind in "abeoprs"],
    "a Slack webhook": ["https://hooks.slack.com/" + "services/T0AAAAAAA/B0BBBBBBB/" + MIXED[:24]],
    "a Discord webhook": ["https://discord.com/api/" + "webhooks/123456789012345678/" + MIXED],
    "a Discord token": [DISCORD],
    "a Stripe key": [f"{kind}_" + MIXED[:24] for kind in ("sk_" + "live", "rk_" + "live", "sk_" + "test")],
    "an OpenAI key": ["s" + "k-" + MIXED[:48], "s" + "k-proj-" + MIXED],
    "an Anthropic key": ["s" + "k-ant-api03-" + MIXED],
    "a Google API key": ["AI" + "za" + MIXED[:35]],
    "a Google client secret": ["GOC" + "SPX-" + MIXED[:28]],
    "an npm token": ["np" + "m_" + MIXED[:36]],
    "a PyPI token": ["pypi" + "-AgEIcHlwaS5vcmc" + MIXED],
    "a Hugging Face token": ["h" + "f_" + MIXED[:34]],
    "a Telegram bot token": ["1234567890" + ":A" + MIXED[:34]],
    "a SendGrid key": ["S" + "G." + MIXED[:22] + "." + MIXED[:43]],
    "a Twilio key": ["S" + "K" + HEX[:32]],
    "a DigitalOcean token": ["do" + "p_v1_" + HEX],
    "a JSON Web Token": [WEB_TOKEN],
    "an OpenMemory key": ["o" + "m_ab12cd34_" + MIXED[:43]],
    "a bearer token": ["Authorization: Bearer " + MIXED[:32]],
    "basic credentials": ["Authorization: Basic " + base64.b64encode(b"alice:wonderland").decode()],
    "a password": [
        "postgres://admin:s3cr3t" + "pw@db.example.com/app", "postgres://user:k7pq" + "xw2@host",
        "postgres://orders:pass@" + "db.shop.com", "postgres://user:swordfish@" + "db.shop.com",
        "redis://:s3cr3tpw@cache:6379",
        "https://alice:correct-horse@" + "example.com", "pass" + "word=hunter2hunter2", "Password: Tr0ub4dor&3",
        "passwd:s3cr3tpass", "my wifi password is hunter2hunter2", '{"pass' + 'word": "swordfish"}',
        "DB_PASSWORD=swordfish1", "password=Summer!Rain",
        "Mein Passwort ist Sommer2026xyz", "pwd = 'ab12cd34'", "**Password:** ab12cd34ef",
        '{\\"password\\": \\"ab12cd34\\"}', "my password is\nhunter2hunter2",
    ],
    "an API key": [
        "api_key=" + MIXED[:16], "apikey: " + HEX[:20], "API key: " + MIXED[:24], "X-API-Key: " + MIXED[:20],
    ],
    "a token": ["token=" + MIXED[:12], "GITHUB_TOKEN: '" + MIXED[:20] + "'", "access_token => " + MIXED[:20]],
    "a secret": ["secret=9aK2mQ7xLp0", "client_secret: " + HEX[:32]],
    "a secret key": ["SECRET_KEY = '" + MIXED[:30] + "'", "access key: " + MIXED[:20]],
}  # fmt: skip

ORDINARY = [
    "token limits are 4096",
    "password manager: 1Password",
    "the secret: use less salt",
    "the password is stored in the vault",
    "The token is refreshed every 15 minutes.",
    "The access token expires after 3600 seconds",
    "max_tokens=16384 and temperature=0.2",
    "token: base64url encoded",
    "password: sha256-hashed in the db",
    "password: required, at least 12 characters",
    "My password manager is Bitwarden, I keep my passwords there.",
    "secret: consistency beats talent",
    "The secret is to rest the dough overnight.",
    "the api key: rotate it every 90 days",
    "password: <your password>",
    "password: your-password-here",
    "password=changeme",
    "password: ********",
    "password=••••••••",
    "password=%(password)s",
    "secret=xxxxxxxxxxxx",
    "api_key=${API_KEY}",
    "api_key: {{ api_key }}",
    "token=env:GITHUB_TOKEN",
    "token: $GITHUB_TOKEN",
    "token=%GITHUB_TOKEN%",
    "password=os.environ['DB_PASSWORD']",
    "password = getpass('Password: ')",
    "token: process.env.TOKEN_2026",
    "password: op://vault/item/password1",
    "secret: projects/x/secrets/y2",
    "api_key: example-api-key",
    "api_key=test_key_123",
    "token: !vault secret/data/app1",
    "password file: passwords2026.kdbx",
    "password: secrets.yaml",
    "API keys are in 1Password, ask Bob.",
    "The key: a major chord, 440Hz",
    "monkey: banana2000",
    "The keyboard layout: colemak-dh42",
    "password reset link: https://example.com/reset",
    "token: GPT4-turbo",
    "Basic understanding of physics",
    "bearer tokens expire after an hour",
    "Bearer of bad news 2026-01-31T12:00:00Z",
    "https://example.com:8080/path@x",
    "git@github.com:org/repo.git",
    "ssh://git@host:22/repo",
    "postgres://user:<password>@host",
    "postgres://user:${PASSWORD}@host",
    "postgres://user:password@host",
    "postgres://user:pass@host",
    "amqp://username:secret@rabbit.internal:5672",
    "https://a:b@host/path",
    "http://localhost:3000 and mail me@example.org",
    "risk-adjusted-returns-over-20-years-matter-a-lot",
    "s" + "k-learn-compatible-estimators-are-nice",
    "gh" + "p_" + "x" * 36,
    "gl" + "pat-" + "xxxxxxxxxxxxxxxxxxxx",
    "PEM files begin with -----" + "BEGIN PRIVATE KEY-----",
    "-----" + "BEGIN CERTIFICATE-----\n" + MIXED + "\n-----END CERTIFICATE-----",
    "-----" + "BEGIN PUBLIC KEY-----\n" + MIXED + "\n-----END PUBLIC KEY-----",
    "The commit is 4f2a9c1e8b7d6a5f4e3d2c1b0a9f8e7d6c5b4a39",
    "id 550e8400-e29b-41d4-a716-446655440000",
    "from_custom_handler(room_number)",
    "eyJust.kidding.about this",
    "My phone number is +47 123 45 678",
    "The ratio is 12345:A very long sentence without blanks",
    "[redacted: password]",
    "password: [redacted: password]",
    "Das Passwort steht im Tresor.",
    "Le mot de passe est obligatoire.",
    "La contraseña es obligatoria.",
    "İstanbul'da password konusu",
    "",
]

SECRETS = [(kind, text) for kind, texts in FORMS.items() for text in texts]


@pytest.mark.parametrize(("kind", "text"), SECRETS, ids=range(len(SECRETS)))
@pytest.mark.parametrize("around", ["{}", "Remember this: {} - thanks.", "日本語 İ {}\nnext line", "<{}>"])
def test_a_secret_is_found_wherever_it_stands_and_told_by_its_kind(kind: str, text: str, around: str) -> None:
    found = secrets.find(around.format(text))
    assert [one.kind for one in found] == [kind]


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_memory_holds_none(text: str) -> None:
    assert secrets.find(text) == []


@pytest.mark.parametrize(("kind", "text"), SECRETS, ids=range(len(SECRETS)))
def test_a_redacted_text_holds_no_secret_and_the_rest_of_it(kind: str, text: str) -> None:
    redacted = secrets.redacted(f"before {text} after")
    assert redacted.startswith("before ")
    assert f"[redacted: {kind.partition(' ')[2]}]" in redacted
    assert MIXED[:16] not in redacted
    assert secrets.find(redacted) == []
    assert redacted.endswith(" after") or "PRIVATE KEY" in text


def test_a_redacted_sentence_keeps_its_other_words() -> None:
    text = f"Use gh{'p'}_{MIXED[:36]} for CI, password=hunter2hunter2, and tea."
    assert secrets.redacted(text) == "Use [redacted: GitHub token] for CI, password=[redacted: password], and tea."


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("api_key", "abc123def456", "an API key"), ("apiKey", "abc123def456", "an API key"),
        ("X-API-Key", "abc123def456", "an API key"), ("dbPassword", "swordfish", "a password"),
        ("tokens", MIXED[:20], "a token"), ("client_secret", MIXED[:20], "a secret"),
        ("aws_secret_access_key", MIXED[:40], "an AWS secret key"),
        ("api_key", "", None), ("api_key", "short1", None), ("api_key", "your-api-key", None),
        ("api_key", "${KEY}", None),
        ("token_type", "Bearer2026abc", None), ("tokenizer", "cl100k_base", None), ("source", MIXED[:20], None),
        ("secret", "see the vault in Oslo 2026", None), ("password", "env:DB_PASSWORD1", None),
    ],
)  # fmt: skip
def test_a_value_that_a_structure_calls_a_secret_counts_as_one(name: str, value: str, kind: str | None) -> None:
    assert [one.kind for one in secrets.find_called(name, value)] == ([kind] if kind else [])


def test_the_form_of_a_secret_says_more_than_its_name() -> None:
    token = "gh" + "p_" + MIXED[:36]
    assert [one.kind for one in secrets.find(f"token={token}")] == ["a GitHub token"]
    assert [one.kind for one in secrets.find_called("token", token)] == ["a GitHub token"]


@given(st.lists(st.sampled_from([text for _, text in SECRETS] + ORDINARY + list("\n\"'=:-.@")), max_size=8))
# A label stands on one line where a key of several lines stood.
@example(
    [
        "password = getpass('Password: ')",
        f"-----BEGIN {'PRIVATE KEY'}-----\n{MIXED}\n-----END PRIVATE KEY-----",
        "after",
    ]
)
def test_findings_are_in_order_and_apart_and_redacting_twice_is_redacting_once(parts: list[str]) -> None:
    text = " ".join(parts)
    found = secrets.find(text)
    assert all(0 <= one.start < one.end <= len(text) for one in found)
    assert all(one.end <= other.start for one, other in pairwise(found))
    redacted = secrets.redacted(text)
    assert secrets.redacted(redacted) == redacted


@given(st.text())
def test_any_text_is_searched_without_failure(text: str) -> None:
    assert secrets.redacted(text) == text or secrets.find(text)


def test_no_kind_repeats_what_was_found() -> None:
    for kind, text in SECRETS:
        assert re.fullmatch(r"[A-Za-z ]+", kind)
        assert kind not in text


LONG = 1_000_000


@pytest.mark.parametrize(
    "piece",
    ["a", "a ", "\n", "password=", "pwd=", "pwd:a", "token:token:", 'token="', "token='x \" ", "secret is ", "key_key_",
     "eyJ", "eyJ-", "eyJa.", "eyJaaaaaaaaaaaaaaaaaaa.", "sk-", "sk-a-", "gh" + "p_", "SG.", "SG.aaaaaaaaaaaaaaaaaaaa.", "://",
     "://a:b:", "://a:bbb@", "-----" + "BEGIN PRIVATE KEY-----", "-----BEGIN ", "-----END PRIVATE KEY-----BEGIN RSA ",
     "om_aaaaaaaa_", "1:A", "123456:AAAA", "bearer ", "basic aaaaaaaa ", "Maaaaaaaaaaaaaaaaaaaaaaa.aaaaaa.", "xoxb-",
     "api_key: ", "aws secret access key = ", "İ password: ", "password=swordfish ://", "sk-your-",
     "password=testtest "],
)  # fmt: skip
def test_a_hostile_megabyte_takes_time_in_proportion(piece: str) -> None:
    def seconds(length: int) -> float:
        text = (piece * (length // len(piece) + 1))[:length]
        started = time.process_time()
        secrets.find(text)
        return time.process_time() - started

    assert (taken := seconds(LONG)) < 5 or taken < 40 * seconds(LONG // 10)
