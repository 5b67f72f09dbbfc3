from __future__ import annotations

import json
from pathlib import Path

from tests.doors.cli.conftest import Run


def _browser(folder: Path, code: int) -> str:
    """A program that stands for a browser, and writes down the address it is given."""
    program = folder / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" > {folder}/opened\nexit {code}\n')
    program.chmod(0o755)
    return str(program)


def test_the_page_is_opened_in_the_browser(om: Run, tmp_path: Path) -> None:
    done = om("open", "--json", BROWSER=_browser(tmp_path, 0))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["opened"] is True
    assert (tmp_path / "opened").read_text().strip() == answer["url"]


def test_the_address_is_printed_where_no_browser_starts(om: Run, tmp_path: Path) -> None:
    done = om("open", BROWSER=_browser(tmp_path, 1), PATH="/nowhere")
    assert done.returncode == 0, done.stderr
    assert "No browser could be started here: open the address yourself." in done.stdout
