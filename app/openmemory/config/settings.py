"""Settings: `openmemory.toml`, then `OPENMEMORY_*` environment variables, then command-line flags; the last wins.
The environment variables of the old OpenMemory have the lowest precedence (`legacy_env.py`).

A key `section.name` is spelt `OPENMEMORY_SECTION_NAME` in the environment. An unknown key or an invalid value stops
the start. The error names the key, its source and the valid values. `openmemory.toml` in the project lists every key.
"""

from __future__ import annotations

import json
import os
import tomllib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from openmemory.config import key_strength, legacy_env
from openmemory.config.sections import (
    ASYMMETRIC,
    CaptureSettings,
    CategorySettings,
    EgressSettings,
    OAuthSettings,
    RerankerSettings,
    Section,
    network,
    origin,
)
from openmemory.errors import SetupError

PREFIX = "OPENMEMORY_"
_CLIENT_KEY = "OPENMEMORY_API_KEY"
_NOT_SETTINGS = ("OPENMEMORY_TEST_", "OPENMEMORY_CONFIG", legacy_env.SWITCH, _CLIENT_KEY)


class HttpSettings(Section):
    """HTTP: which callers are let in, beside authentication, and how long a client may take."""

    allowed_hosts: tuple[str, ...] = Field((), description="Host headers accepted beside localhost; '*' accepts any.")
    cors_origins: tuple[Annotated[str, AfterValidator(origin)], ...] = Field(
        ("http://localhost:3000-3010", "http://127.0.0.1:3000-3010"),
        description="Origins of web pages that may call the API; a range of ports means each of them. Pages that are "
        "set here may use a browser's sign-in; those of the default send a key where one is needed.",
    )
    trusted_proxies: tuple[Annotated[str, AfterValidator(network)], ...] = Field(
        (), description="Addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed."
    )
    header_timeout: float = Field(10.0, gt=0, le=600, description="Seconds within which a request's headers must come.")
    body_timeout: float = Field(
        60.0, gt=0, le=3600, description="Seconds that a request's body may take, plus one for each KiB that comes."
    )
    write_timeout: float = Field(
        60.0, gt=0, le=3600, description="Seconds after which a client that does not read its answer is cut off."
    )

    @property
    def named_origins(self) -> tuple[str, ...]:
        """The origins that the configuration sets explicitly. The default origins belong to the retired server's web
        page, or to whatever else this machine serves on those ports."""
        return self.cors_origins if "cors_origins" in self.model_fields_set else ()


class DatabaseSettings(Section):
    """PostgreSQL. An empty URL means the built-in one."""

    url: SecretStr = Field(SecretStr(""), description="postgresql://user:password@host:5432/name; empty: built in.")
    pool_size: int = Field(10, ge=1, le=200, description="Connections kept open.")
    connect_timeout: int = Field(5, ge=1, le=60, description="Seconds to wait for a new connection.")
    statement_timeout: int = Field(30, ge=1, le=3600, description="Seconds after which a statement is cancelled.")


class QdrantSettings(Section):
    """The vector index. An empty URL means the built-in engine."""

    url: str = Field("", pattern=r"^(https?://.+)?$", description="http://host:6333; empty: built in.")
    api_key: SecretStr = Field(SecretStr(""), description="The server's API key, if it wants one.")
    collection: str = Field(
        "openmemory",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description=(
            "How the names of collections begin; model and dimension follow. An alias of this name leads to the"
            " collection in use; mem0's own client takes the collection's full name, which `openmemory doctor` shows."
        ),
    )
    timeout: float = Field(
        2.0, gt=0, le=60, description="Seconds a search may wait for Qdrant before text search answers."
    )


class EmbedderSettings(Section):
    """The model that turns texts into vectors."""

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


