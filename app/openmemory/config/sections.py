"""The base class of all settings sections, and the sections that are long or concern connections and trust."""

from __future__ import annotations

import base64
import ipaddress
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from openmemory.config import key_strength
from openmemory.config.addresses import Allowed, is_loopback, web_url
from openmemory.serialization.zones import UTC_ZONE, machine_zone, zone_named, zone_or_none


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def network(text: str) -> str:
    """Returns the text unchanged if it is an IP address or a network.

    Raises:
        ValueError: it is neither.
    """
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"{text!r} must be an IP address or a network such as 10.0.0.0/8") from None
    return text


def origin(text: str) -> str:
    """Returns the text unchanged if it is a web origin as browsers send it, or '*'.

    Raises:
        ValueError: it is neither.
    """
    if text != "*" and not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#@\s]+/?", text):
        raise ValueError(f"{text!r} must be an origin such as https://example.com, or '*'")
    if (ports := _PORTS.fullmatch(text)) and not int(ports[2]) <= int(ports[3]) <= 65_535:
        raise ValueError(f"{text!r} must have a range of ports such as http://localhost:3000-3010")
    return text


_PORTS = re.compile(r"([^:/?#@\s]+://[^/?#@\s]+:)([0-9]{1,5})-([0-9]{1,5})/?")


def origins(text: str) -> list[str]:
    """Expands a configured origin to the form browsers send: itself, or one origin for each port of its range."""
    if ports := _PORTS.fullmatch(text):
        return [f"{ports[1].lower()}{port}" for port in range(int(ports[2]), int(ports[3]) + 1)]
    return [text.rstrip("/").lower()]


ASYMMETRIC = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)  # fmt: skip


class HttpSettings(Section):
    """HTTP: accepted hosts, origins and proxies, and time limits for clients."""

    allowed_hosts: tuple[str, ...] = Field((), description="Accepted Host headers besides localhost; '*' accepts any.")
    cors_origins: tuple[Annotated[str, AfterValidator(origin)], ...] = Field(
        ("http://localhost:3000-3010", "http://127.0.0.1:3000-3010"),
        description="Origins of web pages that may call the API, with a port or a range of ports. Origins that you set "
        "may use the cookie of a signed-in browser; the default origins must send a key if one is required.",
    )
    trusted_proxies: tuple[Annotated[str, AfterValidator(network)], ...] = Field(
        (),
        description="Addresses or networks of proxies whose X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Prefix "
        "are trusted.",
    )
    header_timeout: float = Field(
        10.0, gt=0, le=600, description="Maximum seconds until the headers of a request are complete."
    )
    body_timeout: float = Field(
        60.0,
        gt=0,
        le=3600,
        description="Maximum seconds for the body of a request, plus one second for each KiB received.",
    )
    write_timeout: float = Field(
        60.0, gt=0, le=3600, description="Seconds after which a client that does not read its response is disconnected."
    )

    @property
    def named_origins(self) -> tuple[str, ...]:
        """The origins that the configuration sets explicitly. The default origins belong to the retired server's web
        page, or to whatever else this machine serves on those ports."""
        return self.cors_origins if "cors_origins" in self.model_fields_set else ()


class EmbedderSettings(Section):
    """The model that turns texts into vectors."""

    provider: str = Field(
        "local",
        min_length=1,
        description="local (the packaged MiniLM), or an embedder of mem0: openai, ollama, huggingface ...",
    )
    model: str = Field("", description="The provider's model; empty: its default.")
    api_key: SecretStr = Field(SecretStr(""), description="The provider's API key, if it requires one.")
    base_url: str = Field("", description="The provider's address, for OpenAI-compatible servers and Ollama.")
    dimensions: int = Field(
        0, ge=0, le=65_536, description="Number of dimensions to request from the provider; 0: its default."
    )
    timeout: float = Field(
        10.0,
        gt=0,
        le=600,
        description="Seconds that a search waits for the embedding before it continues with text search alone.",
    )
    threads: int = Field(1, ge=1, le=64, description="Number of threads of the packaged model.")


