"""A migration that has landed never changes: data was kept with it, and would lack what came into it later."""

from __future__ import annotations

import hashlib
from pathlib import Path

FILE = Path(__file__).with_name("landed.sha256")
VERSIONS = Path(__file__).parents[2] / "alembic" / "versions"


def test_landed_migrations_are_as_they_landed() -> None:
    landed = dict(reversed(line.split("  ")) for line in FILE.read_text(encoding="utf-8").splitlines())
    files = (file for file in VERSIONS.rglob("*") if file.suffix in {".py", ".sql"})
    found = {file.relative_to(VERSIONS).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    changed = sorted(name for name, digest in landed.items() if found.get(name) != digest)
    assert changed == [], "these have landed and never change: put the change into a new migration"
    new = [f"{found[name]}  {name}" for name in sorted(found.keys() - landed.keys())]
    assert new == [], f"add these lines to {FILE.name}:\n" + "\n".join(new)
