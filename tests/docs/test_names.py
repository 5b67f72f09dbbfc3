"""Names that the documentation gives in `code` exist: files, settings, commands, paths of REST, identifiers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import click
import pytest
import typer
from fastapi import FastAPI

from openmemory.config.settings import keys
from openmemory.doors.cli.commands import complete
from openmemory.doors.rest.api import include_rest
from tests.docs.conftest import ROOT, Page

CODE = re.compile(r"`([^`\n]+)`")
FOLDERS = (ROOT, ROOT / "app" / "openmemory", ROOT / "docs")
EXAMPLES = {
    "CONTRIBUTING.md: alembic/versions/YYYY_MM_DD_name.py",
    "docs/guides/searching.md: src/app/main.py",
}
FOREIGN = {"docs/internals/client-limits.md: limit_concurrency", "docs/internals/search-quality.md: locomo_session_dev"}
"""Names that belong to other programs."""

SOURCES = ("*.py", "*.sql", "*.js", "*.toml", "*.yml", "*.jsonl", "Dockerfile", "Makefile")


def named(page: Page) -> set[str]:
    """What a page has in `code`."""
    return set(CODE.findall(page.prose))


def test_every_file_that_is_named_exists(pages: list[Page]) -> None:
    path = re.compile(
        r"(?:[\w.-]+/)+[\w.-]*\.(?:py|md|toml|jsonl|json|sql|yml)|(?:app|tests|docs|tools|alembic)(?:/\w+)+/?"
    )
    missing = {
        f"{page}: {code}"
        for page in pages
        for code in named(page)
        if path.fullmatch(code.split()[0]) and not any((folder / code.split()[0]).exists() for folder in FOLDERS)
    }
    assert missing == EXAMPLES


def test_every_setting_that_is_named_exists(pages: list[Page]) -> None:
    settings = {".".join(path) for path in keys()}
    sections = {path[0] for path in keys() if len(path) > 1}
    setting = re.compile(rf"((?:{'|'.join(sorted(sections))})\.[a-z_]+)(?: = .*)?")
    found = {
        (str(page), match[1])
        for page in pages
        for code in named(page)
        if (match := setting.fullmatch(code)) is not None
    }
    assert len(found) > 30
    assert {one for one in found if one[1] not in settings and not one[1].endswith(".py")} == set()
    variable = re.compile(r"OPENMEMORY_[A-Z_]+")
    known = {"OPENMEMORY_" + name.replace(".", "_").upper() for name in settings}
    text = source()
    said = {(str(page), one) for page in pages for one in variable.findall(page.path.read_text(encoding="utf-8"))}
    assert {one for one in said if one[1] not in known and one[1] not in text} == set()


@pytest.fixture(scope="module")
def operations() -> set[str]:
    """Every path of REST, with `{}` in place of parameters."""
    app = FastAPI()
    include_rest(app)
    return {re.sub(r"\{\w+\}", "{}", path) for path in app.openapi()["paths"]}


@pytest.mark.slow
def test_every_path_of_rest_that_is_named_exists(pages: list[Page], operations: set[str]) -> None:
    path = re.compile(r"(?:[A-Z]+ )?(/(?:api/v1|health|metrics|\.well-known)[\w/{}.-]*)")
    missing = set()
    for page in pages:
        for text in [*named(page), *(block.text for block in page.blocks if block.language == "sh")]:
            for said in path.findall(text):
                plain = re.sub(r"\{\w+\}|\bID\b|\bchat-1\b", "{}", said.rstrip("/"))
                if not any(one == plain or one.startswith(plain + "/") for one in operations):
                    missing.add(f"{page}: {said}")
    assert missing == set()


def commands(page: Page) -> Iterator[str]:
    """Every call of `openmemory` on a page, in prose and in blocks."""
    for block in page.blocks:
        if block.language == "sh":
            joined = block.text.replace("\\\n", " ")
            yield from re.findall(r"^(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?(openmemory .*)$", joined, re.MULTILINE)
    for code in named(page):
        if code.startswith("openmemory "):
            yield code


def test_every_command_that_is_named_exists_with_its_options(pages: list[Page]) -> None:
    wrong = set()
    root: Any = typer.main.get_command(complete())
    for page in pages:
        for line in commands(page):
            if "COMMAND" in line:
                continue
            words = shlex.split(re.sub(r"…", "", line), comments=True)[1:]
            command = root
            while words and words[0] in getattr(command, "commands", {}):
                command = command.commands[words.pop(0)]
            if words and not words[0].startswith("-") and getattr(command, "commands", None):
                wrong.update(f"{page}: {line}" for one in words[0].split("|") if one not in command.commands)
                continue
            options = {
                name for one in command.get_params(click.Context(command)) for name in (*one.opts, *one.secondary_opts)
            }
            wrong |= {f"{page}: {line}: {word}" for word in words if word.startswith("--") and word not in options}
    assert wrong == set()


@cache
def source() -> str:
    """The text of everything that is not documentation."""
    places = ("app", "alembic", "tests", "benchmarks", "tools")
    paths = [path for place in places for kind in SOURCES for path in (ROOT / place).rglob(kind)]
    paths += [path for kind in SOURCES for path in ROOT.glob(kind)]
    return "\n".join(
        path.read_text(encoding="utf-8")
        for path in paths
        if "node_modules" not in path.parts and path.parent.name != "docs"
    )


def test_every_identifier_that_is_named_exists(pages: list[Page]) -> None:
    """A word with an underscore, a dot or a capital inside must be somewhere in the source. Decisions may name what was
    rejected."""
    identifier = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
    telling = re.compile(r"_|\w\.\w|[a-z][A-Z]")
    words = set(re.findall(r"\w+", source()))
    internal = [page for page in pages if page.path.parent.name in {"internals", "concepts", "openmemory"}]
    missing = {
        f"{page}: {code}"
        for page in internal
        for code in named(page)
        if identifier.fullmatch(code) and telling.search(code) and not set(re.findall(r"\w+", code)) <= words
    }
    assert missing == FOREIGN


def test_every_function_that_is_named_with_its_file_is_there(pages: list[Page]) -> None:
    place = re.compile(r"((?:\w+/)+\w+\.py) (?:\w+\.)?(\w+)")
    found = [(page, match) for page in pages for code in named(page) if (match := place.fullmatch(code))]
    assert len(found) > 10
    for page, match in found:
        text = (ROOT / "app" / "openmemory" / match[1]).read_text(encoding="utf-8")
        assert re.search(rf"def {match[2]}\b", text), f"{page}: {match[0]}"


def test_the_map_of_the_code_names_every_package() -> None:
    package = ROOT / "app" / "openmemory"
    tree = (package / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("```\n")[2].partition("```")[0]
    packages = {path.parent.name for path in package.glob("*/__init__.py")}
    assert packages - set(re.findall(r"(\w+)/", tree)) == set()
