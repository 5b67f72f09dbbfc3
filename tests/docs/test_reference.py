"""The generated parts of the reference hold everything that the code has."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from openmemory.config.settings import keys
from openmemory.doors.mcp.server import TOOLS
from openmemory.doors.rest.api import ROUTERS
from tests.docs.conftest import ROOT
from tools import reference


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what `tools/reference.py` wrote."""
    folder = tmp_path_factory.mktemp("reference")
    reference.main(folder)
    return folder


@pytest.mark.slow
def test_every_setting_is_listed(generated: Path) -> None:
    text = (generated / "settings.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z0-9_.]+)` \|", text, re.MULTILINE)) == {".".join(path) for path in keys()}


def test_every_operation_is_listed(generated: Path) -> None:
    text = (generated / "rest.md").read_text(encoding="utf-8")
    routes = [route for router in ROUTERS for route in router.routes if getattr(route, "include_in_schema", False)]
    assert len(routes) > 50
    wanted = {f"{method} {route.path.replace(':path', '')}" for route in routes for method in route.methods}  # type: ignore[attr-defined]
    assert wanted == set(re.findall(r"^### `(.+)`$", text, re.MULTILINE))


def test_every_tool_is_listed(generated: Path) -> None:
    text = (generated / "mcp.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == [tool.name for tool in TOOLS.values()]


def test_every_command_is_listed(generated: Path) -> None:
    text = (generated / "cli.md").read_text(encoding="utf-8")
    assert {"## openmemory serve", "## openmemory keys create", "## openmemory grants explain"} <= set(
        text.splitlines()
    )


def test_help_writes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["reference.py", "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "tools" / "reference.py"), run_name="__main__")
    assert end.value.code == 0
    assert "usage: reference.py" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_each_part_has_a_page_that_takes_it(generated: Path) -> None:
    for part in generated.iterdir():
        page = ROOT / "docs" / "reference" / part.name
        assert f"<!-- generated: {part.stem} -->" in page.read_text(encoding="utf-8").splitlines()