class LlmSettings(Section):
    """The language model that extracts facts from texts added with infer=true. Without one they are stored verbatim."""

    provider: str = Field(
        "none", description="none, or a language model's provider: openai, ollama, anthropic, gemini, groq ..."
    )
    model: str = Field("", description="The provider's model; needed with provider.")
    api_key: SecretStr = Field(SecretStr(""), description="The provider's key, if it wants one.")
    base_url: str = Field("", description="The provider's address, for OpenAI-compatible servers and Ollama.")
    temperature: float = Field(0.1, ge=0, le=2, description="How freely it answers.")
    max_tokens: int = Field(2_000, ge=1, le=10_000_000, description="The longest answer.")
    timeout: float = Field(60.0, gt=0, le=600, description="Seconds that one answer may take.")
    concurrency: int = Field(4, ge=1, le=100, description="Questions of one process at once; more wait.")

    @field_validator("provider")
    @classmethod
    def _empty_is_none(cls, value: str) -> str:
        return value or "none"

    @field_validator("model")
    @classmethod
    def _model_goes_with_provider(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("provider", "none") != "none" and not value:
            raise ValueError("is needed with llm.provider")
        return value

    @property
    def chosen(self) -> bool:
        """Returns True if a language model is configured."""
        return self.provider != "none"


class SearchSettings(Section):
    """Search: how results are found and mixed."""

    limit: int = Field(10, ge=1, le=1000, description="Results when the caller names no limit.")
    max_limit: int = Field(100, ge=1, le=1000, description="The most a caller may ask for.")
    floor: Literal["auto"] | Annotated[float, Field(ge=-1, le=1)] = Field(
        "auto",
        description="Cosine (-1 to 1) below which a memory that holds no word of the query is not found. auto: 0.2 for "
        "the packaged model, none for others, whose scales differ.",
    )
    recency: float = Field(
        0.0,
        ge=0,
        le=36_500,
        description="Days after which being new adds half as much to a score, which is 0.1 at most; 0: nothing.",
    )
    late_interaction: bool = Field(
        True,
        description="Compare each word of a question, as the packaged model understands it, with those of the best "
        "memories. Takes 48 bytes in the database for each word that tells something; false: not stored, not compared.",
    )
    language: str = Field(
        "english",
        min_length=1,
        description="Language of the words in memories and queries: a text search configuration of PostgreSQL, such as "
        "german, or simple for several. Another one makes the words of all memories anew in the background.",
    )


class SyncSettings(Section):
    """The job that keeps Qdrant equal to PostgreSQL."""

    interval: int = Field(1800, ge=10, le=86_400 * 7, description="Seconds between two runs.")
    keep: int = Field(
        86_400,
        ge=0,
        le=86_400 * 365,
        description="Seconds that the vectors of a replaced model are kept, for a way back.",
    )


class AccessSettings(Section):
    """Access: who may read and write."""

    default: Literal["user", "own_app"] = Field(
        "user", description="user: an app reads all active memories of its user; own_app: only those that it wrote."
    )
    require: Literal["auto", "always"] = Field(
        "auto",
        description="auto: no credential on loopback, unless api_key, oauth or a foreign name in allowed_hosts is set.",
    )
    api_key: SecretStr = Field(
        SecretStr(""),
        description="An administrator's key kept here rather than made by `openmemory keys create`: 20 characters or "
        "more that nobody can guess, such as `openssl rand -hex 32` makes them.",
    )
    default_user: str = Field(
        "default_user", min_length=1, max_length=256, description="The user when a request names none."
    )
    default_app: str = Field(
        "openmemory", min_length=1, max_length=256, description="The app when a request names none."
    )

    @field_validator("api_key")
    @classmethod
    def _nobody_guesses_it(cls, value: SecretStr) -> SecretStr:
        key_strength.checked(value.get_secret_value())
        return value


LONGEST_NAME = 300
"""The maximum of `limits.name` in characters: an index row holds at most two such names of four bytes a character."""


class LimitSettings(Section):
    """The largest input that is taken."""

    text: int = Field(16_000, ge=1, le=1_000_000, description="Characters of one memory.")
    query: int = Field(4_000, ge=1, le=100_000, description="Characters of one search query.")
    metadata: int = Field(16_384, ge=2, le=1_000_000, description="Bytes of one memory's metadata as JSON.")
    name: int = Field(
        256, ge=1, le=LONGEST_NAME, description="Characters of a user, app, namespace, thread, kind, key or category."
    )
    ids: int = Field(1_000, ge=1, le=100_000, description="Ids in one request.")
    batch: int = Field(1_000, ge=1, le=10_000, description="Memories in one batch of an import.")
    sessions: int = Field(100, ge=1, le=10_000, description="SSE sessions of one key or token in one process.")
    body: int = Field(8_388_608, ge=1_024, le=1_073_741_824, description="Bytes of one request.")
    backup: int = Field(
        1_073_741_824, ge=1_024, le=1_099_511_627_776, description="Bytes of an archive that is brought in."
    )
    json_values: int = Field(
        200_000, ge=1_000, le=100_000_000, description="JSON values in the body of one request, nested ones too."
    )
    connections: int = Field(
        10_000, ge=1, le=1_000_000, description="Connections that one process holds at once, event streams among them."
    )
    session_messages: int = Field(
        64, ge=1, le=10_000, description="Messages of one MCP session over SSE that may wait for their answers."
    )


class RateSettings(Section):
    """Rate limits: how often something may be done within a window of time. 0 sets no limit."""

    window: int = Field(60, ge=1, le=3600, description="Seconds.")
    saves: int = Field(30, ge=0, le=1_000_000, description="Memories that an assistant's app may store or change.")
    searches: int = Field(300, ge=0, le=1_000_000, description="Searches and lists of an assistant's app.")
    requests: int = Field(6_000, ge=0, le=10_000_000, description="Requests with one key or token.")
    failures: int = Field(
        20,
        ge=0,
        le=1_000_000,
        description="Wrong credentials from one address; also refusals of one credential that are logged one by one.",
    )


class AuditSettings(Section):
    """The log of who did what, and of who accessed which memory."""

    keep: int = Field(365, ge=31, le=36_500, description="Days that they are kept.")


class LogSettings(Section):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least severe lines that are written."
    )
    format: Literal["text", "json"] = Field("text", description="text for people, json for collectors.")


