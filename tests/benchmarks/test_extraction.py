"""The comparison with mem0 runs to its end, and what is said to us is kept, whatever the model answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.sayings import scenarios


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_both_systems_play_every_scenario_and_we_lose_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks", "extraction", "--facts", "2", "--json", str(report)]
    run = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found = json.loads(report.read_text())
    ours = {each["scenario"]: each for each in found if each["system"] == "openmemory"}
    other = {each["scenario"]: each for each in found if each["system"].startswith("mem0ai 2.")}
    assert list(ours) == list(other) == [each.name for each in scenarios(2)]
    for each in ours.values():
        assert (each["lost"], each["stale"]) == ([], []), each
    assert ours["facts"]["counts"]["calls"] == other["facts"]["counts"]["calls"] == 2
    assert 0 < ours["facts"]["counts"]["prompt"] < other["facts"]["counts"]["prompt"]
    assert ours["contradiction"]["stored"] == ["User lives in Porto."]
    assert ours["sent again"]["counts"]["calls"] == 1
