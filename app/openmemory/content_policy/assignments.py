"""Finds values that a text names as a password, token, key or secret, and that look like real ones. Pure functions.

Memories are sentences: "token limits are 4096" and "the secret: use less salt" contain no secret. A value counts only
if it directly follows the name, and is not a word, a placeholder or a reference to where the real value is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from openmemory.content_policy import samples
from openmemory.content_policy.samples import parts

MIN_VALUE_LENGTH = 8
"""The minimum length of a value."""

MAX_VALUE_LENGTH = 128
"""The number of characters of a value that are checked."""

_NESTED = 8
"""The maximum number of named values that are checked within another value."""

_PASSWORDS = r"pass(?:word|wd|phrase|code|wort)|pwd|kennwort|mot\ de\ passe|contrase[ñn]a"
_OTHERS = (
    r"secret|token|api[ _.-]?key|access[ _.-]?key|private[ _.-]?key|auth[ _.-]?key|account[ _.-]?key"
    r"|signing[ _.-]?key|encryption[ _.-]?key|master[ _.-]?key|credentials?"
)
_NAME = (
    rf"(?:{_PASSWORDS}|{_OTHERS})"
    r"(?:[_.-]?(?:key|access[_-]?key|base|value|prod|production|dev|staging|test|live|main|backup|old|new"
    r"|\d{1,3})){0,3}"
)
_IN_NAMES = ("pass", "pwd", "wort", "contrase", "secret", "token", "key", "credential")
"""Every name contains one of these strings."""

_ASSIGNED = re.compile(
    rf"""(?P<name>{_NAME}) \\?["'`*]{{0,3}}
    (?: \s{{0,3}} (?:(?P<firm>:?=>?) | :(?!//) | ->) \s{{0,3}} | \s(?P<stated>is|ist|est|es|lautet|was):?\s{{1,3}} )
    (?:\*{{1,2}}\s{{0,3}})? \\?(?P<quote>["'`]?)""",
    re.VERBOSE,
)
_BARE = re.compile(rf"""[^\s"'`,;<>\\]{{1,{MAX_VALUE_LENGTH}}}""")
# A value ends at a label, or a second redaction would find what the first one left apart.
_QUOTED = {quote: re.compile(rf"(?:(?!\[redacted: )[^{quote}\n\\]){{1,{MAX_VALUE_LENGTH}}}") for quote in "\"'`"}
_REST = re.compile(r"""[^\s"'`,;<>\\]*+""")

_CALLED = re.compile(rf"(?:{_NAME})s?\Z", re.VERBOSE)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_WORD = re.compile(r"[a-z]+\d{0,2}|\d{1,4}[a-z]{0,2}|[a-z]{1,6}\d{1,4}|", re.IGNORECASE)
_TURN = re.compile(r"[a-z][A-Z]")


_TERMS = samples.words(
    "1password aes128 aes256 argon2id base64url ed25519 hmacsha256 pbkdf2 sha256sum utf8mb4 uuid4 x509"
)
"""Technical terms with digits."""


class Finding(NamedTuple):
    """The position of a secret in a text. `kind` describes it in words, with an article, and never contains it."""

    kind: str
    start: int
    end: int


def find(text: str, lowered: str) -> Iterator[Finding]:
    """The values of a text that are named as a secret and look like one. `lowered`: the text in lower case, with the
    same length."""
    if not any(part in lowered for part in _IN_NAMES):
        return
    at = run = inside = 0
    while match := _ASSIGNED.search(lowered, at):
        at = match.end()
        inside = inside + 1 if match.start() < run else 0
        if inside > _NESTED:
            at = _end_of_run(text, at)
            continue
        quote = match["quote"]
        value = (_QUOTED[quote] if quote else _BARE).match(text, at)
        if value is None:
            continue
        start, end = value.span()
        run = max(run, end)
        if not quote:
            end = start + len(value[0].rstrip(".,:!?)]}*"))
        kind = kind_of(match["name"], lowered[max(0, match.start() - 12) : match.start()])
        firm = bool(quote or match["firm"])
        goes_on = text[end : end + 1] == " " and text[end + 1 : end + 2].islower()
        stated = bool(match["stated"])
        real = _real(text[start:end], kind, firm=firm, within=stated or (goes_on and not firm))
        if real and not _in_example(text, start, end, kind, stated=stated):
            at = end if end - start < MAX_VALUE_LENGTH else _end_of_run(text, end)
            yield Finding(kind, start, at)


def _end_of_run(text: str, at: int) -> int:
    rest = _REST.match(text, at)
    return rest.end() if rest else at


def kind_of(name: str, before: str = "") -> str:
    """The kind of secret with this name, with an article. `before`: the text just before the name."""
    if "secret" in (whole := before + name) and "aws" in whole:
        return "an AWS secret key"
    for part, kind in (("api", "an API key"), ("key", "a secret key"), ("token", "a token"), ("secret", "a secret")):
        if part in name:
            return kind
    return "credentials" if name.startswith("credential") else _A_PASSWORD


_A_PASSWORD = "a password"  # noqa: S105 - a word


def of_name(name: str, value: str) -> str | None:
    """The kind of a value in a JSON object, such as "an API key". None unless its key names it as a secret and it looks
    like one."""
    called = _CALLED.search(_HUMP.sub("_", name[-MAX_VALUE_LENGTH:]).lower())
    if called is None or any(map(str.isspace, value)):
        return None
    kind = kind_of(called[0], name.lower())
    sample = samples.sample if kind == _A_PASSWORD else samples.sample_of_key
    real = _real(value[:MAX_VALUE_LENGTH], kind, firm=True, within=False) and not sample(value)
    return kind if real else None


def worded(value: str) -> bool:
    """Returns True if a value consists of words and small numbers, like names and versions."""
    return value.lower() in _TERMS or all(map(_WORD.fullmatch, parts(value)))


def random(value: str) -> bool:
    """Returns True if a value looks random, not like a word or a name."""
    if any(map(str.isdigit, value)):
        return any(map(str.isalpha, value)) and not worded(value)
    if not value.isascii() or not value.replace("_", "").replace("-", "").isalpha():
        return False
    return value.isalpha() and (len(value) > 24 or (len(value) >= 16 and len(_TURN.findall(value)) * 5 > len(value)))


def _real(value: str, kind: str, *, firm: bool, within: bool) -> bool:
    """Returns True if a value is a secret. `firm`: assigned as in a program; `within`: inside a sentence."""
    if len(value) < MIN_VALUE_LENGTH or samples.placeholder(value):
        return False
    if kind != _A_PASSWORD:
        return random(value)
    if value.isdigit():
        return not within
    if any(map(str.isdigit, value)) and any(map(str.isalpha, value)):
        return value.lower() not in _TERMS and (not within or len(parts(value)) == 1 or not worded(value))
    return firm and value.isascii() and (value.isalpha() or any(sign in value for sign in "!@#$%^&*+"))


def _in_example(text: str, start: int, end: int, kind: str, *, stated: bool) -> bool:
    """Returns True if a value that looks real is a sample. `stated`: a sentence states the value."""
    value = text[start:end]
    if stated and any(map(str.isdigit, value)):
        return False
    if kind != _A_PASSWORD:
        return samples.sample_of_key(value) or samples.cut_off(text, start, end)
    return samples.sample(value) or (samples.one_word(value) and samples.is_local(text, start, end))
