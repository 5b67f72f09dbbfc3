from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_rules_files_are_told_to_use_the_memory_and_no_longer(run: Run, tmp_path: Path) -> None:
    claude, cursor = tmp_path / "CLAUDE.md", tmp_path / ".cursor" / "rules" / "openmemory.mdc"
    claude.write_text("# Mine\n")
    added = run("rules", "add", str(claude), str(cursor))
    assert added.returncode == 0, added.stderr
    assert "call `search_memory`" in claude.read_text()
    assert cursor.read_text().startswith("---\n")
    again = run("rules", "add", str(claude))
    assert again.stdout == f"{claude}: nothing to change\n"
    gone = run("rules", "remove", str(claude), str(cursor))
    assert gone.stdout == f"{claude}: changed\n{cursor}: removed\n"
    assert claude.read_text() == "# Mine\n"
    assert not cursor.exists()


def test_a_file_that_cannot_be_edited_is_named(run: Run, tmp_path: Path) -> None:
    claude = tmp_path / "CLAUDE.md"
    claude.write_text("# Mine\n")
    claude.chmod(0o400)
    done = run("rules", "add", str(claude))
    assert (done.returncode, done.stderr) == (2, f"openmemory: {claude}: it is read-only\n")
    assert claude.read_text() == "# Mine\n"


def test_a_link_leads_no_rules_out_of_the_project(run: Run, tmp_path: Path) -> None:
    project, mine = tmp_path / "project", tmp_path / "mine"
    (project / "docs").mkdir(parents=True)
    (project / ".git").mkdir()
    mine.mkdir()
    (mine / "profile").write_text("mine\n")
    (project / "CLAUDE.md").symlink_to(mine / "profile")
    (project / ".cursor").symlink_to(mine)
    (project / "AGENTS.md").symlink_to("docs/AGENTS.md")
    for command in ("add", "remove"):
        for name in ("CLAUDE.md", ".cursor/rules/openmemory.mdc", str(project / "CLAUDE.md")):
            refused = run("rules", command, name, cwd=project)
            assert refused.returncode == 2
            assert f"leads out of {project}: to {mine}" in refused.stderr
    assert [path.name for path in mine.rglob("*")] == ["profile"]
    assert (mine / "profile").read_text() == "mine\n"
    assert run("rules", "add", "../AGENTS.md", cwd=project / "docs").returncode == 0
    assert "search_memory" in (project / "docs" / "AGENTS.md").read_text()
