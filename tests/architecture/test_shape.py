"""What the import contracts in pyproject.toml cannot say about the shape of the code."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PACKAGE = "app/openmemory"
SETTINGS = {f"{PACKAGE}/config/settings.py", f"{PACKAGE}/config/settings_file.py"}

PROTOCOLS = {"__main__", "doors", "jobs", "telemetry"}
"""Packages that may know a protocol, beside features that may not."""

TOP = {"__init__.py", "__main__.py", "errors.py", "services.py", "stores.py"}
"""Modules that belong to no package."""

DOORS = ("doors/cli", "doors/mcp", "doors/rest", "doors/web", "importers", "jobs")
"""Packages that call services and never query the database themselves."""

STARTERS = {
    "create_subprocess_exec", "create_subprocess_shell", "execv", "execve", "execvp", "execvpe", "fork", "forkpty",
    "popen", "posix_spawn", "posix_spawnp", "spawnv", "spawnve", "subprocess_exec", "subprocess_shell", "system",
    "ProcessPoolExecutor",
}  # fmt: skip
"""Names that start a process without an import that would tell."""

SQL = re.compile(r"[\s({]*(select|insert|update|delete|with|merge|create|alter|truncate|from|union)\b", re.IGNORECASE)
"""The beginning of a statement or of a part of one."""


def _sources(root: Path, pattern: str) -> Iterator[tuple[str, ast.Module]]:
    """Parses the modules that contain the pattern. Parsing every module would take two seconds."""
    for file in sorted((root / PACKAGE).rglob("*.py")):
        if re.search(pattern, source := file.read_text(encoding="utf-8")):
            yield file.relative_to(root).as_posix(), ast.parse(source)


def test_no_file_of_the_product_is_longer_than_500_lines(root: Path) -> None:
    lengths = {
        file.relative_to(root).as_posix(): len(file.read_text(encoding="utf-8").splitlines())
        for file in (root / PACKAGE).rglob("*.py")
    }
    assert {name: lines for name, lines in lengths.items() if lines > 500} == {}


def test_no_module_is_named_after_nothing(root: Path) -> None:
    vague = re.compile(r"(^|_)(utils?|helpers?|commons?|core|managers?|misc|stuff)$")
    names = [path for path in (root / PACKAGE).rglob("*") if path.is_dir() or path.suffix == ".py"]
    assert [str(path.relative_to(root)) for path in names if vague.search(path.stem)] == []


def test_no_two_classes_share_a_name(root: Path) -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in (root / PACKAGE).rglob("*.py"):
        for name in re.findall(r"^ *class (\w+)[(:]", file.read_text(encoding="utf-8"), re.MULTILINE):
            places[name].append(file.relative_to(root).as_posix())
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_packages_are_empty_at_their_door(root: Path) -> None:
    filled = [str(file.relative_to(root)) for file in (root / PACKAGE).rglob("__init__.py") if file.stat().st_size]
    # The outermost is imported before anything else, so it turns off the telemetry of what is imported then.
    assert filled == [f"{PACKAGE}/__init__.py"]


def test_every_feature_is_held_to_know_no_protocol(root: Path, pyproject: dict[str, Any]) -> None:
    contracts = {contract["name"]: contract for contract in pyproject["tool"]["importlinter"]["contracts"]}
    held = {name.removeprefix("openmemory.") for name in contracts["Features know no protocol"]["source_modules"]}
    modules = {
        path.stem for path in (root / PACKAGE).iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert modules - {"__init__"} - PROTOCOLS == held


def test_every_module_has_a_package(root: Path) -> None:
    assert {path.name for path in (root / PACKAGE).glob("*.py")} == TOP


def test_no_door_uses_the_database_of_the_services(root: Path) -> None:
    """The import contract cannot see this: a service carries its database, and a door would need no import."""
    uses = [
        f"{name}:{node.lineno}"
        for name, tree in _sources(root, r"\.\s*_?database\b")
        if name.startswith(tuple(f"{PACKAGE}/{door}/" for door in DOORS))
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in {"database", "_database"}
        and not (isinstance(node.value, ast.Name) and node.value.id == "settings")
    ]
    assert uses == []


def test_only_embedded_starts_processes_without_importing_subprocess_too(root: Path) -> None:
    starts = [
        f"{name}:{node.lineno} {node.attr}"
        for name, tree in _sources(root, rf"\b({'|'.join(STARTERS)})\b")
        if not name.startswith("app/openmemory/embedded/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in STARTERS
        and not (isinstance(node.value, ast.Name) and node.value.id == "platform")
    ]
    assert starts == []


def test_one_module_alone_starts_git(root: Path) -> None:
    """A repository may name programs, so every start of Git must be closed to them."""
    named = {
        name
        for name, tree in _sources(root, r"\bgit(\.exe)?['\"]")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.rpartition("/")[2] in ("git", "git.exe")
    }
    assert named == {f"{PACKAGE}/doors/cli/git.py"}


def test_the_environment_is_read_for_settings_alone(root: Path) -> None:
    readers = {
        name
        for name, tree in _sources(root, r"\b(environ|getenv)\b")
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"})
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and {a.name for a in node.names} & {"environ"})
    }
    assert {name for name in readers if name not in SETTINGS and not name.startswith("app/openmemory/embedded/")} <= {
        # These set what dependencies take from the environment alone.
        "app/openmemory/embeddings/providers.py",
        "app/openmemory/config/vendor_telemetry.py",
        # They have no time to import the settings.
        "app/openmemory/doors/cli/confirmed.py",
        "app/openmemory/doors/cli/hook.py",
    }


@pytest.mark.parametrize("heavy", ["mem0", "numpy", "onnxruntime", "qdrant_client", "qdrant_edge", "tokenizers"])
def test_the_command_line_imports_nothing_heavy_at_its_top(root: Path, heavy: str) -> None:
    pattern = re.compile(rf"^(import|from) {heavy}\b", re.MULTILINE)
    files = [root / PACKAGE / "__main__.py", *(root / PACKAGE / "doors" / "cli").rglob("*.py")]
    assert [str(file.relative_to(root)) for file in files if file.is_file() and pattern.search(file.read_text())] == []


def _long_sql(tree: ast.Module, most: int) -> Iterator[int]:
    """Yields the lines of SQL texts of more than `most` lines. Docstrings are none."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in docstrings | parts:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if (node.end_lineno or 0) - node.lineno + 1 > most and SQL.match(text):
            yield node.lineno


