"""`openmemory documents` stores, lists, searches, shows, writes, deletes and restores documents."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sources.text_extraction.documents import pdf

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.slow
def test_the_life_of_a_document(om: Run, user: str, tmp_path: Path) -> None:
    def documents(*arguments: str, code: int = 0) -> str:
        told = om("documents", *arguments, "--user", user)
        assert told.returncode == code, told.stderr
        return told.stdout.strip() if code == 0 else told.stderr.strip()

    lease = tmp_path / "lease.pdf"
    lease.write_bytes(pdf("The rent is 900 euros.", "Pets are allowed."))
    added = documents("add", str(lease), "--title", "Where we live")
    assert added.startswith("lease.pdf added: 2 passages. ")
    id_ = added.rpartition(" ")[2]
    assert documents("add", str(lease), "--title", "Where we live") == f"lease.pdf is unchanged: 2 passages. {id_}"
    found = documents("search", "may I have a dog?", "-n", "1").split("\t")
    assert found[1:4:2] == ["lease.pdf", "Page 2: Pets are allowed."]
    assert documents("list").split("\t")[:2] == [id_, "lease.pdf"]
    assert documents("show", id_[:8]).splitlines() == [
        "lease.pdf, 2 passages", "", "[Page 1]", "The rent is 900 euros.", "", "[Page 2]", "Pets are allowed.",
    ]  # fmt: skip
    documents("download", id_, str(tmp_path / "copy.pdf"))
    assert (tmp_path / "copy.pdf").read_bytes() == lease.read_bytes()
    assert "exists already" in documents("download", id_, str(lease), code=2)
    assert documents("delete", id_[:8]) == f"Deleted {id_}: 2 passages."
    documents("download", id_, str(tmp_path / "none.pdf"), code=1)
    assert not (tmp_path / "none.pdf").exists()
    assert "must be a whole UUID" in documents("restore", id_[:8], code=2)
    assert documents("restore", id_) == "Restored: 2 passages."
    assert documents("delete", id_, "--erase") == f"Erased {id_}: 2 passages."
    assert documents("list") == "# There are no documents."


def test_one_document_that_cannot_be_read_does_not_stop_the_others(om: Run, user: str, tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("Pets are allowed.")
    (tmp_path / "bad.png").write_bytes(b"\x89PNG\0\0")
    names = [str(tmp_path / name) for name in ("bad.png", "good.txt", "missing.txt")]
    told = om("documents", "add", *names, "--no-keep", "--user", user)
    assert told.returncode == 1
    assert told.stdout.startswith("good.txt added: 1 passage, without the original. ")
    assert "bad.png was not stored: file: is of no format" in told.stderr
    assert "missing.txt was not stored: No such file" in told.stderr
    whole = json.loads(om("documents", "list", "--user", user, "--json").stdout)
    assert [one["name"] for one in whole["items"]] == ["good.txt"]
    assert om("documents", "add", str(tmp_path / "bad.png"), "--user", user).returncode == 2
    assert om("documents", "add", *names, "--name", "x", "--user", user).returncode == 2
