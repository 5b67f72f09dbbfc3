"""Statements in files: whole, without comments, and each of them used."""

from __future__ import annotations

import re
from pathlib import Path

from openmemory.database.sql_files import sql_template

APP = Path(__file__).parents[2] / "app"
FILES = sorted(APP.rglob("sql/*.sql"))


def test_a_statement_comes_without_its_comments():
    assert FILES
    for file in FILES:
        package = ".".join(file.parent.parent.relative_to(APP).parts)
        statement = sql_template(package, file.stem).template
        lines = file.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith(f"-- {file.stem}: ")
        assert statement.splitlines() == [line for line in lines if not line.startswith("--")]
        # A comment within a line would end up in the statement.
        assert "--" not in statement


def test_every_file_is_used_by_its_package():
    for file in FILES:
        sources = "".join(module.read_text(encoding="utf-8") for module in file.parent.parent.glob("*.py"))
        assert re.search(rf'"{file.stem}"', sources), file


def test_no_statement_in_a_module_is_longer_than_forty_lines():
    long = []
    for module in APP.rglob("*.py"):
        for found in re.finditer(r'"""(.*?)"""', module.read_text(encoding="utf-8"), re.DOTALL):
            said = found[1].lower()
            if said.count("\n") > 40 and re.search(r"^\s*(select|insert|update|delete|with)\b", said):
                long.append(f"{module.relative_to(APP)}: {said.strip()[:60]}")
    assert long == []