def test_sql_longer_than_ten_lines_stands_in_files(root: Path) -> None:
    long = [f"{name}:{line}" for name, tree in _sources(root, SQL.pattern) for line in _long_sql(tree, 10)]
    assert [place for place in long if "/migrations/" not in place] == []


def test_long_sql_is_told_from_other_texts() -> None:
    sql = "\n".join(["    SELECT 1,", *("    1," for _ in range(9)), "    {one}"])
    said = sql.replace("SELECT", "You may SELECT")
    lines = [
        list(_long_sql(ast.parse(f'{start}"""{text}"""'), 10)) for text in (sql, said) for start in ("a = ", "a = f")
    ]
    assert lines == [[1], [1], [], []]
    assert list(_long_sql(ast.parse(f'"""{sql}"""'), 10)) == []
    assert list(_long_sql(ast.parse(f'a = """{sql}"""'), 11)) == []


def test_every_statement_in_a_file_has_a_name_and_a_description_and_is_used(root: Path) -> None:
    files = [file for file in (root / PACKAGE).rglob("*.sql") if "migrations" not in file.parts]
    assert files
    for file in files:
        before, *sections = re.split(r"^-- name: (\w+)\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        names = sections[::2]
        assert (before, len(set(names))) == ("", len(names)), file
        module = file.with_suffix(".py").read_text(encoding="utf-8")
        assert set(re.findall(r'load_sql\(\s*__name__,\s*"(\w+)"', module)) == set(names), file
        for name, section in zip(names, sections[1::2], strict=True):
            assert re.match(r"(-- .*\n)+[^-\s]", section), (file, name)
            # A comment within a line would end up in the statement.
            assert "--" not in re.sub(r"^--.*$", "", section, flags=re.MULTILINE), (file, name)
            assert max(map(len, section.splitlines())) <= 120, (file, name)
