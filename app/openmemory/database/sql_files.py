"""SQL statements longer than ten lines, in files beside the modules that use them: `restore.sql` beside `restore.py`.

A file holds any number of statements. Each has its name and a description:

    -- name: lost
    -- Lists the records that were not written.
    SELECT ...

A comment takes a whole line.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from string import Template

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load_sql(module: str, name: str, **parts: str) -> str:
    """Returns a statement of a module, without comments. `parts` fill in its `${places}`: SQL of ours, never input.

    Load it at the import of the module, so that a mistake does not wait for a caller.

    Raises:
        LookupError: there is no statement of this name, or a part is missing.
    """
    statements = _statements(module)
    if name not in statements:
        raise LookupError(f"the SQL of {module} has no statement named {name}")
    return statements[name].substitute(parts)


@cache
def _statements(module: str) -> dict[str, Template]:
    package, _, stem = module.rpartition(".")
    source = files(package).joinpath(f"{stem}.sql").read_text(encoding="utf-8")
    _, *sections = _NAME.split(source)
    return {name: _uncommented(body) for name, body in zip(sections[::2], sections[1::2], strict=True)}


def _uncommented(body: str) -> Template:
    lines = (line for line in body.splitlines() if not line.lstrip().startswith("--"))
    return Template("\n".join(lines).strip())
