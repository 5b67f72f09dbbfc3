"""Detects sample values in the place of a secret: `your-api-key`, `testpass123`, `${TOKEN}`. Pure functions.

A value is not a secret if one of these rules applies:

1. It is a mask: `xxxxxxxx`, `****`, also with up to four characters visible at each end.
2. It refers to where the real value is kept: `${TOKEN}`, `<token>`, `os.environ["TOKEN"]`.
3. All its words are typical of examples, separate or joined, with only counting digits and signs between or after them:
   `mysecretpassword`, `TestPass123!`, `admin@123`.
4. It has only letters, is pronounceable, and mentions secrets or examples: `bobspassword`, `any_secret_here`.
5. It counts up from 1 or a: `12345678`, `abcdef123456`, or repeats one character.
6. It appears in public documentation: AWS examples, which end in `EXAMPLE`, and a JSON Web Token header alone.
7. It follows a prefix like those of vendors and is a sample itself: `sk-or-v1-1234567890abcdef`. After the known prefix
   of a vendor each part may be any word if one of them is typical of examples: `xoxb-your-acme-token`.
8. It follows a user name that is a placeholder, and is typical of examples: `user:pass@host`.

Anything else makes it real: `Tr0ub4dor&3`, `Sommer2024!`, `example-` before 40 random characters. The context counts in
three cases only. A token of at most 16 characters before an ellipsis is truncated. A password of one lower-case word is
a sample in an address of this machine or of example.com, and in a paragraph with such an address. If a sentence states
a password ("my password is admin123"), a value with digits is real unless it is a mask or a reference.
"""

from __future__ import annotations

import base64
import json
import re
from itertools import pairwise

MAX_SAMPLE_LENGTH = 128
"""The maximum length of a sample. Only masks and references may be longer."""

_MAX_GLUED_LENGTH = 48

