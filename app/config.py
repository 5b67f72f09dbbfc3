"""Settings: `openmemory.toml`, then `OPENMEMORY_*` environment variables, then command-line flags; the last wins.

A key `section.name` is spelt `OPENMEMORY_SECTION_NAME` in the environment. An unknown key or an invalid value stops
the start with its name, where it came from and what would be valid. `openmemory.toml` in the project lists every key.
"""

from __future__ import annotations

import json
import os
import tomllib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from app.errors import SetupError

PREFIX = "OPENMEMORY_"
_NOT_SETTINGS = ("OPENMEMORY_TEST_", "OPENMEMORY_CONFIG")


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Http(Section):
    """Who may call over HTTP, beside authentication."""

    allowed_hosts: tuple[str, ...] = Field((), description="Host headers accepted beside localhost; '*' accepts any.")
    cors_origins: tuple[str, ...] = Field(
        ("http://localhost:3000", "http://127.0.0.1:3000"), description="Origins of web pages that may call the API."
    )


class Database(Section):
    """PostgreSQL. An empty URL means the built-in one."""

    url: SecretStr = Field(SecretStr(""), description="postgresql://user:password@host:5432/name; empty: built in.")
    pool_size: int = Field(10, ge=1, le=200, description="Connections kept open.")
    connect_timeout: int = Field(5, ge=1, le=60, description="Seconds to wait for a new connection.")
    statement_timeout: int = Field(30, ge=1, le=3600, description="Seconds after which a statement is cancelled.")


class Qdrant(Section):
    """The vector index. An empty URL means the built-in engine."""

    url: str = Field("", pattern=r"^(https?://.+)?$", description="http://host:6333; empty: built in.")
    api_key: SecretStr = Field(SecretStr(""), description="The server's API key, if it wants one.")
    collection: str = Field(
        "openmemory",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="Name of the alias; the collection behind adds model and dimension.",
    )
    timeout: float = Field(
        2.0, gt=0, le=60, description="Seconds a search may wait for Qdrant before text search answers."
    )


class EmbedderSettings(Section):
    """What turns texts into vectors."""

    provider: str = Field(
        "local",
        min_length=1,
        description="local (packaged MiniLM), or any embedder of mem0: openai, ollama, huggingface ...",
    )
    model: str = Field("", description="The provider's model; empty: its default.")
    api_key: SecretStr = Field(SecretStr(""), description="The provider's key, if it wants one.")
    base_url: str = Field("", description="The provider's address, for OpenAI-compatible servers and Ollama.")
    dimensions: int = Field(
        0, ge=0, le=65_536, description="Asks the provider for this many dimensions; 0: its default."
    )
    timeout: float = Field(
        10.0, gt=0, le=600, description="Seconds a query may wait for its embedding before text search answers."
    )
    threads: int = Field(1, ge=1, le=64, description="Threads of the packaged model for one batch.")


class Search(Section):
    """How results are found and mixed."""

    limit: int = Field(10, ge=1, le=1000, description="Results when the caller names no limit.")
    max_limit: int = Field(100, ge=1, le=1000, description="The most a caller may ask for.")


class Sync(Section):
    """The job that keeps Qdrant equal to PostgreSQL."""

    interval: int = Field(1800, ge=10, le=86_400 * 7, description="Seconds between two runs.")
    keep: int = Field(
        86_400,
        ge=0,
        le=86_400 * 365,
        description="Seconds that the vectors of a replaced model are kept, for a way back.",
    )


class Access(Section):
    """Who may read and write."""

    default: Literal["user", "own_app"] = Field(
        "user", description="user: an app reads all active memories of its user; own_app: only those that it wrote."
    )
    api_key: SecretStr = Field(
        SecretStr(""), description="A key that every request must carry; needed to listen beyond loopback."
    )
    default_user: str = Field(
        "default_user", min_length=1, max_length=256, description="The user when a request names none."
    )
    default_app: str = Field(
        "openmemory", min_length=1, max_length=256, description="The app when a request names none."
    )


LONGEST_NAME = 500
"""Characters that `limits.name` may allow: a row of an index holds 600 of four bytes each, and not many more."""


class Limits(Section):
    """The largest input that is taken."""

    text: int = Field(16_000, ge=1, le=1_000_000, description="Characters of one memory.")
    query: int = Field(4_000, ge=1, le=100_000, description="Characters of one search query.")
    metadata: int = Field(16_384, ge=2, le=1_000_000, description="Bytes of one memory's metadata as JSON.")
    name: int = Field(
        256, ge=1, le=LONGEST_NAME, description="Characters of a user, app, namespace, thread, kind, key or category."
    )
    ids: int = Field(1_000, ge=1, le=100_000, description="Ids in one request.")
    batch: int = Field(1_000, ge=1, le=10_000, description="Memories in one batch of an import.")
    body: int = Field(8_388_608, ge=1_024, le=1_073_741_824, description="Bytes of one request.")


