"""Dockerfile and docker-compose.yml, as far as they can be held without a Docker engine."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from openmemory.config.settings import Settings, load

SECRET = "Vd7-kq2Xw9-pLr4mZt8n"
SECRETS = {"OPENMEMORY_ACCESS_API_KEY", "POSTGRES_PASSWORD", "QDRANT_API_KEY"}
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


@pytest.fixture(scope="session")
def compose(root: Path) -> dict[str, Any]:
    """docker-compose.yml as it is written."""
    document: dict[str, Any] = yaml.safe_load((root / "docker-compose.yml").read_text(encoding="utf-8"))
    return document


@pytest.fixture(scope="session")
def instructions(root: Path) -> list[tuple[str, str]]:
    """The Dockerfile's instructions: ("RUN", "python ...")."""
    text = (root / "Dockerfile").read_text(encoding="utf-8")
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in joined.splitlines() if line.strip()]


@pytest.fixture(scope="session")
def image_environment(instructions: list[tuple[str, str]]) -> dict[str, str]:
    """The variables of the last stage of the Dockerfile."""
    last = max(position for position, (name, _) in enumerate(instructions) if name == "FROM")
    pairs = [pair for name, rest in instructions[last:] if name == "ENV" for pair in shlex.split(rest)]
    return dict(pair.split("=", 1) for pair in pairs)


TRIED = ("1.18.3", "1.20")
"""The Qdrant server and the minor version of its client that ran together under load, renames and outages. Qdrant
itself promises only one minor version of difference."""


def _filled_in(text: str, given: dict[str, str]) -> str:
    """A value of the compose file as Compose passes it on."""
    return VARIABLE.sub(lambda found: given.get(found[1], (found[3] if found[2] == "-" else "") or ""), text)


@contextmanager
def _answering(status: int, path: str) -> Iterator[int]:
    """A server on a port of its own that answers one path with `status` and everything else with 404."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == path else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="session")
def image_probe(instructions: list[tuple[str, str]]) -> Callable[[int], int]:
    """Runs the image's health check against a port and gives its exit code."""
    (check,) = [rest for name, rest in instructions if name == "HEALTHCHECK"]
    command = json.loads(check.partition("CMD ")[2])
    assert command[0] == "python"
    return lambda port: (
        subprocess.run(
            [sys.executable, *command[1:]],
            env=os.environ | {"OPENMEMORY_PORT": str(port)},
            check=False,
            capture_output=True,
            timeout=30,
        ).returncode
    )


@pytest.fixture(scope="session")
def qdrant_probe(compose: dict[str, Any]) -> Callable[[int], int]:
    """Runs Qdrant's health check against a port and gives its exit code."""
    how, *command = compose["services"]["qdrant"]["healthcheck"]["test"]
    assert (how, command[0]) == ("CMD", "bash")
    return lambda port: (
        subprocess.run(
            [part.replace("$$", "$").replace("/6333", f"/{port}") for part in command],
            check=False,
            capture_output=True,
            timeout=30,
        ).returncode
    )


@pytest.mark.slow
@pytest.mark.parametrize(("probe", "path"), [("image_probe", "/health/live"), ("qdrant_probe", "/readyz")])
def test_a_health_check_tells_well_from_ill_from_gone(request: pytest.FixtureRequest, probe: str, path: str) -> None:
    run: Callable[[int], int] = request.getfixturevalue(probe)
    with _answering(200, path) as port:
        assert run(port) == 0
    assert run(port) != 0
    with _answering(503, path) as port:
        assert run(port) != 0
    with _answering(200, "/elsewhere") as port:
        assert run(port) != 0


def test_the_composed_service_starts_with_settings_that_it_knows(
    compose: dict[str, Any], image_environment: dict[str, str]
) -> None:
    given = dict.fromkeys(SECRETS, SECRET)
    environment = {
        name: _filled_in(value, given) for name, value in compose["services"]["openmemory"]["environment"].items()
    }
    settings = load(environ=image_environment | environment)
    assert settings.access.api_key.get_secret_value() == SECRET
    assert settings.host == "0.0.0.0"
    assert settings.port == Settings().port
    assert settings.http.allowed_hosts == ()
    assert settings.data_dir == "/data"
    assert settings.qdrant.url == "http://qdrant:6333"
    assert settings.qdrant.api_key.get_secret_value() == SECRET
    assert environment["PGPASSWORD"] == SECRET


def test_secrets_must_be_given_and_are_written_nowhere(root: Path, compose: dict[str, Any]) -> None:
    text = (root / "docker-compose.yml").read_text(encoding="utf-8")
    assert {found[1] for found in VARIABLE.finditer(text) if found[2] == "?"} == SECRETS
    assert {found[1] for found in VARIABLE.finditer(text) if found[1] in SECRETS and found[2] != "?"} == set()
    for service in compose["services"].values():
        for name, value in service["environment"].items():
            if re.search(r"KEY|PASSWORD|SECRET|TOKEN", name):
                assert VARIABLE.fullmatch(value)


