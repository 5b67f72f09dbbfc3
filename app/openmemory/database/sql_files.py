"""Long SQL statements, each in a file of its own: `sql/NAME.sql` in the package that uses it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template


@cache
def sql_template(package: str, name: str) -> Template:
    """The statement in `sql/NAME.sql` of a package, without comments. Its `${names}` are parts to fill in.

    A comment takes a whole line.
    """
    statement = files(package).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    return Template("\n".join(line for line in statement.splitlines() if not line.lstrip().startswith("--")))
