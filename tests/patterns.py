"""The regular expressions of the package, and their uses. `python -m tests.patterns` prints how their time grows."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.pumping import Growth, pumps, worst

PACKAGE = Path(__file__).parents[1] / "app" / "openmemory"

_LISTED = """
import json, pkgutil, re, sys
import importlib, openmemory
compiled = re._compile
found = []
def listed(pattern, flags):
    frame = sys._getframe(1)
    while frame.f_globals["__name__"] == "re":
        frame = frame.f_back
    made = compiled(pattern, flags)
    module = frame.f_globals["__name__"]
    if module.startswith("openmemory."):
        is_bytes = isinstance(made.pattern, bytes)
        text = made.pattern.decode("latin-1") if is_bytes else made.pattern
        found.append((module, frame.f_lineno, text, is_bytes, made.flags))
    return made
re._compile = listed
for module in pkgutil.walk_packages(openmemory.__path__, "openmemory."):
    if not module.name.endswith("__main__") and ".migrations" not in module.name:
        importlib.import_module(module.name)
json.dump(found, sys.stdout)
"""
"""Prints the expressions that the package compiles while it is imported, with the lines that do."""

_METHODS = {
    "search": "search", "match": "match", "fullmatch": "fullmatch", "finditer": "finditer", "findall": "finditer",
    "sub": "finditer", "subn": "finditer", "split": "finditer",
}  # fmt: skip
_ALL = frozenset(_METHODS.values())

MADE = {
    ("openmemory.llm.completions", "refused_parameter"): r"\btemperature\b",
    ("openmemory.doors.web.templating", "marks_of"): r"(?<!\w)((?:a|tea|te|c\+\+)\w*)",
    ("openmemory.categories.taxonomy", "described"): r"(?<!\w)(?:hive(?:es?|s|'s)?|bee|honey(?:es?|s|'s)?)(?!\w)",
    (
        "openmemory.doors.rest.http.routing",
        "__init__",
    ): r"^/api/v1/memories/(?P<memory_id>[^/]+)/links/(?P<link_id>[^/]+)/?$",
    (
        "openmemory.doors.mcp.transport.endpoints",
        "__init__",
    ): r"^/mcp/(?P<client>[^/]+)/sse/(?P<user>[^/]+)/messages/{0,1}$",
    ("openmemory.index.engine.shards", "_move_aside"): r"openmemory_1\.broken-(\d+)",
}
"""Samples of the expressions that functions make of their arguments."""

_PASSED_ON = {"path_regex": "match", "_pattern": "finditer", "pattern": "finditer", "_SCRIPTS": "finditer"}
"""The methods of expressions that are called by another name, such as those of routes, which Starlette matches."""


class Used(NamedTuple):
    """An expression, the places that compile it, and the methods that are called on it."""

    name: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]

    def growths(self) -> Iterator[tuple[str, Growth]]:
        """The worst growth of the time of each method, but of those that are the first step of another one here."""
        tried = pumps(self.pattern)
        searching = [method for method in ("finditer", "search", "match") if method in self.methods]
        for method in sorted({*self.methods} - {*searching[1:]}):
            yield method, worst(self._run(method), tried)

    def _run(self, method: str) -> Callable[[str], object]:
        call = getattr(self.pattern, method)
        whole: Callable[[Any], object] = (lambda text: deque(call(text), 0)) if method == "finditer" else call
        if isinstance(self.pattern.pattern, bytes):
            return lambda text: whole(text.encode("latin-1", "replace"))
        return whole


class Call(NamedTuple):
    """A call of a function of `re` in the source."""

    module: str
    function: str
    name: str
    lines: range
    argument: ast.expr
    flags: list[ast.expr]
    methods: frozenset[str]


@functools.cache
def every() -> list[Used]:
    """All expressions of the package.

    Raises:
        AssertionError: a function makes one that `MADE` has no sample of.
    """
    command = [sys.executable, "-c", _LISTED]
    printed = subprocess.run(command, capture_output=True, check=True, timeout=120).stdout
    calls = [call for file in sorted(PACKAGE.rglob("*.py")) for call in _calls(file)]
    found: dict[tuple[str | bytes, int], list[tuple[str, frozenset[str]]]] = {}
    for module, line, text, is_bytes, flags in json.loads(printed):
        named = [call for call in calls if call.module == module and line in call.lines]
        methods = frozenset().union(*(call.methods for call in named)) or _ALL
        name = named[0].name if named else f"line {line}"
        found.setdefault((text.encode("latin-1") if is_bytes else text, flags), []).append(
            (f"{module}.{name}", methods)
        )
    for call in calls:
        if call.function and (made := _made(call)) is not None:
            named_so = f"{call.module}.{call.function}", call.methods or _ALL
            found.setdefault((made.pattern, made.flags), []).append(named_so)
    some = []
    for (source, flags), uses in found.items():
        methods = frozenset().union(*(methods for _, methods in uses))
        bare = flags & ~re.UNICODE if isinstance(source, str) else flags
        some.append(Used(" = ".join(dict.fromkeys(name for name, _ in uses)), re.compile(source, bare), methods))
    return sorted(some, key=lambda used: used.name)


def _made(call: Call) -> re.Pattern[Any] | None:
    """The expression of a call in a function; None if it was an argument that another call compiled."""
    if isinstance(call.argument, ast.Name) and call.argument.id.isupper():
        names = vars(importlib.import_module(call.module))
        return re.compile(names[call.argument.id])
    sample = MADE.get((call.module, call.function))
    if sample is not None:
        return re.compile(sample, re.IGNORECASE if call.flags else 0)
    names = vars(importlib.import_module(call.module))
    try:
        source = eval(compile(ast.Expression(call.argument), call.module, "eval"), names)
    except NameError:
        return None if call.function in _AT_IMPORT else _unknown(call)
    flags = [eval(compile(ast.Expression(each), call.module, "eval"), names) for each in call.flags]
    return re.compile(source, functools.reduce(lambda one, other: one | other, flags, 0))


_AT_IMPORT = {"_forms", "_pattern", "_rule", "_subject"}
"""Functions whose expressions are all compiled while the package is imported."""


def _unknown(call: Call) -> None:
    raise AssertionError(f"{call.module}.{call.function} makes an expression: add a sample to MADE")


def _calls(file: Path) -> Iterator[Call]:
    source = file.read_text(encoding="utf-8")
    if not re.search(r"^import re$|^from re import", source, re.MULTILINE):
        return
    assert "from re import" not in source, file
    module = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    yield from _calls_below(ast.parse(source), module, "", "", _uses(file))


def _calls_below(node: ast.AST, module: str, function: str, name: str, uses: dict[str, set[str]]) -> Iterator[Call]:
    for child in ast.iter_child_nodes(node):
        within, named = function, name
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            within = child.name
        if isinstance(child, ast.Assign | ast.AnnAssign):
            target = child.targets[0] if isinstance(child, ast.Assign) else child.target
            named = getattr(target, "id", getattr(target, "attr", name))
        match child:
            case ast.Attribute(value=ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr="compile")) as call):
                direct = {_METHODS[child.attr]} if child.attr in _METHODS else set()
                yield _call(call, module, within, named, frozenset(direct))
                continue
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr="compile")):
                yield _call(child, module, within, named, frozenset(uses.get(named, uses.get(within, ()))))
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=method)) if method in _METHODS:
                yield _call(child, module, within, named, frozenset({_METHODS[method]}))
        yield from _calls_below(child, module, within, named, uses)


def _call(call: ast.Call, module: str, function: str, name: str, methods: frozenset[str]) -> Call:
    known = {"compile": 1, "sub": 3, "subn": 3}
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    flags = [each.value for each in call.keywords if each.arg == "flags"] or call.args[known.get(method, 2) :][:1]
    if method == "split":
        flags = []
    lines = range(call.lineno, (call.end_lineno or call.lineno) + 1)
    return Call(module, function, name or function, lines, call.args[0], flags, methods)


@functools.cache
def _all_uses() -> dict[tuple[Path, str], set[str]]:
    """The methods that are called on names in each module."""
    found: dict[tuple[Path, str], set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in _METHODS:
                value = node.value.value if isinstance(node.value, ast.Subscript) else node.value
                name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
                found.setdefault((file, name), set()).add(_METHODS[node.attr])
    return found


def _uses(file: Path) -> dict[str, set[str]]:
    """The methods that are called on each name of a module, in this module or, if it is public, in another one."""
    found = {name: {method} for name, method in _PASSED_ON.items()}
    for (place, name), methods in _all_uses().items():
        if place == file or (name.isupper() and name[0] != "_"):
            found.setdefault(name, set()).update(methods)
    return found


if __name__ == "__main__":
    print("| expression | method | growth for twice the length | seconds | beginning | repeated | end |")
    print("|---|---|---|---|---|---|---|")
    for used in every():
        for method, growth in used.growths():
            factor = f"{growth.factor:.2f}" if growth.factor else "too fast to be measured"
            pump = " | ".join(f"`{json.dumps(each[:40])}`".replace("|", "\\|") for each in growth.pump)
            print(f"| {used.name} | {method} | {factor} | {growth.seconds:.4f} | {pump} |", flush=True)
