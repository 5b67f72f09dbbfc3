from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

COMMANDS = [
    "serve", "mcp", "stop", "add", "search", "list", "import", "export", "sync", "doctor", "apps", "grants", "keys",
    "audit", "erase", "config", "get", "update", "delete", "restore", "archive", "pause", "history", "related",
    "accesses",
]  # fmt: skip
NOT_FOR_HELP = [
    "asyncio", "pydantic", "rich", "httpx", "fastapi", "sqlalchemy", "numpy", "onnxruntime", "mcp",
    "openmemory.services",
]  # fmt: skip


def test_help_names_every_command(run: Run) -> None:
    told = run("--help")
    assert told.returncode == 0
    assert [name for name in COMMANDS if f"\n  {name} " not in told.stdout] == []


def test_help_imports_nothing_heavy() -> None:
    look = (
        "import sys; from openmemory.__main__ import main; sys.argv = ['openmemory', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print('LOADED', [name for name in {NOT_FOR_HELP!r} if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", look], check=False, capture_output=True, text=True, timeout=60)
    assert told.stdout.splitlines()[-1] == "LOADED []"


def test_no_command_imports_a_store() -> None:
    look = (
        "import sys; from openmemory.doors.cli.commands import complete; complete()\n"
        "print([name for name in ('fastapi', 'numpy', 'sqlalchemy') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True, timeout=60)
    assert shown.stdout == "[]\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(run: Run, command: str) -> None:
    told = run(command, "--help")
    assert told.returncode == 0
    assert f"Usage: openmemory {command}" in told.stdout


def test_the_version_is_told(run: Run) -> None:
    told = run("--version")
    assert told.returncode == 0
    assert told.stdout.startswith("openmemory 0.")


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["search"], ["list", "--nonsense"], ["list", "--limit", "none"], ["list", "--page", "0"]],
)
def test_a_usage_that_is_not_understood_exits_with_two(run: Run, arguments: list[str]) -> None:
    told = run(*arguments)
    assert told.returncode == 2
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    ("command", "environment", "arguments", "words"),
    [
        ("serve", {"OPENMEMORY_PROT": "1"}, [], "unknown setting OPENMEMORY_PROT; did you mean 'OPENMEMORY_PORT'?"),
        ("list", {"OPENMEMORY_PORT": "many"}, [], "environment: OPENMEMORY_PORT: "),
        ("mcp", {}, ["--config", "/no/such/file.toml"], "/no/such/file.toml: no such file"),
        ("stop", {"OPENMEMORY_CONFIG": "/no/such/file.toml"}, [], "/no/such/file.toml: no such file"),
    ],
)
def test_a_setting_that_cannot_be_used_is_told_on_one_line(
    run: Run, command: str, environment: dict[str, str], arguments: list[str], words: str
) -> None:
    told = run(command, *arguments, **environment)
    assert told.returncode == 2
    assert told.stdout == ""
    [line] = told.stderr.splitlines()
    assert words in line


def test_the_effective_settings_are_shown_without_their_secrets(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text('port = 9000\n[qdrant]\nurl = "http://me:hunter2@host:6333"\n[search]\nlimit = 7\n')
    told = run(
        "config", "--config", str(file), "--json", "--data-dir", str(tmp_path),
        OPENMEMORY_SEARCH_LIMIT="8", OPENMEMORY_ACCESS_API_KEY="hunter2-Vd7-kq2Xw9-pLr4mZt8n",
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert "hunter2" not in told.stdout
    shown = json.loads(told.stdout)
    assert (shown["port"], shown["search.limit"], shown["data_dir"]) == (9000, 8, str(tmp_path))
    assert (shown["access.api_key"], shown["embedder.api_key"]) == ("********", "")
    assert shown["qdrant.url"] == "http://********@host:6333"


def test_settings_are_lines_of_name_value_and_meaning_for_other_programs(run: Run) -> None:
    told = run("config", OPENMEMORY_PORT="9001")
    assert [line.split("\t")[1] for line in told.stdout.splitlines() if line.startswith("port\t")] == ["9001"]


def test_a_url_that_is_none_is_refused(run: Run) -> None:
    told = run("list", "--url", "localhost:8765")
    assert (told.returncode, told.stderr) == (
        2,
        "openmemory: --url: 'localhost:8765' must begin with http:// or https://\n",
    )


def test_a_service_that_does_not_answer_exits_with_three(run: Run, folder: Path) -> None:
    told = run("list", "--url", "http://127.0.0.1:1", "--data-dir", str(folder))
    assert told.returncode == 3
    assert "http://127.0.0.1:1" in told.stderr
    assert not folder.exists()
