"""Settings: a settings file, then `OPENMEMORY_*` environment variables, then command-line flags; the last wins.
The environment variables of older memory servers have the lowest precedence (`legacy_env.py`).

A key `section.name` is spelt `OPENMEMORY_SECTION_NAME` in the environment. An unknown key in the file, a mistyped
variable or an invalid value stops the start. The error names the key, its source and the valid values.
`openmemory.toml` in the project lists every key.
"""

from __future__ import annotations

import json
import os
import re
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from openmemory.config import legacy_env
from openmemory.config.sections import (
    AccessSettings,
    CaptureSettings,
    CategorySettings,
    DedupSettings,
    DocumentSettings,
    EgressSettings,
    EmbedderSettings,
    HttpSettings,
    OAuthSettings,
    RerankerSettings,
    SearchSettings,
    Section,
    SlackSettings,
)
from openmemory.config.settings_file import VARIABLE, SettingsFile, flat_entries, named_file, read_settings_file
from openmemory.errors import SetupError

PREFIX = "OPENMEMORY_"
_CLIENT_KEY = "OPENMEMORY_API_KEY"
_NOT_SETTINGS = ("OPENMEMORY_TEST_", VARIABLE, legacy_env.SWITCH, _CLIENT_KEY)


class DatabaseSettings(Section):
    """PostgreSQL. An empty URL means the built-in one."""

    url: SecretStr = Field(SecretStr(""), description="postgresql://user:password@host:5432/name; empty: built in.")
    pool_size: int = Field(
        10, ge=1, le=200, description="Connections in each of the three pools; fewer if the server grants fewer."
    )
    pool_timeout: int = Field(
        20, ge=1, le=300, description="Seconds to wait for a free connection of a pool while the database works."
    )
    connect_timeout: int = Field(5, ge=1, le=60, description="Seconds to wait for a new connection.")
    statement_timeout: int = Field(30, ge=1, le=3600, description="Seconds after which a statement is cancelled.")


DEFAULT_COLLECTION = "openmemory"
"""The name that all installations begin with."""


class QdrantSettings(Section):
    """The vector index. An empty URL means the built-in engine."""

    url: str = Field("", pattern=r"^(https?://.+)?$", description="http://host:6333; empty: built in.")
    api_key: SecretStr = Field(SecretStr(""), description="The server's API key, if it requires one.")
    collection: str = Field(
        DEFAULT_COLLECTION,
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description=(
            "Prefix of the collection names, followed by model and dimension. An alias of this name points to the"
            " collection in use. mem0's own client needs the full name, which `openmemory doctor` shows. If another"
            " installation on the same server has the default name, this one adds a part of its id. Any other name that"
            " is taken is left alone, and searches go by words alone."
        ),
    )
    timeout: float = Field(
        2.0,
        gt=0,
        le=60,
        description="Seconds that a search waits for Qdrant before it continues with text search alone.",
    )