class SearchSettings(Section):
    """Search: how results are found and ranked."""

    limit: int = Field(10, ge=1, le=1000, description="Number of results if the request sets no limit.")
    max_limit: int = Field(100, ge=1, le=1000, description="Maximum limit of a request.")
    floor: Literal["auto"] | Annotated[float, Field(ge=-1, le=1)] = Field(
        "auto",
        description="Minimum cosine similarity (-1 to 1) of a memory that contains no word of the query. auto: 0.2 for "
        "the packaged model, none for other models, whose scales differ.",
    )
    write_wait: float = Field(
        0.3,
        ge=0,
        le=10,
        description="Maximum seconds that a search waits until what the user has just written is in the vector index.",
    )
    recency: float = Field(
        0.0,
        ge=0,
        le=36_500,
        description="Half-life, in days, of what recency adds to a score: at most 0.1. 0: recency adds nothing.",
    )
    late_interaction: bool = Field(
        True,
        description="Compare the tokens of the query with those of the best memories, with the packaged model. Each "
        "significant token takes 48 bytes in the database. false: tokens are neither stored nor compared.",
    )
    language: str = Field(
        "english",
        min_length=1,
        description="Language of memories and queries: a text search configuration of PostgreSQL, such as german, or "
        "simple for several languages. After a change, the words of all memories are computed again in the background.",
    )


class AccessSettings(Section):
    """Access: who may read and write."""

    default: Literal["user", "own_app"] = Field(
        "user", description="user: an app reads all active memories of its user; own_app: only those that it wrote."
    )
    require: Literal["auto", "always"] = Field(
        "auto",
        description="auto: no credential on loopback, unless api_key, oauth or a name in allowed_hosts is set.",
    )
    api_key: SecretStr = Field(
        SecretStr(""),
        description="An administrator's key, as an alternative to `openmemory keys create`: 20 characters or more that "
        "cannot be guessed, such as the output of `openssl rand -hex 32`.",
    )
    default_user: str = Field(
        "default_user",
        min_length=1,
        max_length=256,
        description="The user of a request or command that names none, unless its key is for one user.",
    )
    default_app: str = Field(
        "openmemory",
        min_length=1,
        max_length=256,
        description="The app of a request that names none, unless an MCP client gives its own name.",
    )

    default_timezone: str = Field(
        "auto",
        description="IANA name of the time zone, such as Europe/Berlin, of users who saved none and requests that name "
        "none. auto: this machine's, or UTC.",
    )

    @field_validator("api_key")
    @classmethod
    def _nobody_guesses_it(cls, value: SecretStr) -> SecretStr:
        key_strength.checked(value.get_secret_value())
        return value

    @field_validator("default_timezone")
    @classmethod
    def _zone_exists(cls, value: str) -> str:
        if value != "auto" and zone_or_none(value) is None:
            raise ValueError("must be auto, or the IANA name of a time zone, such as Europe/Berlin")
        return value

    @property
    def timezone(self) -> ZoneInfo:
        """The time zone of `default_timezone`."""
        return (machine_zone() or UTC_ZONE) if self.default_timezone == "auto" else zone_named(self.default_timezone)


