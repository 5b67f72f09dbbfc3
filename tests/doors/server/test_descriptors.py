from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")

ASK = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from openmemory.doors.server.descriptors import room_for
print(room_for({wanted}), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "fit", "raised"),
    [
        (300, 4000, 1000, 1000, 1256),
        (300, 900, 1000, 644, 900),
        (128, 128, 1000, 64, 128),
        (3000, 4000, 1000, 1000, 3000),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_goes_and_then_bounds_the_connections(
    soft: int, hard: int, wanted: int, fit: int, raised: int
) -> None:
    ask = ASK.format(soft=soft, hard=hard, wanted=wanted)
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.split() == [str(fit), str(raised)]
    assert ("limits.connections" in told.stderr) is (fit < wanted)
