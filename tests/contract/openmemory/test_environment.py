"""OpenMemory's environment variables: which count, with what precedence, and what is told of the others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import Engine, NullPool, create_engine, text

from openmemory.config.legacy_env import OBSOLETE, LegacySettings, inherit
from openmemory.config.settings import Settings, load
from openmemory.embedded.folder import DataFolder
from openmemory.embedded.postgres import EmbeddedPostgres
from openmemory.errors import SetupError
from openmemory.schema import migrate
from openmemory.stores import open_stores
from tests.journeys.service import START, Service, until
from tests.warm import clean_environment

SECRET = "sk-secret-0123456789"

_numbers = count()


def read(given: dict[str, Any] | None = None, *, in_container: bool = False, **environ: str) -> LegacySettings:
    paths = {tuple(name.split(".")): value for name, value in (given or {}).items()}
    return inherit(environ, paths, account="ann", in_container=in_container)


def values(told: LegacySettings) -> dict[str, str]:
    return {".".join(path): value for path, (value, _) in told.values.items()}


OPENAI = {"embedder.provider": "openai"}
OLLAMA = {"embedder.provider": "ollama", "embedder.model": "nomic-embed-text"}

USED: list[tuple[dict[str, str], dict[str, str], set[str]]] = [
    ({"USER": "bob"}, {"access.default_user": "bob"}, {"USER"}),
    ({"DATABASE_URL": "postgresql://u:p@h/d"}, {"database.url": "postgresql://u:p@h/d"}, {"DATABASE_URL"}),
    ({"DATABASE_URL": "postgres://u:p@h/d"}, {"database.url": "postgres://u:p@h/d"}, {"DATABASE_URL"}),
    ({"DATABASE_URL": "postgresql+psycopg2://h/d"}, {"database.url": "postgresql+psycopg2://h/d"}, {"DATABASE_URL"}),
    (
        {"QDRANT_HOST": "mem0_store", "QDRANT_PORT": "6334"},
        {"qdrant.url": "http://mem0_store:6334"},
        {"QDRANT_HOST", "QDRANT_PORT"},
    ),
    ({"QDRANT_HOST": "mem0_store"}, {"qdrant.url": "http://mem0_store:6333"}, {"QDRANT_HOST"}),
    ({"QDRANT_URL": "https://q.example.com"}, {"qdrant.url": "https://q.example.com"}, {"QDRANT_URL"}),
    ({"EMBEDDER_PROVIDER": "OpenAI"}, OPENAI, {"EMBEDDER_PROVIDER"}),
    (
        {"EMBEDDER_PROVIDER": "openai", "EMBEDDER_MODEL": "m", "EMBEDDER_API_KEY": SECRET, "EMBEDDER_BASE_URL": "https://x/v1"},
        OPENAI | {"embedder.model": "m", "embedder.api_key": SECRET, "embedder.base_url": "https://x/v1"},
        {"EMBEDDER_PROVIDER", "EMBEDDER_MODEL", "EMBEDDER_API_KEY", "EMBEDDER_BASE_URL"},
    ),
    (
        {"EMBEDDER_PROVIDER": "openai", "OPENAI_API_KEY": SECRET},
        OPENAI | {"embedder.api_key": SECRET},
        {"EMBEDDER_PROVIDER", "OPENAI_API_KEY"},
    ),
    (
        {"LLM_PROVIDER": "openai", "OPENAI_API_KEY": SECRET},
        {"llm.provider": "openai", "llm.model": "gpt-4o-mini", "llm.api_key": SECRET},
        {"LLM_PROVIDER", "OPENAI_API_KEY"},
    ),
    (
        {"LLM_PROVIDER": "anthropic", "LLM_MODEL": "m", "LLM_API_KEY": SECRET, "LLM_BASE_URL": "https://x"},
        {"llm.provider": "anthropic", "llm.model": "m", "llm.api_key": SECRET, "llm.base_url": "https://x"},
        {"LLM_PROVIDER", "LLM_MODEL", "LLM_API_KEY", "LLM_BASE_URL"},
    ),
    ({"LLM_PROVIDER": "ollama"}, {"llm.provider": "ollama", "llm.model": "llama3.1:latest"}, {"LLM_PROVIDER"}),
    (
        {"EMBEDDER_PROVIDER": "ollama", "OLLAMA_BASE_URL": "http://gpu:11434/"},
        OLLAMA | {"embedder.base_url": "http://gpu:11434"},
        {"EMBEDDER_PROVIDER", "OLLAMA_BASE_URL"},
    ),
    (
        {"EMBEDDER_PROVIDER": "ollama", "OLLAMA_HOST": "gpu"},
        OLLAMA | {"embedder.base_url": "http://gpu:11434"},
        {"EMBEDDER_PROVIDER", "OLLAMA_HOST"},
    ),
    (
        {"EMBEDDER_PROVIDER": "ollama", "OLLAMA_HOST": "0.0.0.0:11435"},
        OLLAMA | {"embedder.base_url": "http://localhost:11435"},
        {"EMBEDDER_PROVIDER", "OLLAMA_HOST"},
    ),
    (
        {"MEMORY_HOST": "127.0.0.2", "MEMORY_PORT": "8770", "MEMORY_AUTH_TOKEN": SECRET},
        {"host": "127.0.0.2", "port": "8770", "access.api_key": SECRET},
        {"MEMORY_HOST", "MEMORY_PORT", "MEMORY_AUTH_TOKEN"},
    ),
    (
        {"MAX_CONTENT_LEN": "800", "SAVE_RATE_LIMIT": "0", "SAVE_RATE_WINDOW": "30", "SEMANTIC_DEDUP_THRESHOLD": "0.9"},
        {"mcp.max_content": "800", "rates.saves": "0", "rates.window": "30", "dedup.min_similarity": "0.9"},
        {"MAX_CONTENT_LEN", "SAVE_RATE_LIMIT", "SAVE_RATE_WINDOW", "SEMANTIC_DEDUP_THRESHOLD"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "expected", "names"), USED, ids=[" ".join(environ) for environ, _, _ in USED])
def test_a_variable_that_still_makes_sense_is_a_setting(
    environ: dict[str, str], expected: dict[str, str], names: set[str]
) -> None:
    told = read(**environ)
    assert values(told) == expected
    assert set(told.used) == names
    assert told.ignored == {}
    assert SECRET not in repr(told) + "".join(told.lines())


IGNORED: list[tuple[dict[str, str], str]] = [
    ({"OPENAI_API_KEY": SECRET}, "nothing is sent to OpenAI unless its model is chosen"),
    ({"EMBEDDER_MODEL": "a-model"}, "only with EMBEDDER_PROVIDER; the packaged model is used"),
    ({"EMBEDDER_API_KEY": SECRET}, "only with EMBEDDER_PROVIDER"),
    ({"EMBEDDER_BASE_URL": "https://x"}, "only with EMBEDDER_PROVIDER"),
    ({"LLM_MODEL": "a-model"}, "only with LLM_PROVIDER"),
    ({"LLM_PROVIDER": "anthropic"}, "LLM_PROVIDER needs LLM_MODEL beside it"),
    ({"LLM_API_KEY": SECRET}, "only with LLM_PROVIDER"),
    ({"LLM_BASE_URL": "https://x"}, "only with LLM_PROVIDER"),
    ({"OLLAMA_BASE_URL": "http://gpu:11434"}, "EMBEDDER_PROVIDER=ollama"),
    ({"OLLAMA_HOST": "0.0.0.0"}, "EMBEDDER_PROVIDER=ollama"),
    ({"DATABASE_URL": "sqlite:///./openmemory.db"}, "openmemory import openmemory FILE"),
    ({"DATABASE_URL": "mysql://u:p@h/d"}, "only a postgresql:// address"),
    ({"QDRANT_PORT": "6333"}, "only with QDRANT_HOST"),
    ({"QDRANT_PORT": "tcp://10.0.0.1:6333"}, "only with QDRANT_HOST"),  # of Kubernetes
    ({"QDRANT_HOST": "q", "QDRANT_PORT": "tcp://10.0.0.1:6333"}, "set OPENMEMORY_QDRANT_URL"),
    ({"QDRANT_HOST": "http://q"}, "set OPENMEMORY_QDRANT_URL"),
    ({"QDRANT_URL": "q:6333"}, "must begin with http:// or https://"),
    *(({name: SECRET}, words) for name, words in (
        ("API_KEY", "OPENMEMORY_ACCESS_API_KEY"),
        *((name, "vectors are in Qdrant") for name in (
            "CHROMA_HOST", "CHROMA_PORT", "WEAVIATE_CLUSTER_URL", "WEAVIATE_HOST", "WEAVIATE_PORT", "REDIS_URL",
            "PG_HOST", "PG_PORT", "PG_DB", "PG_USER", "PG_PASSWORD", "MILVUS_HOST", "MILVUS_PORT", "MILVUS_TOKEN",
            "MILVUS_DB_NAME", "ELASTICSEARCH_HOST", "ELASTICSEARCH_PORT", "ELASTICSEARCH_USER",
            "ELASTICSEARCH_PASSWORD", "OPENSEARCH_HOST", "OPENSEARCH_PORT", "FAISS_PATH",
        )),
        *((name, "packaged model") for name in ("EMBEDDING_PROVIDER", "EMBEDDING_MODEL", "EMBEDDING_DIMENSIONS")),
        *((name, "OPENMEMORY_DATABASE_URL") for name in ("MEMORY_BACKEND", "MEMORY_DIR")),
        ("MAX_ENTRIES_PER_CLIENT", "archive policies"),
        ("NEXT_PUBLIC_API_URL", "web page"),
        ("NEXT_PUBLIC_USER_ID", "OPENMEMORY_ACCESS_DEFAULT_USER"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "words"), IGNORED, ids=[" ".join(environ) for environ, _ in IGNORED])
def test_a_variable_without_effect_is_told_of_with_what_to_do_instead(environ: dict[str, str], words: str) -> None:
    told = read(**environ)
    assert values(told) == {}
    assert set(told.ignored) == set(environ)
    assert words in told.lines()[0]
    for value in environ.values():
        assert value not in "".join(told.lines())


def test_every_obsolete_variable_is_tried() -> None:
    assert OBSOLETE.keys() <= {name for environ, _ in IGNORED for name in environ}


def test_variables_of_pimemento_are_settings_with_values_that_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "none.toml"
    file.touch()
    given = {"MEMORY_PORT": "8770", "MAX_CONTENT_LEN": "800", "SAVE_RATE_LIMIT": "0", "SEMANTIC_DEDUP_THRESHOLD": "0.9"}
    settings = load(file, environ=given)
    assert (settings.port, settings.mcp.max_content, settings.rates.saves) == (8770, 800, 0)
    assert settings.dedup.min_similarity == 0.9
    assert load(file, environ=given | {"OPENMEMORY_PORT": "1"}).port == 1
    for name, value in (("MEMORY_PORT", "http"), ("SEMANTIC_DEDUP_THRESHOLD", "2"), ("MEMORY_AUTH_TOKEN", "secret")):
        with pytest.raises(SetupError, match=f"environment: {name}: ") as refused:
            load(file, environ={name: value})
        assert f"{value}'" not in str(refused.value)


@pytest.mark.parametrize("environ", [{"USER": "ann"}, {"USER": ""}, {"OPENAI_API_KEY": ""}, {"REDIS_URL": " "}, {}])
def test_what_every_shell_sets_and_what_compose_passes_on_empty_is_nothing(environ: dict[str, str]) -> None:
    """USER is the account's own name after every login."""
    assert read(**environ) == LegacySettings()


