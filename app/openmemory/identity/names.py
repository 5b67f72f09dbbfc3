"""The form of names: users, apps, namespaces, threads, kinds, keys and categories."""

from __future__ import annotations

import re
import unicodedata

from openmemory.errors import Invalid, TooLarge

# The C0 and C1 controls, the separators that end a line, and the characters that reverse the direction of a text.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

PERSON = "default"
"""The namespace of the person: what is of no project."""

_PATH = re.compile(r"\.{0,2}[/\\]|~[/\\]|[A-Za-z]:[/\\]")

_WORD = re.compile(r"[\w./@+-]{1,100}")


def checked_name(value: str, field: str, limit: int, setting: str = "limits.name") -> str:
    """Returns a name, or a title or another text of one line, without surrounding blanks.

    Raises:
        Invalid: it is blank, longer than `limit` characters, or has a control character or half of a surrogate pair.
    """
    name = value.strip()
    if not name:
        raise Invalid(field, "must not be empty or blank")
    if len(value) > limit:
        raise TooLarge(field, f"has {len(value):,} characters; the limit is {limit:,} ({setting})")
    one_line(name, field)
    storable(name, field)
    return name


def one_line(value: str, field: str) -> None:
    """Rejects line breaks and other control characters, which would make a name look like something else."""
    if control := _CONTROLS.search(value):
        raise Invalid(field, f"must not contain control characters, such as U+{ord(control[0]):04X}")


def storable(value: str, field: str) -> None:
    """Rejects what PostgreSQL and JSON cannot store: NUL and lone surrogates."""
    if "\x00" in value:
        raise Invalid(field, "must not contain the NUL character (U+0000)")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Invalid(field, f"has half of a surrogate pair at position {error.start}; send valid Unicode") from None


def category_name(name: str) -> str:
    """Returns the one form of a category's name: case folded, blanks trimmed and single."""
    folded = unicodedata.normalize("NFC", name).casefold()
    return " ".join(unicodedata.normalize("NFC", folded).split())


def is_path(name: str) -> bool:
    """Returns True if a name of a project is a path, such as `.` or `/srv/shop`. `acme/shop` is none."""
    return name in (".", "..", "~") or _PATH.match(name) is not None


def one_word(name: str, otherwise: str) -> str:
    """Returns the name of a project if it is one word, and otherwise another text. Whoever made a folder may have named
    it with a sentence for assistants."""
    return name if _WORD.fullmatch(name) else otherwise
