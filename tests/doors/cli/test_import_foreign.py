"""`openmemory import` tells a file of another program what it is."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.importers.test_foreign import FOREIGN

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("kind", ["ChatGPT", "Claude, zipped", "a JSON array", "Markdown"])
def test_every_command_names_the_kind(om: Run, tmp_path: Path, kind: str) -> None:
    content, name, remedy = FOREIGN[kind]
    file = tmp_path / "export"
    file.write_bytes(content)
    for arguments in ((), ("openmemory",)):
        told = om("import", *arguments, str(file))
        assert told.returncode != 0
        assert name in told.stderr
        assert remedy in told.stderr
        assert told.stderr.count("\n") == 1, told.stderr
