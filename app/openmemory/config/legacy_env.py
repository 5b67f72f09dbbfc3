"""Reads the environment variables of the old OpenMemory: which ones still have an effect, and which are obsolete.

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
    "NEXT_PUBLIC_API_URL": _PAGE,
    "NEXT_PUBLIC_USER_ID": f"{_PAGE}; the user when a request names none is OPENMEMORY_ACCESS_DEFAULT_USER",
}  # fmt: skip
"""Variables that have no meaning any more, and what to use instead."""

_OLLAMA_PORT = 11434
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "0.0.0.0")  # noqa: S104 - compared with, not listened on
_DOCKER_HOST = "host.docker.internal"
_DEFAULT_LLMS = ("openai", "ollama")
_OLLAMA_MODELS = {"embedder": "nomic-embed-text", "llm": "llama3.1:latest"}


@dataclass(frozen=True, slots=True)
class VariableNote:
    """A variable and how it was treated."""

    name: str
    meaning: str

    def __str__(self) -> str:
        return f"{self.name} ({self.meaning})"


@dataclass(frozen=True, slots=True)
class LegacySettings:
    """The result: settings by path, each with the variable that it comes from, and notes for the user."""

    values: Mapping[Path_, tuple[str, str]] = field(default_factory=dict, repr=False)
    used: tuple[VariableNote, ...] = ()
    ignored: tuple[VariableNote, ...] = ()

    def lines(self) -> list[str]:
        """The lines that are logged at startup."""
        found = []
        if self.used:
            found.append(f"variables of the old OpenMemory in use: {'; '.join(map(str, self.used))}")
        if self.ignored:
            found.append(f"variables of the old OpenMemory without effect: {'; '.join(map(str, self.ignored))}")
        if found:
            found.append(f"{SWITCH}=off leaves all of them aside; `openmemory config` shows what is in force")
        return found


NOTHING = LegacySettings()


def inherit(
    environ: Mapping[str, str], given: Mapping[Path_, object], *, account: str | None, in_container: bool
) -> LegacySettings:
    """Read the variables. `given` are the settings that other sources already define; `account` is the name of the
    account that runs this process.

    An empty variable counts as unset, because Compose passes unset variables on as empty.
    """
    if environ.get(SWITCH, "").strip().lower() in ("off", "0", "no", "false"):
        return NOTHING
    reading = _Reading({name: value.strip() for name, value in environ.items() if value.strip()}, given, in_container)
    reading.user(account)
    reading.database()
    reading.qdrant()
    chosen = {reading.model("embedder"), reading.model("llm")}
    reading.openai_key()
    if "ollama" not in chosen:
        for name in ("OLLAMA_BASE_URL", "OLLAMA_HOST"):
            reading.ignore(name, "no model is asked of Ollama; EMBEDDER_PROVIDER=ollama chooses one")
    for name, advice in OBSOLETE.items():
        reading.ignore(name, advice)
    return LegacySettings(reading.values, tuple(reading.used.values()), tuple(reading.ignored.values()))


class _Reading:
    """Collects the settings and notes found so far."""

    def __init__(self, environ: Mapping[str, str], given: Mapping[Path_, object], in_container: bool) -> None:
        self._environ = environ
        self._given = given
        self._in_container = in_container
        self.values: dict[Path_, tuple[str, str]] = {}
        self.used: dict[str, VariableNote] = {}
        self.ignored: dict[str, VariableNote] = {}

    def user(self, account: str | None) -> None:
        """Login shells set USER to the account's own name, so only a different name is meant for OpenMemory."""
        name = self._environ.get("USER")
        if name is None or name == account or len(name) > 256:
            return
        self._take("USER", ("access", "default_user"), name, "access.default_user: the user when a request names none")

    def database(self) -> None:
        """Accepts PostgreSQL addresses only. Before any write, the server is checked for tables of something else."""
        url = self._environ.get("DATABASE_URL")
        if url is None:
            return
        if re.match(r"postgres(ql)?(\+\w+)?://", url):
            self._take("DATABASE_URL", ("database", "url"), url, "database.url")
        elif url.startswith("sqlite"):
            self.ignore(
                "DATABASE_URL",
                "memories are in PostgreSQL; take over the old file with `openmemory import openmemory FILE`",
            )
        else:
            self.ignore("DATABASE_URL", "only a postgresql:// address is taken")

    def qdrant(self) -> None:
        """A Qdrant server, by its URL or by host and port."""
        url, host, port = (self._environ.get(name) for name in ("QDRANT_URL", "QDRANT_HOST", "QDRANT_PORT"))
        if url is not None and re.match(r"https?://.", url):
            self._take("QDRANT_URL", ("qdrant", "url"), url, "qdrant.url")
            self.ignore("QDRANT_HOST", "QDRANT_URL says where Qdrant is")
            self.ignore("QDRANT_PORT", "QDRANT_URL says where Qdrant is")
            return
        self.ignore("QDRANT_URL", "it must begin with http:// or https://")
        number = port or "6333"
        if host is None:
            self.ignore("QDRANT_PORT", "it has a meaning only with QDRANT_HOST")
        elif not re.fullmatch(r"[A-Za-z0-9_.-]+", host) or not re.fullmatch(r"[0-9]{1,5}", number):
            for name in ("QDRANT_HOST", "QDRANT_PORT"):
                self.ignore(name, "the two make no address; set OPENMEMORY_QDRANT_URL, such as http://host:6333")
        elif self._take("QDRANT_HOST", ("qdrant", "url"), f"http://{host}:{number}", "qdrant.url"):
            if port is not None:
                self.used["QDRANT_PORT"] = VariableNote("QDRANT_PORT", "qdrant.url")
        else:
            self.ignore("QDRANT_PORT", "qdrant.url is set")

    def model(self, part: str) -> str:
        """Read one of the two models and return its provider. Unless a provider is chosen, no provider is called."""
        names = {
            setting: f"{part.upper()}_{setting.upper()}" for setting in ("provider", "model", "api_key", "base_url")
        }
        ours = next((".".join(path) for path in self._given if path[0] == part and path[-1] in names), None)
        if ours is not None:
            for name in names.values():
                self.ignore(name, f"{ours} is set")
            return str(self._given.get((part, "provider"), ""))
        provider = self._environ.get(names["provider"], "").lower()
        if not provider:
            instead = "the packaged model is used" if part == "embedder" else "no language model is chosen"
            for name in names.values():
                self.ignore(name, f"it has a meaning only with {names['provider']}; {instead}")
            return ""
        if part == "llm" and provider not in _DEFAULT_LLMS and names["model"] not in self._environ:
            for name in names.values():
                self.ignore(name, f"{names['provider']} needs {names['model']} beside it")
            return ""
        for setting, name in names.items():
            if (value := self._environ.get(name)) is not None:
                value = provider if setting == "provider" else value
                if setting == "base_url" and provider == "ollama":
                    value = self._reachable(value)
                self._take(name, (part, setting), value, f"{part}.{setting}")
        if provider == "ollama":
            self._ollama(part)
        elif part == "llm" and provider == "openai" and "LLM_MODEL" not in self._environ:
            self.values["llm", "model"] = ("gpt-4o-mini", "LLM_PROVIDER")
        return provider

    def openai_key(self) -> None:
        """The key alone sends nothing to OpenAI: one of its models must be chosen, at OpenAI's own address."""
        users = []
        for part in ("embedder", "llm"):
            provider, address = self._said(part, "provider"), self._said(part, "base_url")
            if provider == "openai" and not address and not self._said(part, "api_key"):
                users.append(f"{part}.api_key")
                if "OPENAI_API_KEY" in self._environ:
                    self.values[part, "api_key"] = (self._environ["OPENAI_API_KEY"], "OPENAI_API_KEY")
        if "OPENAI_API_KEY" not in self._environ:
            return
        if users:
            self.used["OPENAI_API_KEY"] = VariableNote("OPENAI_API_KEY", ", ".join(users))
        else:
            self.ignore(
                "OPENAI_API_KEY", "nothing is sent to OpenAI unless its model is chosen, as by EMBEDDER_PROVIDER=openai"
            )

    def ignore(self, name: str, why: str) -> None:
        """Record a variable that is set but has no effect."""
        if name in self._environ and name not in self.used:
            self.ignored.setdefault(name, VariableNote(name, why))

    def _ollama(self, part: str) -> None:
        self.values.setdefault((part, "model"), (_OLLAMA_MODELS[part], f"{part.upper()}_PROVIDER"))
        if (part, "base_url") in self.values:
            return
        for name in ("OLLAMA_BASE_URL", "OLLAMA_HOST"):
            if (value := self._environ.get(name)) is not None:
                self._take(name, (part, "base_url"), self._reachable(value), f"{part}.base_url")
                return
        if self._in_container:
            self.values[part, "base_url"] = (self._reachable("localhost"), f"{part.upper()}_PROVIDER")

    def _reachable(self, address: str) -> str:
        """Returns the full address of Ollama. Inside a container, localhost is not the host that runs Ollama."""
        parts = urlsplit(address if "://" in address else f"http://{address}")
        host, port = parts.hostname or "localhost", parts.port
        if host in _LOCAL_HOSTS:
            host = _DOCKER_HOST if self._in_container else "localhost"
        bracketed = f"[{host}]" if ":" in host else host
        default = _OLLAMA_PORT if parts.scheme == "http" else None
        number = port or default
        return f"{parts.scheme}://{bracketed}{f':{number}' if number else ''}{parts.path.rstrip('/')}"

    def _said(self, part: str, setting: str) -> str:
        if (part, setting) in self._given:
            value = self._given[part, setting]
            secret = getattr(value, "get_secret_value", None)
            return str(secret() if secret else value)
        return self.values.get((part, setting), ("", ""))[0]

    def _take(self, name: str, path: Path_, value: str, meaning: str) -> bool:
        if path in self._given:
            self.ignore(name, f"{'.'.join(path)} is set")
            return False
        self.values[path] = (value, name)
        self.used[name] = VariableNote(
            name, f"{known.meaning}, {meaning}" if (known := self.used.get(name)) else meaning
        )
        return True


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
