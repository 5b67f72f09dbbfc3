"""Finds the names that a passage of code defines: functions, methods, classes and other types.

Pure functions. Regular expressions read the languages that name their definitions by a keyword or by a block in braces.
"""

from __future__ import annotations

import re

MOST = 50
"""The number of names of one passage that are kept."""

_NAME = r"[A-Za-z_$][\w$]{0,99}"
_MODIFIERS = """
    export default public private protected internal static abstract final sealed async unsafe extern const inline
    virtual override open data partial readonly declare suspend local
""".split()  # noqa: SIM905 - a list of words
_KEYWORDS = """
    def class func fun fn function interface type struct enum trait impl module namespace object record protocol
    extension mod macro_rules!
""".split()  # noqa: SIM905
_STATEMENTS = frozenset(
    """
    if for foreach while switch catch return else elif with using lock match when do try new await throw function func
    import
    """.split()  # noqa: SIM905
)
_DEFINITION = re.compile(
    rf"""
    ^(?P<indent>[ \t]*)
    (?:
        (?:(?:{"|".join(_MODIFIERS)}|pub(?:\([\w:]{{1,40}}\))?)[ \t]+){{0,6}}
        (?:{"|".join(map(re.escape, _KEYWORDS))})\*?[ \t]+
        (?:\([ \t]*(?:\w+[ \t]+)?\*?(?P<receiver>{_NAME})(?:\[[^\]\n]{{0,80}}\])?[ \t]*\)[ \t]*)?
        (?:self\.)?(?P<keyword>{_NAME})
    |
        (?:export[ \t]+)?(?:const|let|var)[ \t]+(?P<assigned>{_NAME})[ \t]*(?::[^=\n]{{1,200}})?=[ \t]*
        (?:async[ \t]*)?(?:function\b|\([^()\n]{{0,300}}\)[^=\n]{{0,200}}=>|{_NAME}[ \t]*=>)
    |
        (?:[\w$<>\[\],.*&:?]{{1,100}}[ \t]+){{0,6}}(?P<block>~?{_NAME})(?:<[^<>(){{}};]{{0,200}}>)?[ \t]*
        \([^(){{}};]{{0,600}}(?:\([^(){{}};]{{0,200}}\)[^(){{}};]{{0,300}}){{0,6}}\)[^(){{}};=]{{0,200}}\{{
    )
    """,
    re.MULTILINE | re.VERBOSE,
)


def symbols(content: str, heading: str | None) -> list[str]:
    """The names that a passage of code defines, in lower case: alone, and after the name of what they belong to.

    `heading`: the lines that open what is around the passage, such as those of a class.
    """
    above = [name for title in (heading or "").split(" > ") if (name := _first(title))]
    names: dict[str, None] = {}
    around: list[tuple[int, str]] = []
    for match in _DEFINITION.finditer(content):
        name = match["keyword"] or match["assigned"] or match["block"]
        if name in _STATEMENTS:
            continue
        indent = len(match["indent"].expandtabs(4))
        while around and around[-1][0] >= indent:
            around.pop()
        # The beginning of a long function has its own first line as its heading.
        outer = () if indent == 0 else above[:-1] if above[-1:] == [name] else above
        owner = match["receiver"] or (around[-1][1] if around else outer[-1] if outer else None)
        around.append((indent, name))
        names[normal(name)] = None
        if owner:
            names[normal(f"{owner}.{name}")] = None
        if len(names) >= MOST:
            break
    return [*names]


def normal(name: str) -> str:
    """A name as it is compared: `Store::get` and `Store#get` are `store.get`."""
    return name.strip().replace("::", ".").replace("#", ".").lower()


def _first(line: str) -> str | None:
    match = _DEFINITION.match(line)
    return None if match is None else match["keyword"] or match["assigned"] or match["block"]
