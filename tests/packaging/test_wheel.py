"""The wheel as somebody else installs it: in an empty environment, in an empty folder, without this checkout."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.service import START, short_parent, until
from tests.required import lacking

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
SOURCES = ("MANIFEST.in", "LICENSE", "README.md", "alembic", "app", "pyproject.toml", "setup.py", "tools")
MADE = shutil.ignore_patterns("__pycache__", "*.egg-info", "model.onnx*")
SYSTEM = ("/usr/bin/python3", "/usr/local/bin/python3", sys.executable)
"""Interpreters, those first that everybody may run."""

USERS = ["root", "nobody"] if os.geteuid() == 0 else [pwd.getpwuid(os.geteuid()).pw_name]


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    arguments = [str(part) for part in command]
    return subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=300, **options)


def succeed(*command: str | Path, **options: Any) -> str:
    """What a command prints that must succeed."""
    done = run(*command, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that every account may read."""
    with short_parent() as parent:
        yield parent


@pytest.fixture(scope="module")
def wheel(place: Path) -> Path:
    """The wheel, built from a copy of the sources."""
    sources = place / "sources"
    sources.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, sources / name, symlinks=True, ignore=MADE)
        else:
            shutil.copy(ROOT / name, sources)
    uv = Path(sys.executable).with_name("uv")
    build = (uv, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", place / "wheels")
    succeed(*build, sources)
    shutil.rmtree(sources)
    [built] = (place / "wheels").glob("*.whl")
    return built


def runs(python: str, user: str) -> bool:
    """Returns True if this account can run this interpreter and it is one that we support."""
    try:
        done = run(python, "-c", "import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))", **acting_as(user))
    except OSError:
        return False
    return done.returncode == 0


def acting_as(user: str) -> dict[str, Any]:
    """How a process of this account is started."""
    account = pwd.getpwnam(user)
    if account.pw_uid == os.geteuid():
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


@pytest.fixture(scope="module", params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    """An account: root and an ordinary one, or whoever runs the tests."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def commands(wheel: Path, place: Path, user: str) -> Path:
    """The folder of commands of an environment that holds the wheel and what it requires."""
    python = next((one for one in SYSTEM if runs(one, user)), None)
    if python is None:
        lacking(f"{user} may run no Python 3.11 to 3.14 here")
    uv, environment = Path(sys.executable).with_name("uv"), place / f"environment-{user}"
    succeed(uv, "venv", "--python", python, environment)
    install = uv, "pip", "install", "--python", environment / "bin" / "python", "--only-binary", ":all:"
    succeed(*install, "--require-hashes", "--requirements", ROOT / "requirements.lock")
    succeed(*install, "--no-deps", "--no-index", wheel)
    succeed(uv, "pip", "check", "--python", environment / "bin" / "python")
    return environment / "bin"


@pytest.fixture
def home(place: Path, user: str) -> Iterator[Path]:
    """An empty folder that belongs to the account."""
    made = place / f"home-{user}"
    made.mkdir()
    account = pwd.getpwnam(user)
    if account.pw_uid != os.geteuid():
        os.chown(made, account.pw_uid, account.pw_gid)
    yield made
    shutil.rmtree(made)


def test_it_holds_the_package_the_migrations_and_the_model_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names} == {"openmemory", f"{wheel.name.partition('-py3')[0]}.dist-info"}
    held = {name for name in names if name.startswith("openmemory/")}
    files = (file for ending in ("py", "sql") for file in (ROOT / "alembic").rglob(f"*.{ending}"))
    versions = {f"openmemory/migrations/{file.relative_to(ROOT / 'alembic').as_posix()}" for file in files}
    data = {f"openmemory/embeddings/data/{name}" for name in ("model.onnx", "model.onnx.sha256", "tokenizer.json")}
    statements = {file.relative_to(ROOT / "app").as_posix() for file in (ROOT / "app").rglob("*.sql")}
    assert held > versions | data | statements | {"openmemory/py.typed", "openmemory/migrations/env.py"}


def test_it_serves_migrates_adds_searches_passes_doctor_and_stops(commands: Path, home: Path, user: str) -> None:
    options = acting_as(user) | {"cwd": home, "env": {"PATH": os.environ["PATH"], "HOME": str(home)}}
    log = home / "log"

    def openmemory(*arguments: str) -> str:
        return succeed(commands / "openmemory", *arguments, **options)

    with log.open("wb") as out:
        service = subprocess.Popen([commands / "openmemory", "serve", "--port", "0"], stdout=out, stderr=out, **options)
    try:
        until(lambda: "Data folder" in log.read_text() or service.poll() is not None, START)
        assert service.poll() is None, log.read_text()
        openmemory("add", "I take my tea without sugar.")
        assert "tea without sugar" in openmemory("search", "hot drinks")
        openmemory("doctor")
        openmemory("stop")
        assert service.wait(START) == 0, log.read_text()
    finally:
        service.kill()
        service.wait(START)


def test_it_can_be_imported_beside_a_project_whose_package_is_named_app(commands: Path, home: Path, user: str) -> None:
    project = home / "app"
    project.mkdir()
    (project / "__init__.py").touch()
    (project / "main.py").write_text(
        "from fastapi import FastAPI\n"
        "from openmemory.doors.server.application import create_app\n"
        "from openmemory.services import Services\n"
        "app = FastAPI()\n"
    )
    code = "import app.main, openmemory; print(app.main.__file__); print(openmemory.__file__)"
    options = acting_as(user) | {"cwd": home, "env": {"HOME": str(home)}}
    ours, theirs = succeed(commands / "python", "-c", code, **options).split()
    assert Path(ours) == project / "main.py"
    assert Path(theirs).is_relative_to(commands.parent)