@pytest.mark.parametrize(
    ("given", "environ"),
    [
        ({"access.default_user": "carl"}, {"USER": "bob"}),
        ({"database.url": "postgresql://ours"}, {"DATABASE_URL": "postgresql://theirs"}),
        ({"qdrant.url": "http://ours"}, {"QDRANT_HOST": "theirs", "QDRANT_PORT": "1"}),
        ({"qdrant.url": "http://ours"}, {"QDRANT_URL": "http://theirs"}),
        ({"embedder.provider": "local"}, {"EMBEDDER_PROVIDER": "openai", "OPENAI_API_KEY": SECRET}),
        ({"embedder.model": "ours"}, {"EMBEDDER_PROVIDER": "openai", "EMBEDDER_API_KEY": SECRET}),
        ({"llm.provider": "anthropic"}, {"LLM_PROVIDER": "openai", "LLM_API_KEY": SECRET}),
        ({"embedder.provider": "openai", "embedder.base_url": "https://ours"}, {"OPENAI_API_KEY": SECRET}),
        ({"embedder.provider": "openai", "embedder.api_key": SecretStr("ours")}, {"OPENAI_API_KEY": SECRET}),
    ],
)  # fmt: skip
def test_what_ours_say_goes_first(given: dict[str, Any], environ: dict[str, str]) -> None:
    told = read(given, **environ)
    assert values(told) == {}
    assert set(told.ignored) == set(environ)


