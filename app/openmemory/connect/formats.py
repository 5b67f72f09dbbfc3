"""The formats of configuration files: each reads a text, and adds or removes one value without touching the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

import tomlkit
import yaml
from tomlkit.exceptions import TOMLKitError

from openmemory.connect import jsonc


class FormatError(ValueError):
    """A file cannot be read in its format, or cannot be edited without changing something else."""


class FileFormat(Protocol):
    """A configuration format. An empty text is an empty mapping."""

    def loads(self, text: str) -> Any:
        """Returns the value of a text. Raises `ValueError` if it has none."""
        ...

    def insert(self, text: str, path: Sequence[str], value: dict[str, Any]) -> str:
        """Returns the text with `value` at `path`, which replaces what was there."""
        ...

    def remove(self, text: str, path: Sequence[str]) -> str:
        """Returns the text without what is at `path`."""
        ...


class Toml:
    """TOML."""

    def loads(self, text: str) -> Any:
        return tomlkit.parse(text).unwrap()

    def insert(self, text: str, path: Sequence[str], value: dict[str, Any]) -> str:
        section, name = path
        document = tomlkit.parse(text)
        if section not in document:
            document[section] = tomlkit.table(is_super_table=True)
        table = tomlkit.table()
        for key, entry in value.items():
            table[key] = tomlkit.inline_table() | entry if isinstance(entry, dict) else entry
        document[section][name] = table
        return document.as_string()

    def remove(self, text: str, path: Sequence[str]) -> str:
        section, name = path
        document = tomlkit.parse(text)
        del document[section][name]
        return document.as_string()


class Yaml:
    """YAML. Only block mappings are edited, line by line, at the places that the parser reports."""

    def loads(self, text: str) -> Any:
        return yaml.safe_load(text) or {}

    def insert(self, text: str, path: Sequence[str], value: dict[str, Any]) -> str:
        if self._find(text, path) is not None:
            text = self.remove(text, path)
        section, name = path
        parent = self._find(text, [section])
        if parent is None:
            lines = text if not text or text.endswith("\n") else text + "\n"
            return lines + _block({section: {name: value}}, "")
        _, node = parent
        if isinstance(node, yaml.ScalarNode | yaml.MappingNode) and not node.value:
            # `extensions:` or `extensions: {}`
            head = text[: node.start_mark.index].rstrip(" ")
            rest = text[node.end_mark.index :].partition("\n")[2]
            return head + "\n" + _block({name: value}, "  ") + rest
        if not isinstance(node, yaml.MappingNode) or node.flow_style:
            raise FormatError(f"{section} is not a block of lines")
        first = node.value[0][0].start_mark
        start = text.rfind("\n", 0, first.index) + 1
        return text[:start] + _block({name: value}, " " * first.column) + text[start:]

    def remove(self, text: str, path: Sequence[str]) -> str:
        nodes = self._find(text, path)
        if nodes is None or isinstance(nodes[1], yaml.ScalarNode):
            raise FormatError(f"there is no {'.'.join(path)}")
        key, node = nodes
        start = text.rfind("\n", 0, key.start_mark.index) + 1
        last = _last(node)
        end = text.find("\n", last) + 1 or len(text)
        return text[:start] + text[end:]

    def _find(self, text: str, path: Sequence[str]) -> tuple[yaml.Node, yaml.Node] | None:
        """The nodes of a key and its value."""
        key, node = None, yaml.compose(text, Loader=yaml.SafeLoader)
        for name in path:
            if not isinstance(node, yaml.MappingNode):
                return None
            key, node = next(((k, v) for k, v in node.value if k.value == name), (None, None))
        return None if key is None or node is None else (key, node)


def _block(value: dict[str, Any], indent: str) -> str:
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False, width=10_000)
    return "".join(f"{indent}{line}\n" for line in text.splitlines())


def _last(node: yaml.Node) -> int:
    """The place in the text where the last value inside a node ends. A block's own mark is behind what follows it."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node.end_mark.index


JSON: FileFormat = jsonc
TOML, YAML = Toml(), Yaml()


def edited(kind: FileFormat, text: str, path: Sequence[str], value: dict[str, Any] | None) -> str:
    """Returns the text with `value` at `path`, or without what is there if `value` is None.

    Raises:
        FormatError: the file is broken, or the edit would have changed anything else.
    """
    try:
        before = kind.loads(text)
        after = kind.remove(text, path) if value is None else kind.insert(text, path, value)
        if kind.loads(after) != _change(before, path, value):
            raise FormatError("the edit would have changed other settings")
    except (ValueError, TypeError, KeyError, yaml.YAMLError, TOMLKitError, RecursionError) as error:
        raise FormatError(" ".join(str(error).split()) or type(error).__name__) from error
    return after


def _change(data: Any, path: Sequence[str], value: Any) -> Any:
    data = json.loads(json.dumps(data, default=str))
    at = data
    for key in path[:-1]:
        if value is None and key not in at:
            return data
        if at.get(key) is None:
            at[key] = {}  # YAML's empty section
        at = at[key]
    if value is None:
        at.pop(path[-1], None)
    else:
        at[path[-1]] = value
    return data