class OAuthSettings(Section):
    """Access tokens of an OAuth 2.1 authorization server. Without an issuer none are accepted."""

    issuer: str = Field(
        "", description="The authorization server, exactly as in the `iss` claim of its tokens; empty: OAuth is off."
    )
    resource: str = Field(
        "", description="Public base URL of this service, such as https://memory.example.com; required with issuer."
    )
    audience: tuple[str, ...] = Field(
        (), description="Accepted audiences of tokens; empty: resource, and the URLs below it that MCP clients use."
    )
    jwks_url: str = Field("", description="URL of the issuer's keys; empty: the one in its metadata.")
    algorithms: tuple[str, ...] = Field(
        ("RS256", "PS256", "ES256", "ES384", "EdDSA"), min_length=1, description="Accepted signature algorithms."
    )
    leeway: int = Field(60, ge=0, le=600, description="Seconds by which the issuer's clock may differ from ours.")
    user_claim: str = Field("sub", min_length=1, description="The claim that names the user.")
    app_claim: str = Field(
        "client_id",
        min_length=1,
        description="The claim that names the client, which is the app; azp is used if it is absent.",
    )
    scope_prefix: str = Field(
        "",
        pattern=r"^[\x21\x23-\x5b\x5d-\x7e]*$",
        description="Prefix of read, write and admin in the issuer's scopes, such as 'memory:'.",
    )
    admins: tuple[str, ...] = Field((), description="Users whose tokens may have the admin scope.")
    owner_clients: tuple[str, ...] = Field(
        (),
        description="Client ids that act as the user, besides client_id; every other client is limited to its app.",
    )
    client_id: str = Field(
        "",
        pattern=r"^[\x20-\x7e]*$",
        description="The page's client id at the issuer, with which people sign in there; empty: with keys only.",
    )
    client_secret: SecretStr = Field(
        SecretStr(""), description="The secret of client_id; empty: it is registered as a public client."
    )

    @property
    def scopes(self) -> list[str]:
        """The scopes that clients may request, as the issuer names them."""
        return [self.scope_prefix + scope for scope in ("read", "write", *(["admin"] if self.admins else []))]

    @field_validator("issuer")
    @classmethod
    def _issuer_is_safe(cls, value: str) -> str:
        if value and web_url(value).startswith("http://") and not is_loopback(urlsplit(value).hostname or ""):
            raise ValueError("must begin with https://; http:// is accepted only on loopback")
        return value

    @field_validator("resource")
    @classmethod
    def _resource_goes_with_issuer(cls, value: str, info: ValidationInfo) -> str:
        if bool(value) != bool(info.data.get("issuer", value)):
            raise ValueError("must be empty without oauth.issuer" if value else "is required with oauth.issuer")
        return web_url(value).rstrip("/") if value else value

    @field_validator("client_id")
    @classmethod
    def _client_goes_with_issuer(cls, value: str, info: ValidationInfo) -> str:
        if value and not info.data.get("issuer", value):
            raise ValueError("must be empty without oauth.issuer")
        return value

    @field_validator("client_secret")
    @classmethod
    def _secret_goes_with_client(cls, value: SecretStr, info: ValidationInfo) -> SecretStr:
        if value.get_secret_value() and not info.data.get("client_id", value):
            raise ValueError("must be empty without oauth.client_id")
        return value

    @field_validator("jwks_url")
    @classmethod
    def _keys_are_on_the_web(cls, value: str) -> str:
        return web_url(value, base=False) if value else value

    @field_validator("algorithms")
    @classmethod
    def _signatures_need_no_secret(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if strange := [name for name in value if name not in ASYMMETRIC]:
            raise ValueError(f"{strange[0]!r} must be one of {', '.join(sorted(ASYMMETRIC))}")
        return value


class RerankerSettings(Section):
    """A second stage of search that reranks the best results. Without a provider there is none."""

    provider: Literal["none", "cohere", "tei"] = Field(
        "none",
        description="cohere: the /rerank of Cohere, Jina, vLLM, llama.cpp, LocalAI; tei: of Text Embeddings Inference.",
    )
    base_url: str = Field(
        "",
        description="Base URL of the server without /rerank, such as https://api.jina.ai/v1; required with it.",
    )
    model: str = Field("", description="The server's model, if it has several.")
    api_key: SecretStr = Field(SecretStr(""), description="The server's API key, if it requires one.")
    top_n: int = Field(20, ge=1, le=100, description="Number of results of the first stage to rerank.")
    weight: float = Field(
        0.7,
        gt=0,
        le=1,
        description="Weight of the reranker in a score; 1: the first stage only selects the candidates.",
    )
    timeout: float = Field(
        2.0,
        gt=0,
        le=60,
        description="Seconds that a search waits for the reranker before it keeps the order of the first stage.",
    )

    @field_validator("base_url")
    @classmethod
    def _address_goes_with_provider(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("provider", "none") != "none" and not value:
            raise ValueError("is required with reranker.provider")
        return web_url(value) if value else value


class CaptureSettings(Section):
    """Texts that must not be stored as they are, and how facts are extracted from others."""

    secrets: Literal["refuse", "redact", "store"] = Field(
        "refuse",
        description="Memories with keys, tokens or passwords: refuse them, redact: store the rest, or store them."
        " Placeholders such as `your-api-key` do not count.",
    )
    injection: Literal["label", "refuse", "store"] = Field(
        "label",
        description="Memories that look like prompt injection: label them as data, refuse, or only store them.",
    )
    emotion: bool = Field(
        False,
        description="Let the language model record the user's emotion about a memory in metadata.emotion: valence "
        "(-1 to 1), arousal (0 to 1) and a label.",
    )
    wait: float = Field(
        60.0,
        ge=0,
        le=600,
        description="Seconds that a request waits for the language model, which continues in the background.",
    )
    repeat: int = Field(
        600, ge=0, le=86_400, description="Seconds within which the same text of the same app gets the earlier result."
    )
    keep: int = Field(
        30,
        ge=1,
        le=36_500,
        description="Days that the results of the language model are kept, so that they can be undone.",
    )


class DocumentSettings(Section):
    """Documents that are stored: their originals."""

    keep: bool = Field(True, description="Keep the originals of documents, unless a request says otherwise.")
    store: str = Field(
        "",
        description="Where the originals are: a folder, or a bucket of S3 such as s3://bucket/prefix; empty: objects in"
        " the data folder.",
    )
    s3_endpoint: str = Field(
        "", description="Address of a server that speaks S3, such as http://localhost:9000; empty: Amazon."
    )
    s3_region: str = Field("us-east-1", description="Region of the bucket.")
    s3_access_key: str = Field("", description="Access key of the bucket.")
    s3_secret_key: SecretStr = Field(SecretStr(""), description="Secret key that belongs to s3_access_key.")
    key: SecretStr = Field(
        SecretStr(""),
        description="Encrypts the keys of the originals: 32 bytes in base64; empty: objects.key in the data folder.",
    )

    @field_validator("key")
    @classmethod
    def _of_32_bytes(cls, key: SecretStr) -> SecretStr:
        if (text := key.get_secret_value()) and len(_base64(text)) != 32:
            raise ValueError("must be 32 bytes in base64, as `openssl rand -base64 32` prints them")
        return key

    @model_validator(mode="after")
    def _bucket_has_keys(self) -> DocumentSettings:
        if self.bucket is None:
            return self
        if not self.bucket[0]:
            raise ValueError("store: must name a bucket, such as s3://bucket/prefix")
        if not (self.s3_access_key and self.s3_secret_key.get_secret_value()):
            raise ValueError("s3_access_key and s3_secret_key: must be given for a store in S3")
        if self.s3_endpoint and not self.s3_endpoint.startswith(("http://", "https://")):
            raise ValueError("s3_endpoint: must begin with http:// or https://")
        return self

    @property
    def bucket(self) -> tuple[str, str] | None:
        """The bucket and the prefix of the store; None if it is a folder."""
        if not self.store.startswith("s3://"):
            return None
        bucket, _, prefix = self.store.removeprefix("s3://").partition("/")
        return bucket, prefix.strip("/")

    def key_bytes(self) -> bytes | None:
        """The key as bytes; None if it is the one in the data folder."""
        text = self.key.get_secret_value()
        return _base64(text) if text else None


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


class DedupSettings(Section):
    """Verbatim texts that repeat or change what is remembered."""

    near_duplicates: Literal["keep", "merge", "supersede", "ask"] = Field(
        "keep",
        description="Verbatim texts that repeat a memory in other words. keep: store both; merge: keep the one "
        "that says more; supersede: archive the older one; ask: store both and list the older ones.",
    )
    min_similarity: Literal["auto"] | Annotated[float, Field(gt=0, le=1)] = Field(
        "auto",
        description="Minimum cosine similarity (0 to 1) of texts that say the same, if their words agree too. auto: a "
        "measured value for the packaged model; with other models, whose scales differ, nothing is compared.",
    )
    key_values: Literal["merge", "keep"] = Field(
        "merge",
        description="Verbatim texts of the form key=value | key=value. merge: update the app's memory in the namespace "
        "that has such keys; its other keys stay, and its history keeps the earlier text. keep: store each text.",
    )


class CategorySettings(Section):
    """Categories that the service assigns in the background to memories without a category from a client."""

    assign: Literal["off", "local"] = Field(
        "local",
        description="local: assigned by vectors and words on this machine; off: only clients assign categories.",
    )
    threshold: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="Minimum confidence (0 to 1). A higher value leaves more memories without a category.",
    )
    most: int = Field(
        1,
        ge=1,
        le=5,
        description="Maximum categories assigned to one memory; each further one is less likely to be right.",
    )


class EgressSettings(Section):
    """Where the service may connect to, beyond the public internet and the addresses in these settings."""

    allow: tuple[str, ...] = Field(
        (),
        description="Private hosts that may be reached: host, host:port, address, or network such as 10.0.0.0/8.",
    )

    @field_validator("allow")
    @classmethod
    def _each_can_be_read(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            Allowed.parse(entry)
        return value


class SlackSettings(Section):
    """Slack: the token with which the service loads public channels."""

    token: SecretStr = Field(SecretStr(""), description="Token of a Slack app (xoxb- or xoxp-); empty: none.")
    send: bool = Field(False, description="Assistants may send messages and files with it, after the user has agreed.")
    base_url: Annotated[str, AfterValidator(web_url)] = Field(
        "https://slack.com/api/", description="Slack's Web API; GovSlack has another address."
    )