def test_a_model_of_openai_that_ours_choose_has_the_key_of_openai() -> None:
    assert values(read({"embedder.provider": "openai"}, OPENAI_API_KEY=SECRET)) == {"embedder.api_key": SECRET}


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, "http://host.docker.internal:11434"),
        ({"OLLAMA_BASE_URL": "http://localhost:11434"}, "http://host.docker.internal:11434"),
        ({"EMBEDDER_BASE_URL": "http://127.0.0.1:11434"}, "http://host.docker.internal:11434"),
        ({"OLLAMA_HOST": "0.0.0.0"}, "http://host.docker.internal:11434"),
        ({"OLLAMA_BASE_URL": "http://gpu:11434"}, "http://gpu:11434"),
        ({"OLLAMA_BASE_URL": "https://ollama.example.com"}, "https://ollama.example.com"),
    ],
)
def test_in_a_container_ollama_is_on_the_machine_around_it(environ: dict[str, str], address: str) -> None:
    told = read(in_container=True, EMBEDDER_PROVIDER="ollama", **environ)
    assert values(told)["embedder.base_url"] == address


def test_they_count_below_the_file_the_environment_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "openmemory.toml"
    file.write_text("[access]\ndefault_user = 'of the file'\n")
    environ = {"USER": "of the old", "QDRANT_HOST": "old", "DATABASE_URL": "postgresql://old"}
    ours = {"OPENMEMORY_QDRANT_URL": "http://new:1"}
    settings = load(file, environ=environ | ours, flags={"database.url": "postgresql://flag"})
    assert settings.access.default_user == "of the file"
    assert settings.qdrant.url == "http://new:1"
    assert settings.database.url.get_secret_value() == "postgresql://flag"
    assert settings.inherited.used == {}
    settings = load(environ=environ)
    assert (settings.access.default_user, settings.qdrant.url) == ("of the old", "http://old:6333")


