"""Finds secrets in texts: keys and tokens by their published formats, and values that are named as a secret.

Pure functions. Every search is linear in the text: a format is located by its constant prefix and matched from there.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from openmemory.content_policy import assignments, samples
from openmemory.content_policy.assignments import Finding


class _Form(NamedTuple):
    """The format of a secret with a constant prefix. `true` decides if a token of this format is one; None: it is."""

    kind: str
    begins: str
    match: Callable[[str, int], re.Match[str] | None]
    true: Callable[[str], bool] | None = None


def _telling(token: str) -> bool:
    """Returns True if a token has a digit, unlike compound words such as `sk-learn-compatible-estimators`."""
    return any(letter.isdigit() for letter in token) and not assignments.worded(token[3:])


def _web_token(token: str) -> bool:
    """Returns True if the first part is the header of a JSON Web Token, and the second is not the well-known sample."""
    head, _, rest = token.partition(".")
    if not samples.names_algorithm(head):
        return False
    claims = samples.decoded(rest.partition(".")[0][:_MAX_CLAIMS_LENGTH])
    return (claims.get("sub"), claims.get("name")) != ("1234567890", "John Doe")


_MAX_CLAIMS_LENGTH = 8_192


_ALONE = r"(?<![A-Za-z0-9])"
_WEB_TOKEN = r"(?<![A-Za-z0-9_-])e[yw][A-Za-z0-9_-]{12,}+\.[A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]*+){1,3}"  # noqa: S105


def _forms() -> Iterator[_Form]:
    for kind, starts, rest, *true in (
        ("a GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9]{30,}"),
        ("a GitHub token", "github_pat_", r"[A-Za-z0-9_]{30,}"),
        ("a GitLab token", "glpat- gldt- glrt- glcbt- glptt-", r"[A-Za-z0-9_.-]{18,}"),
        ("a Slack token", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-", r"[A-Za-z0-9-]{15,}"),
        ("a Slack token", "xoxe.", r"xox[bp]-[A-Za-z0-9-]{10,}"),
        ("a Slack webhook", "hooks.slack.com/", r"(?:services|workflows|triggers)/[A-Za-z0-9/+_-]{20,}"),
        ("a Discord webhook", "discord.com/api/webhooks/ discordapp.com/api/webhooks/", r"\d+/[\w-]{30,}"),
        ("a Stripe key", "sk_live_ rk_live_ sk_test_ rk_test_", r"[A-Za-z0-9]{12,}"),
        ("a Stripe secret", "whsec_", r"[A-Za-z0-9+/=]{24,}"),
        ("an Anthropic key", "sk-ant-", r"[A-Za-z0-9_-]{16,}"),
        ("an OpenAI key", "sk-proj- sk-svcacct- sk-admin-", r"[A-Za-z0-9_-]{16,}"),
        ("an OpenAI key", "sk-", r"[A-Za-z0-9_-]{20,}", _telling),
        ("a Google API key", "AIza", r"[A-Za-z0-9_-]{35,}"),
        ("a Google client secret", "GOCSPX-", r"[A-Za-z0-9_-]{20,}"),
        ("a Google access token", "ya29.", r"[A-Za-z0-9_-]{20,}"),
        ("an npm token", "npm_", r"[A-Za-z0-9]{30,}"),
        ("a PyPI token", "pypi-AgE", r"[A-Za-z0-9_-]{30,}"),
        ("a Hugging Face token", "hf_", r"[A-Za-z0-9]{30,}"),
        ("a SendGrid key", "SG.", r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
        ("a Twilio key", "SK", r"[0-9a-f]{32}(?![A-Za-z0-9])"),
        ("a DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", r"[0-9a-f]{40,}"),
        ("an AWS access key", "AKIA ASIA ABIA ACCA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("an age key", "AGE-SECRET-KEY-1", r"[A-Z0-9]{40,}"),
        ("an OpenMemory key", "om_", r"[a-z0-9]{8}_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"),
    ):
        for begins in starts.split():
            yield _Form(kind, begins, re.compile(_ALONE + re.escape(begins) + rest).match, *true)
    for begins in ("eyJ", "eyAi", "ewog", "ewoJ"):  # a JSON object in base64
        yield _Form("a JSON Web Token", begins, re.compile(_WEB_TOKEN).match, _web_token)


_FORMS = tuple(_forms())
_MIN_LENGTH = 20
"""The minimum length without a blank of every format."""

_KEY_BEGINS = "-----BEGIN "
_KEY_HEAD = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=]{24,}")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")

_IN_ADDRESS = re.compile(r"://([^\s/:@\"'<>\[({]*+):([^\s/?#\"'<>]++)")
_HEADER = re.compile(r"\b(bearer|basic)\s{1,4}([A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE)

_TELEGRAM = re.compile(r":A[A-Za-z0-9_-]{34}(?![A-Za-z0-9_-])")
_TELEGRAM_ID = re.compile(r"(?<!\d)\d{5,16}\Z")
_DISCORD = re.compile(
    r"(?<![A-Za-z0-9_.-])([MNO][A-Za-z0-9_-]{21,27})\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,45}(?![A-Za-z0-9_-])"
)


def find(text: str) -> list[Finding]:
    """The likely secrets in a text, in order and without overlaps."""
    findings: list[Finding] = []
    longest = max(map(len, text.split()), default=0)
    if longest >= _MIN_LENGTH:
        for form in _FORMS:
            if form.begins in text:
                findings += _of_form(text, form)
        if ":A" in text:
            findings += _telegram(text)
        if longest >= 57 and "." in text:
            findings += _discord(text)
    if "://" in text and "@" in text:
        findings += _in_addresses(text)
    if longest >= assignments.MIN_VALUE_LENGTH:
        if _KEY_BEGINS in text:
            findings += _private_keys(text)
        lowered = text.lower()
        if len(lowered) != len(text):
            lowered = text.translate(_LOWER)
        if "bearer" in lowered or "basic" in lowered:
            findings += _headers(text)
        findings += assignments.find(text, lowered)
    return _apart(findings) if len(findings) > 1 else findings


def find_called(name: str, value: str) -> list[Finding]:
    """The secrets in a value of a JSON object. `name` is its key: the value of `{"api_key": "..."}` is a secret."""
    findings = find(value)
    if not findings and (kind := assignments.of_name(name, value)):
        return [Finding(kind, 0, len(value))]
    return findings


_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def redacted(text: str) -> str:
    """The text with every secret replaced by a label such as `[redacted: GitHub token]`."""
    return without(text, find(text))


def without(text: str, findings: list[Finding]) -> str:
    """The text with the findings redacted."""
    if not findings:
        return text
    parts, at = [], 0
    for one in findings:
        parts += [text[at : one.start], label(one.kind)]
        at = one.end
    return "".join([*parts, text[at:]])


def label(kind: str) -> str:
    """The label that replaces a secret of this kind."""
    return f"[redacted: {kind.partition(' ')[2]}]"


def _of_form(text: str, form: _Form) -> Iterator[Finding]:
    at = text.find(form.begins)
    while at >= 0:
        end = at + 1
        if match := form.match(text, at):
            end = match.end()
            token = match[0]
            if (form.true is None or form.true(token)) and not samples.sample_of_vendor(token[len(form.begins) :]):
                yield Finding(form.kind, at, end)
        at = text.find(form.begins, end)


def _private_keys(text: str) -> Iterator[Finding]:
    """Private keys in PEM and similar formats. A key without an end line extends to the end of the text."""
    at = 0
    while head := _KEY_HEAD.search(text, at):
        tail = _KEY_END.search(text, head.end())
        end = tail.end() if tail else len(text)
        # A sentence may only mention the first line of such a key.
        if _KEY_BODY.search(text, head.end(), tail.start() if tail else end):
            yield Finding("a private key", head.start(), end)
        at = end


def _in_addresses(text: str) -> Iterator[Finding]:
    """Passwords in `scheme://user:password@host`."""
    for match in _IN_ADDRESS.finditer(text):
        password, at, host = match[2].rpartition("@")
        if at and password and not _sample_login(match[1], password, host):
            yield Finding("a password", match.start(2), match.start(2) + len(password))


def _sample_login(user: str, password: str, host: str = "") -> bool:
    """Returns True if a user name and password are an example or a default login."""
    if samples.sample(password):
        return True
    if samples.placeholder(user) and samples.stands_for_password(password):
        return True
    known = password == user or (user, password) == ("scott", "tiger")
    return samples.one_word(password) and (known or samples.is_local(f"://{host}", 0, 0))


def _headers(text: str) -> Iterator[Finding]:
    """Credentials in the form of HTTP authorization headers."""
    for match in _HEADER.finditer(text):
        scheme, credential = match[1].lower(), match[2].rstrip(".")
        if scheme == "basic":
            real = _name_and_password(credential)
        else:
            real = len(credential) >= 16 and assignments.random(credential)
        if real and not samples.sample_of_key(credential):
            kind = "a bearer token" if scheme == "bearer" else "basic credentials"
            yield Finding(kind, match.start(2), match.start(2) + len(credential))


def _name_and_password(credential: str) -> bool:
    try:
        user, _, password = base64.b64decode(credential, validate=True).decode("latin-1").partition(":")
    except binascii.Error:
        return False
    return bool(password) and not _sample_login(user, password)


def _telegram(text: str) -> Iterator[Finding]:
    for match in _TELEGRAM.finditer(text):
        if samples.sample(match[0][1:]):
            continue
        if number := _TELEGRAM_ID.search(text, max(0, match.start() - 17), match.start()):
            yield Finding("a Telegram bot token", number.start(), match.end())


def _discord(text: str) -> Iterator[Finding]:
    for match in _DISCORD.finditer(text):
        identity = match[1]
        try:
            decoded = base64.urlsafe_b64decode(identity + "=" * (-len(identity) % 4))
        except binascii.Error:
            continue
        if decoded.isdigit():
            yield Finding("a Discord token", match.start(), match.end())


def _apart(findings: list[Finding]) -> list[Finding]:
    """Sorts the findings and merges overlapping ones. The kind that is searched for first is the most specific."""
    apart: list[tuple[int, Finding]] = []
    for place, one in sorted(enumerate(findings), key=lambda placed: placed[1].start):
        if apart and one.start < apart[-1][1].end:
            before, last = apart.pop()
            kind = one.kind if place < before else last.kind
            apart.append((min(place, before), Finding(kind, last.start, max(last.end, one.end))))
        else:
            apart.append((place, one))
    return [one for _, one in apart]
