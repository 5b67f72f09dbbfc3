"""The files that pages load."""

from __future__ import annotations

import hashlib
from importlib.resources import files


def test_vendored_files_are_those_that_were_published() -> None:
    vendor = files("openmemory.doors.web") / "static" / "vendor"
    lines = (vendor / "htmx.SHA256SUMS").read_text("ascii").splitlines()
    published = {name: digest for digest, name in (line.split() for line in lines if not line.startswith("#"))}
    scripts = [each for each in vendor.iterdir() if each.name.endswith(".js")]
    assert {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in scripts} == published