@pytest.mark.parametrize("off", [{"OPENMEMORY_INHERIT": "off"}, {}])
def test_they_can_be_left_aside(off: dict[str, str]) -> None:
    """By a switch; and always where an assistant starts us amid variables of its own."""
    environ = {"USER": "bob", "QDRANT_HOST": "q", "EMBEDDER_PROVIDER": "openai", "OPENAI_API_KEY": SECRET} | off
    assert load(environ=environ, inherit=bool(off)) == Settings()


# A database that somebody else uses.


@pytest.fixture(scope="module")
async def server(short_folder: Path) -> AsyncIterator[str]:
    """The address of a PostgreSQL server of its own."""
    folder = DataFolder.claim(short_folder / "theirs", listen="")
    postgres = EmbeddedPostgres(folder)
    await postgres.start()
    yield postgres.url
    await postgres.stop()
    folder.release()


def engine_of(url: str, **more: Any) -> Engine:
    return create_engine(migrate.configuration(url).attributes["url"], poolclass=NullPool, **more)


@pytest.fixture
def database(server: str) -> Iterator[str]:
    """A database that holds nothing."""
    yield server
    run_in(server, "DROP OWNED BY CURRENT_USER CASCADE")
    assert tables(server) == set()


def run_in(database: str, *statements: str) -> None:
    with engine_of(database).begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def tables(database: str) -> set[str]:
    with engine_of(database).connect() as connection:
        return set(connection.scalars(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")))


async def start(folder: Path, environ: dict[str, str]) -> None:
    settings = load(environ=environ | {"OPENMEMORY_DATA_DIR": str(folder)})
    async with open_stores(settings):
        pass


@pytest.fixture
def folder(short_folder: Path) -> Path:
    return short_folder / f"environment-{next(_numbers)}"


@pytest.mark.slow
async def test_an_empty_database_is_taken_and_found_again(database: str, folder: Path) -> None:
    for _ in range(2):
        await start(folder, {"DATABASE_URL": database})
        assert "memories" in tables(database)


async def test_a_database_of_an_unrelated_project_gets_no_tables(database: str, folder: Path) -> None:
    run_in(database, "CREATE TABLE invoices (id int)")
    with pytest.raises(SetupError, match=r"^DATABASE_URL: .*invoices.*OPENMEMORY_DATABASE_URL"):
        await start(folder, {"DATABASE_URL": database})
    assert tables(database) == {"invoices"}
    await start(folder, {"OPENMEMORY_DATABASE_URL": database})
    assert {"invoices", "memories"} <= tables(database)


@pytest.mark.parametrize("name", ["DATABASE_URL", "OPENMEMORY_DATABASE_URL"])
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], "another program's alembic_version table"),
        (["CREATE TABLE index_generations (id int)"], "revision 0b53c747049a, which .*a newer OpenMemory"),
    ],
)
async def test_a_database_that_another_program_migrates_is_never_touched(
    database: str, folder: Path, name: str, more: list[str], words: str
) -> None:
    noted = (
        "CREATE TABLE alembic_version (version_num varchar(32))",
        "INSERT INTO alembic_version VALUES ('0b53c747049a')",
    )
    run_in(database, *noted, *more)
    before = tables(database)
    with pytest.raises(SetupError, match=words):
        await start(folder, {name: database})
    assert tables(database) == before