class Settings(Section):
    """Everything that can be set."""

    data_dir: str = Field("", description="Folder of the built-in stores; empty: the platform's user data folder.")
    host: str = Field(
        "127.0.0.1", min_length=1, description="Address to listen on; beyond loopback needs a key or oauth."
    )
    port: int = Field(8765, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    workers: int = Field(
        1, ge=1, le=64, description="Processes that serve; each opens its own database.pool_size and loads the model."
    )
    http: HttpSettings = HttpSettings()
    database: DatabaseSettings = DatabaseSettings()
    qdrant: QdrantSettings = QdrantSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    llm: LlmSettings = LlmSettings()
    search: SearchSettings = SearchSettings()
    reranker: RerankerSettings = RerankerSettings()
    sync: SyncSettings = SyncSettings()
    access: AccessSettings = AccessSettings()
    oauth: OAuthSettings = OAuthSettings()
    egress: EgressSettings = EgressSettings()
    limits: LimitSettings = LimitSettings()
    rates: RateSettings = RateSettings()
    audit: AuditSettings = AuditSettings()
    capture: CaptureSettings = CaptureSettings()
    categories: CategorySettings = CategorySettings()
    log: LogSettings = LogSettings()
    _inherited: legacy_env.LegacySettings = PrivateAttr(default=legacy_env.NOTHING)

    @property
    def inherited(self) -> legacy_env.LegacySettings:
        """The settings that the variables of the old OpenMemory provide."""
        return self._inherited


def keys(model: type[BaseModel] = Settings, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Returns every settable key with its field, in the order of the file: ('http', 'cors_origins') → FieldInfo."""
    found: dict[tuple[str, ...], Any] = {}
    for name, info in model.model_fields.items():
        section = info.annotation
        if isinstance(section, type) and issubclass(section, Section):
            found |= keys(section, (*path, name))
        else:
            found[*path, name] = info
    return found


def load(
    file: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    here: bool = True,
) -> Settings:
    """Read and check the settings.

    `file`: a TOML file, which must exist if given. Otherwise `OPENMEMORY_CONFIG` is used, and otherwise
    `openmemory.toml` in the working folder if it exists and `here` is true. `flags`: dotted key → value; None means
    "not given". The variables of the old OpenMemory are read only if `here` is true, because both the variables and
    the working folder may belong to something else.

    Raises:
        SetupError: an unknown key or an invalid value; the message names the key, its source and the valid values.
    """
    environ = os.environ if environ is None else environ
    sources: dict[tuple[str, ...], str] = {}
    values: dict[str, Any] = {}

    def put(path: tuple[str, ...], value: Any, where: str) -> None:
        target = values
        for part in path[:-1]:
            target = target.setdefault(part, {})
        target[path[-1]] = value
        sources[path] = where

    known = keys()
    for path, value in _from_file(_which_file(file, environ, here=here)).items():
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
    told = legacy_env.NOTHING
    if here:
        given = {key: _at(values, key) for key in sources}
        account, in_container = legacy_env.account_name(), legacy_env.within_container()
        told = legacy_env.inherit(environ, given, account=account, in_container=in_container)
        for key, (value, name) in told.values.items():
            put(key, value, f"environment: {name}")
    try:
        settings = Settings.model_validate(values)
        settings._inherited = told
        return settings
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = tuple(str(part) for part in first["loc"])
        at = next((sources[where[:n]] for n in range(len(where), 0, -1) if where[:n] in sources), ".".join(where))
        raise SetupError(f"{at}: {first['msg'].removeprefix('Value error, ')}") from None


def _at(values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = values
    for part in path:
        found = found[part]
    return found


def environment() -> Mapping[str, str]:
    """The environment of this process. Used to read keys that a configuration names by variable, and for children."""
    return os.environ


def client_key(environ: Mapping[str, str] | None = None) -> str | None:
    """The key with which commands call a service, from `OPENMEMORY_API_KEY`. It is not a setting of the service."""
    return (os.environ if environ is None else environ).get(_CLIENT_KEY) or None


def source_key() -> str | None:
    """The key of a Qdrant server that memories are imported from (`QDRANT_API_KEY`), never of the server in use."""
    return os.environ.get("QDRANT_API_KEY") or None


def named_file(file: Path | None = None, *, environ: Mapping[str, str] | None = None) -> Path | None:
    """The settings file given by an option or by `OPENMEMORY_CONFIG`, whatever the working folder; None if none is."""
    named = file or (os.environ if environ is None else environ).get("OPENMEMORY_CONFIG")
    return Path(named).absolute() if named else None


def _which_file(file: Path | None, environ: Mapping[str, str], *, here: bool) -> Path | None:
    file = file or named_file(environ=environ)
    if file is not None:
        if not file.is_file():
            raise SetupError(f"{file}: no such file")
        return file
    found = Path("openmemory.toml")
    return found if here and found.is_file() else None


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
    """Parse an environment variable. Lists may be JSON or comma-separated; pydantic converts everything else."""
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
    "ASYMMETRIC",
    "AccessSettings",
    "AuditSettings",
    "CaptureSettings",
    "DatabaseSettings",
    "EgressSettings",
    "EmbedderSettings",
    "HttpSettings",
    "LimitSettings",
    "LlmSettings",
    "LogSettings",
    "OAuthSettings",
    "QdrantSettings",
    "RateSettings",
    "RerankerSettings",
    "SearchSettings",
    "Section",
    "Settings",
    "SyncSettings",
    "environment",
    "keys",
    "load",
]