class Capture(Section):
    """What is done with texts that should not be remembered as they are."""

    secrets: Literal["refuse", "redact", "store"] = Field(
        "refuse",
        description="Keys, tokens and passwords in memories: refuse them, redact: store the rest, or store them.",
    )
    injection: Literal["label", "refuse", "store"] = Field(
        "label",
        description="Memories that read like orders to an assistant: label them as data, refuse, or just store them.",
    )


class Log(Section):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least severe lines that are written."
    )
    format: Literal["text", "json"] = Field("text", description="text for people, json for collectors.")


class Settings(Section):
    """Everything that can be set."""

    data_dir: str = Field("", description="Folder of the built-in stores; empty: the platform's user data folder.")
    host: str = Field(
        "127.0.0.1", min_length=1, description="Address to listen on; beyond loopback needs access.api_key."
    )
    port: int = Field(8765, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    workers: int = Field(
        1, ge=1, le=64, description="Processes that serve; each opens its own database.pool_size and loads the model."
    )
    http: Http = Http()
    database: Database = Database()
    qdrant: Qdrant = Qdrant()
    embedder: EmbedderSettings = EmbedderSettings()
    search: Search = Search()
    sync: Sync = Sync()
    access: Access = Access()
    limits: Limits = Limits()
    capture: Capture = Capture()
    log: Log = Log()


def keys(model: type[BaseModel] = Settings, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every settable key with its field, in the order of the file: ('http', 'cors_origins') → FieldInfo."""
    found: dict[tuple[str, ...], Any] = {}
    for name, info in model.model_fields.items():
        section = info.annotation
        if isinstance(section, type) and issubclass(section, Section):
            found |= keys(section, (*path, name))
        else:
            found[*path, name] = info
    return found


def load(
    file: Path | None = None, *, environ: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Settings:
    """Read and check the settings.

    `file`: a TOML file that must exist if named; else `OPENMEMORY_CONFIG`, else `openmemory.toml` in the working folder
    if there is one. `flags`: dotted key → value; None means "not given".

    Raises:
        SetupError: an unknown key or an invalid value; names the key, its origin and what would be valid.
    """
    environ = os.environ if environ is None else environ
    origin: dict[tuple[str, ...], str] = {}
    values: dict[str, Any] = {}

    def put(path: tuple[str, ...], value: Any, where: str) -> None:
        target = values
        for part in path[:-1]:
            target = target.setdefault(part, {})
        target[path[-1]] = value
        origin[path] = where

    known = keys()
    for path, value in _from_file(_which_file(file, environ)).items():
        if path[0] not in known:
            name = ".".join(path[0])
            raise SetupError(f"{path[1]}: unknown key {name!r}{_nearest(name, ['.'.join(key) for key in known])}")
        put(path[0], value, f"{path[1]}: {'.'.join(path[0])}")
    names = {PREFIX + "_".join(path).upper(): path for path in known}
    for name, text in environ.items():
        if not name.startswith(PREFIX) or name.startswith(_NOT_SETTINGS):
            continue
        if name not in names:
            raise SetupError(f"environment: unknown setting {name}{_nearest(name, list(names))}")
        put(names[name], _parse(text, known[names[name]].annotation), f"environment: {name}")
    for dotted, value in (flags or {}).items():
        if value is not None:
            path_ = tuple(dotted.split("."))
            put(path_, value, "--" + path_[-1].replace("_", "-"))
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = tuple(str(part) for part in first["loc"])
        at = next((origin[where[:n]] for n in range(len(where), 0, -1) if where[:n] in origin), ".".join(where))
        raise SetupError(f"{at}: {first['msg']}") from None


def _which_file(file: Path | None, environ: Mapping[str, str]) -> Path | None:
    if file is None and environ.get("OPENMEMORY_CONFIG"):
        file = Path(environ["OPENMEMORY_CONFIG"])
    if file is not None:
        if not file.is_file():
            raise SetupError(f"{file}: no such file")
        return file
    here = Path("openmemory.toml")
    return here if here.is_file() else None


def _from_file(file: Path | None) -> dict[tuple[tuple[str, ...], str], Any]:
    if file is None:
        return {}
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SetupError(f"{file}: not valid TOML: {error}") from None
    except OSError as error:
        raise SetupError(f"{file}: cannot be read: {error.strerror}") from None
    flat: dict[tuple[tuple[str, ...], str], Any] = {}
    for name, value in document.items():
        if isinstance(value, dict) and name in Settings.model_fields:
            flat |= {((name, inner), str(file)): item for inner, item in value.items()}
        else:
            flat[(name,), str(file)] = value
    return flat


def _parse(text: str, annotation: Any) -> Any:
    """Read an environment variable: lists may be JSON or comma-separated; pydantic converts the rest."""
    if typing.get_origin(annotation) is not tuple:
        return text
    if text.startswith("["):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text
    return [part.strip() for part in text.split(",") if part.strip()]


def _nearest(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known)[:8])} …"


__all__ = [
    "Access",
    "Capture",
    "Database",
    "EmbedderSettings",
    "Http",
    "Limits",
    "Log",
    "Qdrant",
    "Search",
    "Section",
    "Settings",
    "Sync",
    "keys",
    "load",
]