# What is told.


@pytest.mark.slow
@pytest.mark.journey
def test_a_start_tells_which_were_used_and_which_are_in_vain(short_folder: Path) -> None:
    folder = short_folder / f"environment-{next(_numbers)}"
    service = Service(
        "--data-dir", str(folder), "--port", "0", USER="bob", OPENAI_API_KEY=SECRET, CHROMA_HOST="chroma.internal"
    )
    try:
        until(lambda: "Data folder" in service.out or service.process.poll() is not None, START)
        assert "variables of older memory servers in use: USER (access.default_user" in service.err
        assert "without effect: OPENAI_API_KEY (nothing is sent to OpenAI" in service.err
        assert "CHROMA_HOST (vectors are in Qdrant" in service.err
        assert SECRET not in service.err + service.out
        assert "chroma.internal" not in service.err + service.out
    finally:
        service.close()


@pytest.mark.slow
def test_the_settings_as_they_are_shown_tell_it_too(tmp_path: Path) -> None:
    environ = clean_environment() | {
        "USER": "bob",
        "EMBEDDER_PROVIDER": "openai",
        "OPENAI_API_KEY": SECRET,
        "PG_HOST": "h",
    }
    command = [sys.executable, "-m", "openmemory", "config", "--data-dir", str(tmp_path)]
    told = subprocess.run([*command, "--json"], env=environ, check=True, capture_output=True, text=True, timeout=60)
    shown = json.loads(told.stdout)
    assert (shown["access.default_user"], shown["embedder.provider"]) == ("bob", "openai")
    assert shown["embedder.api_key"] == "********"
    assert shown["inherited"]["used"].keys() == {"USER", "EMBEDDER_PROVIDER", "OPENAI_API_KEY"}
    assert shown["inherited"]["without_effect"].keys() == {"PG_HOST"}
    told = subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=60)
    assert "variables of older memory servers in use: USER (access.default_user" in told.stderr
    assert SECRET not in told.stdout + told.stderr
