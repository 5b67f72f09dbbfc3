"""The form in which texts are compared. They are stored as they came."""

from __future__ import annotations

import unicodedata


def normal_form(text: str) -> str:
    """Returns a text composed (NFC), with the line ends of Unix and without blanks at its ends and those of its lines.

    Texts of one normal form look the same, whichever editor, operating system or copy they went through.
    """
    lines = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).strip()