class LlmSettings(Section):
    """The language model that extracts facts from texts added with infer=true. Without one they are stored verbatim."""

    provider: str = Field(
        "none", description="none, or the provider of the language model: openai, ollama, anthropic, gemini, groq ..."
    )
    model: str = Field("", description="The provider's model; required with a provider.")
    api_key: SecretStr = Field(SecretStr(""), description="The provider's API key, if it requires one.")
    base_url: str = Field("", description="The provider's address, for OpenAI-compatible servers and Ollama.")
    temperature: float = Field(0.1, ge=0, le=2, description="Sampling temperature.")
    max_tokens: int = Field(2_000, ge=1, le=10_000_000, description="Maximum tokens of one response.")
    timeout: float = Field(60.0, gt=0, le=600, description="Maximum seconds of one response.")
    concurrency: int = Field(
        4, ge=1, le=100, description="Maximum concurrent requests of one process; further ones wait."
    )

    @field_validator("provider")
    @classmethod
    def _empty_is_none(cls, value: str) -> str:
        return value or "none"

    @field_validator("model")
    @classmethod
    def _model_goes_with_provider(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("provider", "none") != "none" and not value:
            raise ValueError("is required with llm.provider")
        return value

    @property
    def configured(self) -> bool:
        """Returns True if a language model is configured."""
        return self.provider != "none"


class SyncSettings(Section):
    """The job that keeps Qdrant equal to PostgreSQL."""

    interval: int = Field(1800, ge=10, le=86_400 * 7, description="Seconds between two runs.")
    keep: int = Field(
        86_400,
        ge=0,
        le=86_400 * 365,
        description="Seconds that the vectors of a replaced model are kept, so that the change can be undone.",
    )


MAX_NAME_LENGTH = 300
"""The maximum of `limits.name` in characters: an index row holds at most two such names of four bytes a character."""


class LimitSettings(Section):
    """Limits on the size and number of inputs."""

    text: int = Field(16_000, ge=1, le=1_000_000, description="Maximum characters of one memory.")
    value: int = Field(
        64_000, ge=1, le=1_000_000, description="Maximum characters of the value under a topic and a key."
    )
    query: int = Field(4_000, ge=1, le=100_000, description="Maximum characters of one search query.")
    metadata: int = Field(16_384, ge=2, le=1_000_000, description="Maximum bytes of one memory's metadata as JSON.")
    name: int = Field(
        256,
        ge=1,
        le=MAX_NAME_LENGTH,
        description="Maximum characters of a user, app, namespace, thread, kind, key or category.",
    )
    ids: int = Field(1_000, ge=1, le=100_000, description="Maximum ids in one request.")
    batch: int = Field(1_000, ge=1, le=10_000, description="Maximum memories in one batch.")
    sessions: int = Field(
        100, ge=1, le=10_000, description="Maximum SSE sessions of one key or token in one process, or of all without."
    )
    body: int = Field(8_388_608, ge=1_024, le=1_073_741_824, description="Maximum bytes of one request.")
    backup: int = Field(
        1_073_741_824, ge=1_024, le=1_099_511_627_776, description="Maximum bytes of an archive to import."
    )
    document: int = Field(52_428_800, ge=1_024, le=1_073_741_824, description="Maximum bytes of a document to store.")
    json_values: int = Field(
        200_000,
        ge=1_000,
        le=100_000_000,
        description="Maximum JSON values in the body of one request, including nested ones.",
    )
    connections: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="Maximum concurrent connections of one process, including event streams.",
    )
    session_messages: int = Field(
        64, ge=1, le=10_000, description="Maximum messages of one MCP session over SSE that wait for a response."
    )


class RateSettings(Section):
    """Rate limits in a window of time. 0 sets no limit."""

    window: int = Field(60, ge=1, le=3600, description="Length of the window in seconds.")
    saves: int = Field(
        30,
        ge=0,
        le=1_000_000,
        description="Memories that an assistant may store or change in one window: over MCP, or with a key or token of "
        "an app. Other programs have no such limit.",
    )
    searches: int = Field(300, ge=0, le=1_000_000, description="Searches and lists of an assistant in one window.")
    requests: int = Field(6_000, ge=0, le=10_000_000, description="Requests with one key or token in one window.")
    failures: int = Field(
        20,
        ge=0,
        le=1_000_000,
        description="Wrong credentials from one address in one window; also refusals of a credential that are logged.",
    )


class McpSettings(Section):
    """MCP: what assistants are offered, and the form of the answers."""

    toolsets: tuple[
        Literal[
            "admin",
            "context",
            "devmemory",
            "documents",
            "files",
            "mempack",
            "notes",
            "pimemento",
            "projects",
            "review",
            "sessions",
            "slack",
            "threads",
        ],
        ...,
    ] = Field(
        (),
        description="Tools that assistants are offered besides the usual ones. admin: sync_vector_store;"
        " documents, sessions and threads: those for documents, sessions and conversations; files: those for files;"
        " context: packs and the state of a project; notes: links and notes; projects: values by topic and key;"
        " review: facts that disagree; slack: channels of Slack; slack_send: messages to it;"
        " devmemory, mempack and pimemento: the tools of these servers alone, without the usual ones.",
    )
    max_content: int = Field(
        500,
        ge=1,
        le=100_000,
        description="Characters of a text that save_memory keeps. The rest is cut, with a warning.",
    )
    write_mode: Literal["auto", "ask", "off"] = Field(
        "auto",
        description="What tools that change something need. auto: nothing; ask: the user's consent, by a question that"
        " the client shows or by the argument confirmed; off: they are refused. REST and the page are not affected.",
    )
    format: Literal["auto", "compact", "json"] = Field(
        "auto",
        description="Form of the answers of tools. compact: lines that cost few tokens; json: OpenMemory's JSON;"
        " auto: json at OpenMemory's own addresses (/mcp/CLIENT/...), compact elsewhere.",
    )


