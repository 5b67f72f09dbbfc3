"""Reads the environment variables of the old OpenMemory and of Pimemento: which have an effect, and which are obsolete.

They have the lowest precedence, below openmemory.toml, `OPENMEMORY_*` and flags. Many machines set some of them for
other purposes, so each is used only where its meaning is unambiguous. Pure. The value of a variable is never repeated,
because it may be a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

SWITCH = "OPENMEMORY_INHERIT"
"""If this variable is `off`, all of them are ignored. For shells whose variables belong to something else."""

Path_ = tuple[str, ...]

_VECTORS = "vectors are in Qdrant, built in or at OPENMEMORY_QDRANT_URL, and are made anew from PostgreSQL"
_MODEL = "the packaged model is used, unless OPENMEMORY_EMBEDDER_PROVIDER chooses another one"
_STORE = "memories are in PostgreSQL, built in or at OPENMEMORY_DATABASE_URL"
_PAGE = "it was built into the old web page, which goes on using its own"

OBSOLETE = {
    "API_KEY": "the old server took no notice of it; a key of this service is OPENMEMORY_ACCESS_API_KEY",
    **dict.fromkeys(
        (
            "CHROMA_HOST", "CHROMA_PORT", "WEAVIATE_CLUSTER_URL", "WEAVIATE_HOST", "WEAVIATE_PORT", "REDIS_URL",
            "PG_HOST", "PG_PORT", "PG_DB", "PG_USER", "PG_PASSWORD", "MILVUS_HOST", "MILVUS_PORT", "MILVUS_TOKEN",
            "MILVUS_DB_NAME", "ELASTICSEARCH_HOST", "ELASTICSEARCH_PORT", "ELASTICSEARCH_USER",
            "ELASTICSEARCH_PASSWORD", "OPENSEARCH_HOST", "OPENSEARCH_PORT", "FAISS_PATH",
        ),
        _VECTORS,
    ),
    **dict.fromkeys(("EMBEDDING_PROVIDER", "EMBEDDING_MODEL", "EMBEDDING_DIMENSIONS"), _MODEL),
    **dict.fromkeys(("MEMORY_BACKEND", "MEMORY_DIR"), _STORE),
    "MAX_ENTRIES_PER_CLIENT": "no entry is dropped; archive policies (openmemory policies) archive what is old",
    "NEXT_PUBLIC_API_URL": _PAGE,
    "NEXT_PUBLIC_USER_ID": f"{_PAGE}; the user when a request names none is OPENMEMORY_ACCESS_DEFAULT_USER",
}  # fmt: skip
"""Variables that have no meaning any more, and what to use instead."""

_PIMEMENTO: dict[str, Path_] = {
    "MEMORY_HOST": ("host",),
    "MEMORY_PORT": ("port",),
    "MEMORY_AUTH_TOKEN": ("access", "api_key"),
    "MAX_CONTENT_LEN": ("mcp", "max_content"),
    "SAVE_RATE_LIMIT": ("rates", "saves"),
    "SAVE_RATE_WINDOW": ("rates", "window"),
    "SEMANTIC_DEDUP_THRESHOLD": ("dedup", "min_similarity"),
}
"""Variables of Pimemento that are settings of this service under another name."""

_OLLAMA_PORT = 11434
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "0.0.0.0")  # noqa: S104 - compared with, not listened on
_DOCKER_HOST = "host.docker.internal"
_DEFAULT_LLMS = ("openai", "ollama")
_OLLAMA_ADDRESSES = ("OLLAMA_BASE_URL", "OLLAMA_HOST")
_OLLAMA_MODELS = {"embedder": "nomic-embed-text", "llm": "llama3.1:latest"}


@dataclass(frozen=True, slots=True)
class LegacySettings:
    """The result: settings by path, each with the variable that it comes from, and the variables that have an effect
    or none, each with its meaning."""

    values: Mapping[Path_, tuple[str, str]] = field(default_factory=dict, repr=False)
    used: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """The lines that are logged at startup."""
        lines = []
        for effect, notes in (("in use", self.used), ("without effect", self.ignored)):
            if notes:
                variables = "; ".join(f"{name} ({meaning})" for name, meaning in notes.items())
                lines.append(f"variables of older memory servers {effect}: {variables}")
        if lines:
            lines.append(f"{SWITCH}=off leaves all of them aside; `openmemory config` shows what is in force")
        return lines


NOTHING = LegacySettings()


def inherit(
    environ: Mapping[str, str], settings: Mapping[Path_, object], *, account: str | None, in_container: bool
) -> LegacySettings:
    """Read the variables. `settings` are those that other sources already define; `account` is the name of the
    account that runs this process.

    An empty variable counts as unset, because Compose passes unset variables on as empty.
    """
    if environ.get(SWITCH, "").strip().lower() in ("off", "0", "no", "false"):
        return NOTHING
    reading = _Reading(
        {name: value.strip() for name, value in environ.items() if value.strip()}, settings, in_container
    )
    reading.user(account)
    reading.database()
    reading.qdrant()
    reading.pimemento()
    providers = {reading.model("embedder"), reading.model("llm")}
    reading.openai_key()
    if "ollama" not in providers:
        reading.ignore("no model is asked of Ollama; EMBEDDER_PROVIDER=ollama chooses one", *_OLLAMA_ADDRESSES)
    for name, advice in OBSOLETE.items():
        reading.ignore(advice, name)
    return LegacySettings(reading.values, reading.used, reading.ignored)


class _Reading:
    """Collects the settings and notes."""

    def __init__(self, environ: Mapping[str, str], settings: Mapping[Path_, object], in_container: bool) -> None:
        self._environ = environ
        self._settings = settings
        self._in_container = in_container
        self.values: dict[Path_, tuple[str, str]] = {}
        self.used: dict[str, str] = {}
        self.ignored: dict[str, str] = {}

    def user(self, account: str | None) -> None:
        """Login shells set USER to the account's own name, so only a different name is the user of OpenMemory."""
        name = self._environ.get("USER")
        if name is not None and name != account and len(name) <= 256:
            self._use(("access", "default_user"), name, "USER", about=": the user when a request names none")

    def database(self) -> None:
        """Accepts PostgreSQL addresses only. Before any write, the server is checked for tables of something else."""
        url = self._environ.get("DATABASE_URL", "")
        if re.match(r"postgres(ql)?(\+\w+)?://", url):
            self._use(("database", "url"), url, "DATABASE_URL")
        elif url.startswith("sqlite"):
            advice = "memories are in PostgreSQL; take over the old file with `openmemory import openmemory FILE`"
            self.ignore(advice, "DATABASE_URL")
        else:
            self.ignore("only a postgresql:// address is taken", "DATABASE_URL")

    def qdrant(self) -> None:
        """A Qdrant server, by its URL or by host and port."""
        url, host = self._environ.get("QDRANT_URL"), self._environ.get("QDRANT_HOST")
        if url is not None and re.match(r"https?://.", url):
            self._use(("qdrant", "url"), url, "QDRANT_URL")
            self.ignore("QDRANT_URL says where Qdrant is", "QDRANT_HOST", "QDRANT_PORT")
            return
        self.ignore("it must begin with http:// or https://", "QDRANT_URL")
        address = f"{host}:{self._environ.get('QDRANT_PORT', '6333')}"
        if host is None:
            self.ignore("it has a meaning only with QDRANT_HOST", "QDRANT_PORT")
        elif re.fullmatch(r"[A-Za-z0-9_.-]+:[0-9]{1,5}", address):
            self._use(("qdrant", "url"), f"http://{address}", "QDRANT_HOST", "QDRANT_PORT")
        else:
            advice = "the two make no address; set OPENMEMORY_QDRANT_URL, such as http://host:6333"
            self.ignore(advice, "QDRANT_HOST", "QDRANT_PORT")

    def pimemento(self) -> None:
        """The variables of Pimemento that have a setting of their own here."""
        for name, path in _PIMEMENTO.items():
            if (value := self._environ.get(name)) is not None:
                self._use(path, value, name)

    def model(self, part: str) -> str:
        """Read one of the two models and return its provider. Unless a provider is chosen, no provider is called."""
        names = {
            setting: f"{part.upper()}_{setting.upper()}" for setting in ("provider", "model", "api_key", "base_url")
        }
        ours = next((".".join(path) for path in self._settings if path[0] == part and path[-1] in names), None)
        if ours is not None:
            self.ignore(f"{ours} is set", *names.values())
            return self._value(part, "provider")
        provider = self._environ.get(names["provider"], "").lower()
        if not provider:
            instead = "the packaged model is used" if part == "embedder" else "no language model is chosen"
            self.ignore(f"it has a meaning only with {names['provider']}; {instead}", *names.values())
            return ""
        if part == "llm" and provider not in _DEFAULT_LLMS and names["model"] not in self._environ:
            self.ignore(f"{names['provider']} needs {names['model']} beside it", *names.values())
            return ""
        for setting, name in names.items():
            if (value := self._environ.get(name)) is not None:
                value = provider if setting == "provider" else value
                if setting == "base_url" and provider == "ollama":
                    value = self._reachable(value)
                self._use((part, setting), value, name)
        if provider == "ollama":
            self._ollama(part)
        elif part == "llm" and provider == "openai" and "LLM_MODEL" not in self._environ:
            self.values["llm", "model"] = ("gpt-4o-mini", "LLM_PROVIDER")
        return provider

    def openai_key(self) -> None:
        """The key alone sends nothing to OpenAI: one of its models must be chosen, at OpenAI's own address."""
        if (key := self._environ.get("OPENAI_API_KEY")) is None:
            return
        for part in ("embedder", "llm"):
            elsewhere = self._value(part, "base_url") or self._value(part, "api_key")
            if self._value(part, "provider") == "openai" and not elsewhere:
                self._record((part, "api_key"), key, "OPENAI_API_KEY")
        advice = "nothing is sent to OpenAI unless its model is chosen, as by EMBEDDER_PROVIDER=openai"
        self.ignore(advice, "OPENAI_API_KEY")

    def ignore(self, why: str, *names: str) -> None:
        """Record those of the variables that are set but have no effect."""
        for name in names:
            if name in self._environ and name not in self.used:
                self.ignored.setdefault(name, why)

    def _ollama(self, part: str) -> None:
        self.values.setdefault((part, "model"), (_OLLAMA_MODELS[part], f"{part.upper()}_PROVIDER"))
        if (part, "base_url") in self.values:
            return
        if (name := next((one for one in _OLLAMA_ADDRESSES if one in self._environ), None)) is not None:
            self._use((part, "base_url"), self._reachable(self._environ[name]), name)
        elif self._in_container:
            self.values[part, "base_url"] = (self._reachable("localhost"), f"{part.upper()}_PROVIDER")

    def _reachable(self, address: str) -> str:
        """Returns the full address of Ollama. Inside a container, localhost is not the host that runs Ollama."""
        parts = urlsplit(address if "://" in address else f"http://{address}")
        host = parts.hostname or "localhost"
        if host in _LOCAL_HOSTS:
            host = _DOCKER_HOST if self._in_container else "localhost"
        host_part = f"[{host}]" if ":" in host else host
        number = parts.port or (_OLLAMA_PORT if parts.scheme == "http" else None)
        return f"{parts.scheme}://{host_part}{f':{number}' if number else ''}{parts.path.rstrip('/')}"

    def _value(self, part: str, setting: str) -> str:
        value = self._settings.get((part, setting))
        return self.values.get((part, setting), ("", ""))[0] if value is None else str(value)

    def _use(self, path: Path_, value: str, *names: str, about: str = "") -> None:
        """Use a value, made of these variables, unless another source sets it."""
        if path in self._settings:
            self.ignore(f"{'.'.join(path)} is set", *names)
        else:
            self._record(path, value, *names, about=about)

    def _record(self, path: Path_, value: str, *names: str, about: str = "") -> None:
        self.values[path] = (value, names[0])
        for name in names:
            if name in self._environ:
                prefix = f"{self.used[name]}, " if name in self.used else ""
                self.used[name] = f"{prefix}{'.'.join(path)}{about}"


def account_name() -> str | None:
    """Returns the name of the account that runs this process; None if it has none, as in some containers."""
    try:
        import pwd

        return pwd.getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError, AttributeError):
        return None


def within_container() -> bool:
    """Returns True if this process runs in a Docker or Podman container."""
    return Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()