def test_only_the_service_is_published_and_only_to_this_machine(compose: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert set(published) == {"openmemory"}
    assert [_filled_in(port, {}) for port in published["openmemory"]] == ["127.0.0.1:8765:8765"]


def test_the_service_waits_until_its_stores_are_healthy(compose: dict[str, Any]) -> None:
    services = compose["services"]
    waits = services["openmemory"]["depends_on"]
    assert {name: wait["condition"] for name, wait in waits.items()} == {
        "postgres": "service_healthy",
        "qdrant": "service_healthy",
    }
    assert all("healthcheck" in services[name] for name in waits)
    assert {service["restart"] for service in services.values()} == {"unless-stopped"}


def test_data_lies_in_named_volumes_where_the_images_keep_it(compose: dict[str, Any]) -> None:
    mounts = {name: service["volumes"] for name, service in compose["services"].items()}
    major = int(compose["services"]["postgres"]["image"].partition(":")[2].partition(".")[0])
    folder = "/var/lib/postgresql/data" if major < 18 else "/var/lib/postgresql"
    assert mounts == {
        "openmemory": ["openmemory:/data"],
        "postgres": [f"postgres:{folder}"],
        "qdrant": ["qdrant:/qdrant/storage"],
    }
    assert set(compose["volumes"]) == set(mounts)


def test_every_image_is_pinned_and_qdrant_is_one_that_was_tried_with_the_client(
    root: Path, compose: dict[str, Any]
) -> None:
    images = {name: service["image"] for name, service in compose["services"].items() if "build" not in service}
    assert all(re.fullmatch(r"[a-z/]+:v?\d+(\.\d+)*(-unprivileged)?", image) for image in images.values())
    server = re.search(r":v([\d.]+)-", images["qdrant"])
    client = re.search(r"^qdrant-client==(\d+\.\d+)\.", (root / "requirements.lock").read_text(), re.MULTILINE)
    assert server
    assert client
    assert (server[1], client[1]) == TRIED


def test_the_project_is_not_named_as_the_folder_of_the_old_openmemory(compose: dict[str, Any]) -> None:
    assert compose["name"] != "openmemory"


def test_no_container_has_privileges(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    # Our own image runs as an ordinary user; so do these.
    assert services["postgres"]["user"] == "postgres"
    assert services["qdrant"]["image"].endswith("-unprivileged")


def test_the_index_asks_for_the_key_that_the_service_sends(compose: dict[str, Any]) -> None:
    asked = compose["services"]["qdrant"]["environment"]["QDRANT__SERVICE__API_KEY"]
    assert asked == compose["services"]["openmemory"]["environment"]["OPENMEMORY_QDRANT_API_KEY"]
    assert VARIABLE.fullmatch(asked)


def test_the_service_can_write_to_its_volume_and_to_memory_alone(compose: dict[str, Any]) -> None:
    service = compose["services"]["openmemory"]
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]


def test_no_log_grows_without_bounds(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}


def test_the_documentation_makes_every_secret_and_rebuilds_the_image_after_an_update(root: Path) -> None:
    page = (root / "docs/operations/docker.md").read_text(encoding="utf-8")
    assert {name for name in SECRETS if name in page} == SECRETS
    assert "git pull && docker compose up --detach --wait --build" in page


def test_the_image_runs_as_an_unprivileged_user(instructions: list[tuple[str, str]]) -> None:
    last = [rest for name, rest in instructions if name == "USER"][-1]
    assert int(last.partition(":")[0]) >= 1000
    created = " ".join(rest for name, rest in instructions if name == "RUN")
    assert f"--uid {last.partition(':')[0]} " in created
    assert [name for name, _ in instructions].index("USER") > max(
        position for position, (name, _) in enumerate(instructions) if name in {"RUN", "COPY", "FROM"}
    )


def test_the_image_is_built_from_the_locks_with_hashes_on_a_supported_python(
    instructions: list[tuple[str, str]], pyproject: dict[str, Any]
) -> None:
    commands = [part for name, rest in instructions if name == "RUN" for part in rest.split("&&")]
    packages = [part for part in commands if "pip install" in part and "--no-deps" not in part]
    assert len(packages) == 2
    assert all("--require-hashes" in part and part.strip().endswith(".lock") for part in packages)
    bases = {rest.split()[0] for name, rest in instructions if name == "FROM"}
    assert bases == {f"python:{pyproject['project']['requires-python'].removeprefix('>=')}-slim"}


def test_the_build_context_holds_what_is_copied_and_little_else(
    root: Path, instructions: list[tuple[str, str]], pyproject: dict[str, Any]
) -> None:
    copied = {
        source
        for name, rest in instructions
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    ignored = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert all((root / source).exists() for source in copied)
    assert {pyproject["project"]["readme"], *pyproject["project"]["license-files"]} <= copied


def test_the_image_listens_where_it_says(
    instructions: list[tuple[str, str]], image_environment: dict[str, str]
) -> None:
    assert dict(instructions)["EXPOSE"] == image_environment["OPENMEMORY_PORT"] == str(Settings().port)
    assert dict(instructions)["VOLUME"] == image_environment["OPENMEMORY_DATA_DIR"] == "/data"