class AuditSettings(Section):
    """The audit log and the access log."""

    keep: int = Field(365, ge=31, le=36_500, description="Days that both logs are kept.")


class LogSettings(Section):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The lowest severity that is logged."
    )
    format: Literal["text", "json"] = Field("text", description="text for people, json for collectors.")


class Settings(Section):
    """Everything that can be set."""

    data_dir: str = Field("", description="Data folder of the built-in stores; empty: the platform's user data folder.")
    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address to listen on, 127.0.0.1 with ::1; beyond loopback a key or oauth is required.",
    )
    port: int = Field(8765, ge=0, le=65_535, description="Port to listen on; 0 selects a free one.")
    workers: int = Field(
        1,
        ge=1,
        le=64,
        description="Number of processes; each opens its own connections (database.pool_size) and loads the model.",
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
    mcp: McpSettings = McpSettings()
    capture: CaptureSettings = CaptureSettings()
    documents: DocumentSettings = DocumentSettings()
    dedup: DedupSettings = DedupSettings()
    categories: CategorySettings = CategorySettings()
    slack: SlackSettings = SlackSettings()
    log: LogSettings = LogSettings()
    _inherited: legacy_env.LegacySettings = PrivateAttr(default=legacy_env.NOTHING)
    _unknown: tuple[str, ...] = PrivateAttr(default=())
    _file: Path | None = PrivateAttr(default=None)
    _sources: Mapping[tuple[str, ...], str] = PrivateAttr(default={})

    @property
    def inherited(self) -> legacy_env.LegacySettings:
        """The settings that the variables of older memory servers provide."""
        return self._inherited

    @property
    def file(self) -> Path | None:
        """The settings file; None if there is none, or it sets nothing."""
        return self._file

    def source(self, path: tuple[str, ...]) -> str | None:
        """Returns where a setting comes from: a file, a variable or a flag; None if it has its default."""
        return self._sources.get(path)

    def masked(self, path: tuple[str, ...]) -> Any:
        """Returns a setting with its secrets masked, including secrets inside URLs."""
        value: Any = self
        for part in path:
            value = getattr(value, part)
        if isinstance(value, SecretStr):
            return "********" if value.get_secret_value() else ""
        if isinstance(value, str):
            return re.sub(r"(?<=://)[^/@]+(?=@)", "********", value)
        return list(value) if isinstance(value, tuple) else value

    def warnings(self) -> list[str]:
        """The lines about variables of this service's prefix that are no settings and have no effect."""
        return [f"{name} is not a setting and has no effect; `openmemory config` lists all" for name in self._unknown]


def keys(model: type[BaseModel] = Settings, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Returns every settable key with its field, in the order of the file: ('http', 'cors_origins') → FieldInfo."""
    fields: dict[tuple[str, ...], Any] = {}
    for name, info in model.model_fields.items():
        section = info.annotation
        if isinstance(section, type) and issubclass(section, Section):
            fields |= keys(section, (*path, name))
        else:
            fields[*path, name] = info
    return fields


def entries(file: SettingsFile) -> dict[tuple[str, ...], Any]:
    """Returns what a settings file sets: ('http', 'cors_origins') → value. The values are not checked.

    Raises:
        SetupError: it is not valid TOML, or has an unknown key.
    """
    values = flat_entries(file, Settings.model_fields)
    fields = keys()
    for path in values:
        if path not in fields:
            name = ".".join(path)
            raise SetupError(f"{file.path}: unknown key {name!r}{_nearest(name, ['.'.join(key) for key in fields])}")
    return values


def load(
    file: Path | SettingsFile | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    inherit: bool = True,
) -> Settings:
    """Read and check the settings.

    `file`: a TOML file, which must exist. None: `OPENMEMORY_CONFIG` names it, and otherwise there is none: nothing is
    read because of the working folder. `flags`: dotted key → value; None: not set. `inherit`: the
    variables of older memory servers count.

    Raises:
        SetupError: an unknown key, a mistyped variable or an invalid value; the message names the key, its source and
            the valid values.
    """
    environ = os.environ if environ is None else environ
    flat_values: dict[tuple[str, ...], Any] = {}
    sources: dict[tuple[str, ...], str] = {}
    values: dict[str, Any] = {}

    def set_value(path: tuple[str, ...], value: Any, where: str) -> None:
        target = values
        for part in path[:-1]:
            target = target.setdefault(part, {})
        target[path[-1]] = flat_values[path] = value
        sources[path] = where

    source = file if isinstance(file, SettingsFile) else _settings_file(file, environ)
    from_file = entries(source) if source else {}
    file_path = source.path if source and from_file else None
    for path, value in from_file.items():
        set_value(path, value, f"{file_path}: {'.'.join(path)}")
    fields = keys()
    names = {PREFIX + "_".join(path).upper(): path for path in fields}
    unknown_names: list[str] = []
    for name, text in environ.items():
        if not name.startswith(PREFIX) or name.startswith(_NOT_SETTINGS):
            continue
        if name not in names:
            if close := _similar_variable(name, list(names)):
                raise SetupError(f"environment: unknown setting {name}; did you mean {close!r}?")
            unknown_names.append(name)
            continue
        set_value(names[name], _parse(text, fields[names[name]].annotation), f"environment: {name}")
    for dotted, value in (flags or {}).items():
        if value is not None:
            path_ = tuple(dotted.split("."))
            set_value(path_, value, "--" + path_[-1].replace("_", "-"))
    legacy = legacy_env.NOTHING
    if inherit:
        account, in_container = legacy_env.account_name(), legacy_env.within_container()
        legacy = legacy_env.inherit(environ, flat_values, account=account, in_container=in_container)
        for key, (value, name) in legacy.values.items():
            set_value(key, value, f"environment: {name}")
    try:
        settings = Settings.model_validate(values)
        settings._inherited = legacy
        settings._unknown = tuple(unknown_names)
        settings._sources = sources
        settings._file = file_path
        return settings
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = tuple(str(part) for part in first["loc"])
        at = next((sources[where[:n]] for n in range(len(where), 0, -1) if where[:n] in sources), ".".join(where))
        raise SetupError(f"{at}: {first['msg'].removeprefix('Value error, ')}") from None


def environment() -> Mapping[str, str]:
    """The environment of this process. Used to read keys that a configuration names by variable, and for children."""
    return os.environ


def client_key(environ: Mapping[str, str] | None = None) -> str | None:
    """The key with which commands call a service, from `OPENMEMORY_API_KEY`. It is not a setting of the service."""
    return (os.environ if environ is None else environ).get(_CLIENT_KEY) or None


def source_key() -> str | None:
    """The key of a Qdrant server that memories are imported from (`QDRANT_API_KEY`), never of the server in use."""
    return os.environ.get("QDRANT_API_KEY") or None


def _settings_file(file: Path | None, environ: Mapping[str, str]) -> SettingsFile | None:
    file = file or named_file(environ=environ)
    return None if file is None else read_settings_file(file)


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


def _similar_variable(name: str, names: list[str]) -> str | None:
    """Returns the variable of a setting that has a similar name. The common prefix would make every name look alike."""
    import difflib

    matches = difflib.get_close_matches(
        name.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in names], 1, 0.75
    )
    return PREFIX + matches[0] if matches else None


def _nearest(name: str, names: list[str]) -> str:
    import difflib

    matches = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {matches[0]!r}?" if matches else f"; valid ones are {', '.join(sorted(names)[:8])} …"
