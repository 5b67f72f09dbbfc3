"""The files around the code: locks, documentation, and what must never be committed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

LOCKS = (
    "requirements-build.lock",
    "requirements.lock",
    "requirements-dev.lock",
    "requirements-docs.lock",
    "requirements-s3.lock",
)
PINNED = re.compile(r"^([a-z0-9._-]+)==(\S+?)(?: ; (.+?))? \\$", re.MULTILINE)


def _pins(text: str) -> set[tuple[str, str, str]]:
    return set(PINNED.findall(text))


def _normal(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name
    return re.sub(r"[-_.]+", "-", name[0]).lower()


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_names_no_index(root: Path, lock: str) -> None:
    text = (root / lock).read_text(encoding="utf-8")
    assert not re.search(r"://|^\s*-|^\s*#|@", text.replace("    --hash=sha256:", ""), re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_of_a_lock_file_is_a_pin_or_a_hash(root: Path, lock: str) -> None:
    lines = (root / lock).read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line)]
    assert pins
    assert [line for line in pins if not PINNED.fullmatch(line)] == []


def test_the_lock_of_the_conformance_kit_holds_a_hash_for_every_package_and_names_no_index(root: Path) -> None:
    lock = json.loads((root / "tests/conformance/package-lock.json").read_text(encoding="utf-8"))
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert packages
    assert [name for name, one in packages.items() if "resolved" in one or "sha512-" not in one["integrity"]] == []


def test_the_locks_hold_what_pyproject_asks_for(root: Path, pyproject: dict[str, Any]) -> None:
    project = pyproject["project"]
    wanted = {
        "requirements-build.lock": pyproject["dependency-groups"]["build"],
        "requirements.lock": project["dependencies"],
        "requirements-docs.lock": pyproject["dependency-groups"]["docs"],
        "requirements-s3.lock": pyproject["dependency-groups"]["s3"],
        "requirements-dev.lock": [*project["dependencies"], *project["optional-dependencies"]["dev"]],
    }
    for lock, requirements in wanted.items():
        locked = {name for name, _, _ in _pins((root / lock).read_text(encoding="utf-8"))}
        assert {_normal(one) for one in requirements} <= locked, f"{lock} is out of date; run make lock"
        for one in requirements:
            if exact := re.fullmatch(r"([^=<>]+)==([^;\s]+)", one):
                assert f"\n{_normal(exact[1])}=={exact[2]} \\" in "\n" + (root / lock).read_text(encoding="utf-8")


def test_tests_run_on_the_very_versions_that_serve(root: Path) -> None:
    serving, testing = (_pins((root / name).read_text(encoding="utf-8")) for name in LOCKS[1:3])
    assert serving - testing == set()


def test_nothing_committed_knows_the_machine_it_was_written_on(tree: dict[str, str]) -> None:
    home = re.compile(r"(?<![\w.])/(?:home|Users|root|work)/\w|[A-Z]:\\Users\\")
    assert [f"{name}: {match[0]}" for name, text in tree.items() if (match := home.search(text))] == []


def test_nothing_committed_holds_a_credential(tree: dict[str, str]) -> None:
    credential = re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_\w{36}|\bsk-[A-Za-z0-9_-]{32,}"
    )
    assert [name for name, text in tree.items() if credential.search(text)] == []


def test_every_make_command_that_the_documentation_names_exists(root: Path, tree: dict[str, str]) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    documents = {name: text for name, text in tree.items() if name.endswith(".md")}
    named = {
        (name, target)
        for name, text in documents.items()
        for code in re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
        for target in re.findall(r"(?:^|[`\s$;&])make ([a-z][a-z-]*)", code)
    }
    assert {one for one in named if one[1] not in targets} == set()


def test_make_help_lists_every_target_for_people(root: Path) -> None:
    shown = subprocess.run(["make", "-C", root, "help"], check=True, capture_output=True, text=True).stdout
    listed = set(re.findall(r"^  make ([a-z]+) ", shown, re.MULTILINE))
    building = {"check", "docs", "audit", "lock", "format", "clean"}
    assert listed == {"help", "serve", "test", "slow", "browser", "screenshots", "bench", "eval"} | building


def test_the_licence_is_apache_2(root: Path, pyproject: dict[str, Any]) -> None:
    assert pyproject["project"]["license"] == "Apache-2.0"
    text = (root / "LICENSE").read_text(encoding="utf-8")
    assert text.lstrip().startswith("Apache License\n                           Version 2.0, January 2004")
    assert "END OF TERMS AND CONDITIONS" in text