_REFERENCE = re.compile(
    r"""[<\[({]                                             # <your key>, [redacted], {{ value }}
    | \$[{(] | \$[A-Za-z_]\w*\Z | %\w+%\Z | %[({s]           # ${NAME}, $NAME, %NAME%, %s
    | [~.]{0,2}/ | [A-Za-z]:\\                              # paths
    | !(?:vault|secret|env|env_var|ref|sub|getatt)\b        # YAML
    | (?:env|file|vault|op|ssm|secrets?|aws|gcp|azure|keyring|keychain|arn|ref|https?|urn|doppler|sops|pass|bw):
    | [A-Za-z_][\w.]*(?:\(|\[["'])                          # getenv("NAME"), environ["NAME"]
    | (?:process\.env|os\.environ|env|vars|secrets|settings|config|var|local|data|self|this)\.[A-Za-z_]
    | [\w.-]+\.(?:txt|ya?ml|json|toml|env|ini|cfg|conf|md|kdbx|pem|key|py|js|ts|go|rs|com|org|net|io|dev)\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_MASK = re.compile(r"[x*.#•…?_-]+", re.IGNORECASE)
_MASKED = re.compile(r"\w{0,4}[x*.•]{8,}\w{0,4}", re.IGNORECASE)
_PARTS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z][a-z])")


def words(text: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(text.split())


_MEANINGLESS = words(
    "a abc actual add an and another any api auth bar bearer change changed changeme client config credential "
    "credentials default demo dummy empty enter env environment example examples fake fill fixme foo for from "
    "generate generated goes here hidden in insert invalid is it key keys lorem me missing mock must my mypassword "
    "name new nil no none not null of old omitted optional or our paste password passwords passwort placeholder "
    "private put redacted remove removed replace required sample secret secrets set some something string temp test "
    "testing that the this thing to todo token tokens undefined unknown unset user username valid value variable "
    "with your yours yourkey yourpassword yourtoken"
)
"""Words that are used as a placeholder for a secret."""

_OF_EXAMPLES = (_MEANINGLESS - {"a"}) | words(
    "access account admin administrator app application correct current database db dev developer development docker "
    "email encryption guest hash hashed id initial insecure jwt local localhost long mongo mongodb more mysql original "
    "other pass passphrase passwd plain plaintext postgres postgresql prod production pwd rabbitmq random redis "
    "refresh root safe secure server service session short signing simple staging strong super tests text top unit "
    "unsafe updated use very weak web webhook wrong"
)
"""Words that passwords and keys in examples consist of, joined or not."""

_LENGTHS = range(min(map(len, _OF_EXAMPLES)), max(map(len, _OF_EXAMPLES)) + 1)

_SPOKEN_OF = re.compile(r"password|passwort|passphrase|passwd|secret|changeme|example|placeholder|yourkey|yourtoken")
_LETTERS = re.compile(r"[A-Za-z]+(?:[-_. ][A-Za-z]+)*")
_PIECES = re.compile(r"[a-z]+|\d+|[-_.@!#$&?* ]+")
_LEET = re.compile(r"p[a@]s[s$]w[o0]rd")
"""Spellings of "password" with digits and signs."""

_OF_AWS = re.compile(r"[A-Z0-9]{9}EXAMPLE|[A-Za-z0-9/+]{29,31}EXAMPLEKEY")

_CUT = 16
"""The maximum number of visible characters of a truncated token."""

_PREFIX = re.compile(r"\A(?:[A-Za-z]{1,6}\d{0,2}[-_.]){1,3}")
_REST = 8
"""The minimum number of characters after such a prefix."""

_VENDOR_PARTS = re.compile(r"[-_./+]+")
_VENDOR_WORD = re.compile(r"[a-z]+|[A-Z]+|[A-Z][a-z]+")
_VENDOR_MARK = re.compile(r"[A-Za-z]{0,6}\d{0,2}|[A-Za-z]?0+|x{4,}\d{0,4}|\*+[A-Za-z0-9]{0,4}", re.IGNORECASE)
"""`api03`, `v1`, `T00000000`, `xxxxxxxx1234`."""

_NEARBY = 400
_LOCAL = re.compile(
    r"://(?:(?:[^\s/@'\"]|\[redacted: [\w ]{1,40}\]){0,100}@)?"
    r"(?:localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|0\.0\.0\.0|\[::1\]|host\.docker\.internal"
    r"|(?:[a-z0-9-]{1,63}\.){0,3}(?:example(?:\.(?:com|org|net))?|test|localhost))(?![\w.-]*\w)",
    re.IGNORECASE,
)
_ONE_WORD = re.compile(r"[a-z]{1,16}")
_UNSPEAKABLE = re.compile(r"[bcdfghjklmnpqrstvwxz]{4}")
"""Common in random letters, rare in words."""


def placeholder(value: str) -> bool:
    """Returns True if the value is a mask, a reference, or words such as `your-key-here`: the first two rules."""
    if _MASK.fullmatch(value) or _REFERENCE.match(value):
        return True
    return all(part in _MEANINGLESS or (len(part) < 4 and part.isdigit()) for part in parts(value))


def sample(value: str) -> bool:
    """Returns True if the value is a sample by rules 1 to 6."""
    if placeholder(value):
        return True
    if len(value) > MAX_SAMPLE_LENGTH:
        return False
    lowered = value.lower()
    if _LETTERS.fullmatch(value) and _SPOKEN_OF.search(lowered) and not _UNSPEAKABLE.search(lowered):
        return True
    if _MASKED.fullmatch(value) or _OF_AWS.fullmatch(value) or names_algorithm(value.rstrip(".…")):
        return True
    return _counts(value) or _made_of_words(_LEET.sub("password", lowered))


def sample_of_key(value: str) -> bool:
    """Returns True if a token or a key is a sample, with or without a short prefix such as `sk-or-v1-`."""
    if sample(value):
        return True
    rest = _PREFIX.sub("", value, count=1)
    return _REST <= len(rest) < len(value) and not _REFERENCE.match(rest) and sample(rest)


def sample_of_vendor(rest: str) -> bool:
    """Returns True if the part after a vendor's key prefix is a sample."""
    if sample_of_key(rest):
        return True
    if len(rest) > MAX_SAMPLE_LENGTH:
        return False
    separate = [part for part in _VENDOR_PARTS.split(rest) if part]
    return any(map(_telling, separate)) and all(map(_of_vendor_sample, separate))


def parts(value: str) -> list[str]:
    """The words and numbers of a value, in lower case."""
    return [part.lower() for part in _PARTS.split(value)]


def is_local(text: str, start: int, end: int) -> bool:
    """Returns True if the paragraph around a position contains an address of this machine or of example.com."""
    before, after = text[max(0, start - _NEARBY) : start], text[end : end + _NEARBY]
    return _LOCAL.search(before.rpartition("\n\n")[2] + " " + after.partition("\n\n")[0]) is not None


def cut_off(text: str, start: int, end: int) -> bool:
    """Returns True if a token is truncated: an ellipsis follows its first characters."""
    shown = text[start:end].rstrip(".…")
    return len(shown) <= _CUT and text.startswith(("...", "…"), start + len(shown))


def names_algorithm(part: str) -> bool:
    """Returns True if this is the header of a JSON Web Token: an object in base64 that names an algorithm."""
    return "alg" in decoded(part[:_MAX_HEAD_LENGTH])


def decoded(part: str) -> dict[str, object]:
    """A part of a JSON Web Token as an object. Empty if it cannot be decoded."""
    if not part.startswith("e"):
        return {}
    try:
        value = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


_MAX_HEAD_LENGTH = 8_192


def stands_for_password(value: str) -> bool:
    """Returns True if the value is typical after `user:` in examples, as in `user:pass@host`, or very short."""
    return len(value) < 3 or value.lower() in _OF_EXAMPLES


def one_word(value: str) -> bool:
    """Returns True if the value is one word in lower case."""
    return _ONE_WORD.fullmatch(value) is not None and not _UNSPEAKABLE.search(value)


def _of_vendor_sample(part: str) -> bool:
    return bool(_VENDOR_WORD.fullmatch(part) or _VENDOR_MARK.fullmatch(part)) or sample(part)


def _telling(part: str) -> bool:
    """Returns True if this part of a key shows that the key is a sample. Random keys may contain short words too."""
    return len(part) > 3 and (_glued(part.lower()) or _counts(part) or _MASK.fullmatch(part) is not None)


def _counts(value: str) -> bool:
    """Returns True for `1234567890abcdef` and `aaaaaaaa`: on average four or more adjacent characters count up."""
    signs = [sign for sign in value.lower() if sign.isalnum()]
    if len(signs) < 4:
        return False
    if len(set(signs)) == 1:
        return True
    rows = 1 + sum(not _follows(one, other) for one, other in pairwise(signs))
    return signs[0] in "1a" and len(signs) >= 4 * rows


def _follows(one: str, other: str) -> bool:
    return other == one or ord(other) == ord(one) + 1 or (one, other) == ("9", "0")


def _made_of_words(lowered: str) -> bool:
    pieces = _PIECES.findall(lowered)
    whole = sum(map(len, pieces)) == len(lowered) and lowered != "pass"  # too short to be a sample by itself
    return whole and all(map(_of_examples, pieces)) and any(map(str.isalpha, pieces))


def _of_examples(piece: str) -> bool:
    if piece.isdigit():
        return all(_follows(one, other) and one != other for one, other in pairwise(piece))
    return not piece.isalpha() or _glued(piece)


def _glued(letters: str) -> bool:
    """Returns True if the letters are words typical of examples, joined without a gap."""
    if len(letters) > _MAX_GLUED_LENGTH:
        return False
    ends = {0}
    for at in range(len(letters)):
        if at in ends:
            ends.update(at + length for length in _LENGTHS if letters[at : at + length] in _OF_EXAMPLES)
    return len(letters) in ends
