"""The base class of all settings sections, and the sections that are long or concern connections and trust."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from openmemory.config.addresses import Allowed, is_loopback, web_url


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
        raise ValueError(f"{text!r} is no IP address, and no network such as 10.0.0.0/8") from None
    return text


def origin(text: str) -> str:
    """Returns the text unchanged if it is a web origin as browsers send it, or '*'.

    Raises:
        ValueError: it is neither.
    """
    if text != "*" and not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#@\s]+/?", text):
        raise ValueError(f"{text!r} is no origin such as https://example.com, and not '*'")
    if (ports := _PORTS.fullmatch(text)) and not int(ports[2]) <= int(ports[3]) <= 65_535:
        raise ValueError(f"{text!r} names no range of ports such as http://localhost:3000-3010")
    return text


_PORTS = re.compile(r"(.+://.+:)([0-9]{1,5})-([0-9]{1,5})/?")


def origins(text: str) -> list[str]:
    """Expands a configured origin to the form browsers send: itself, or one origin for each port of its range."""
    if ports := _PORTS.fullmatch(text):
        return [f"{ports[1].lower()}{port}" for port in range(int(ports[2]), int(ports[3]) + 1)]
    return [text.rstrip("/").lower()]


ASYMMETRIC = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)  # fmt: skip


class OAuthSettings(Section):
    """Access tokens of an OAuth 2.1 authorization server. Without an issuer none are taken."""

    issuer: str = Field("", description="The authorization server, exactly as its tokens name it; empty: OAuth is off.")
    resource: str = Field(
        "", description="Public base URL of this service, such as https://memory.example.com; needed with issuer."
    )
    audience: tuple[str, ...] = Field(
        (), description="Audiences that tokens may have; empty: resource and what MCP clients name under it."
    )
    jwks_url: str = Field("", description="Where the issuer's keys are; empty: as its metadata says.")
    algorithms: tuple[str, ...] = Field(
        ("RS256", "PS256", "ES256", "ES384", "EdDSA"), min_length=1, description="Signatures that are taken."
    )
    leeway: int = Field(60, ge=0, le=600, description="Seconds by which the issuer's clock may differ from ours.")
    user_claim: str = Field("sub", min_length=1, description="The claim that names the user.")
    app_claim: str = Field(
        "client_id",
        min_length=1,
        description="The claim that names the client, and so the app; azp where it is absent.",
    )
    scope_prefix: str = Field(
        "",
        pattern=r"^[\x21\x23-\x5b\x5d-\x7e]*$",
        description="What stands before read, write and admin in the issuer's scopes, such as 'memory:'.",
    )
    admins: tuple[str, ...] = Field((), description="Users whose tokens may carry the admin scope.")
    owner_clients: tuple[str, ...] = Field(
        (), description="Client ids that speak as the user themself; every other one is bound to its app."
    )

    @field_validator("issuer")
    @classmethod
    def _issuer_is_safe(cls, value: str) -> str:
        if value and web_url(value).startswith("http://") and not is_loopback(urlsplit(value).hostname or ""):
            raise ValueError("must be https://, as everything it says is believed; http:// only on loopback")
        return value

    @field_validator("resource")
    @classmethod
    def _resource_goes_with_issuer(cls, value: str, info: ValidationInfo) -> str:
        if bool(value) != bool(info.data.get("issuer", value)):
            raise ValueError("is of no use without oauth.issuer" if value else "is needed with oauth.issuer")
        return web_url(value).rstrip("/") if value else value

    @field_validator("jwks_url")
    @classmethod
    def _keys_are_on_the_web(cls, value: str) -> str:
        return web_url(value, base=False) if value else value

    @field_validator("algorithms")
    @classmethod
    def _signatures_need_no_secret(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if strange := [name for name in value if name not in ASYMMETRIC]:
            raise ValueError(f"{strange[0]!r} is not taken: only {', '.join(sorted(ASYMMETRIC))}")
        return value


class RerankerSettings(Section):
    """A second stage that reads the best results again, with the question. Without a provider there is none."""

    provider: Literal["none", "cohere", "tei"] = Field(
        "none",
        description="cohere: the /rerank of Cohere, Jina, vLLM, llama.cpp, LocalAI; tei: of Text Embeddings Inference.",
    )
    base_url: str = Field(
        "",
        description="The server's address, such as https://api.jina.ai/v1, to which /rerank is added; needed with one.",
    )
    model: str = Field("", description="The server's model, where it has several.")
    api_key: SecretStr = Field(SecretStr(""), description="The server's key, if it wants one.")
    top_n: int = Field(20, ge=1, le=100, description="Results of the first stage that it reads.")
    weight: float = Field(
        0.7, gt=0, le=1, description="Its part of a score; 1: the first stage only chooses what it reads."
    )
    timeout: float = Field(
        2.0, gt=0, le=60, description="Seconds that a search waits for it before the first stage's order stands."
    )

    @field_validator("base_url")
    @classmethod
    def _address_goes_with_provider(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("provider", "none") != "none" and not value:
            raise ValueError("is needed with reranker.provider")
        return web_url(value) if value else value


class CaptureSettings(Section):
    """Texts that must not be stored as they are, and how facts are extracted from others."""

    secrets: Literal["refuse", "redact", "store"] = Field(
        "refuse",
        description="Keys, tokens and passwords in memories: refuse them, redact: store the rest, or store them."
        " Samples (`your-api-key`) are none.",
    )
    injection: Literal["label", "refuse", "store"] = Field(
        "label",
        description="Memories that read like orders to an assistant: label them as data, refuse, or just store them.",
    )
    duplicates: Literal["keep", "merge", "supersede", "ask"] = Field(
        "keep",
        description="Texts added verbatim that say in other words what is remembered: keep both, merge: keep the one "
        "that says more, supersede: put the older aside, or ask: keep both and name the older ones.",
    )
    likeness: Literal["auto"] | Annotated[float, Field(gt=0, le=1)] = Field(
        "auto",
        description="Cosine (0 to 1) from which on two texts may say the same, if their words agree. auto: as measured "
        "for the packaged model, none for others, whose scales differ: with these nothing is compared.",
    )
    emotion: bool = Field(
        False,
        description="Have the language model note what the user feels about a memory, as metadata.emotion: valence "
        "(-1 to 1), arousal (0 to 1) and a label.",
    )
    pairs: Literal["merge", "keep"] = Field(
        "merge",
        description="Texts added verbatim that are wholly key=value | key=value. merge: the app's memory of pairs that "
        "has such keys in the namespace takes the new values and keeps its others; its history has the earlier text. "
        "keep: store each.",
    )
    wait: float = Field(
        60.0,
        ge=0,
        le=600,
        description="Seconds that whoever adds a text waits for the language model; it goes on after.",
    )
    repeat: int = Field(
        600, ge=0, le=86_400, description="Seconds in which the same text of the same app is answered, not done again."
    )
    keep: int = Field(
        30, ge=1, le=36_500, description="Days that what a language model made of a text is kept, to be undone."
    )


class CategorySettings(Section):
    """Categories that the service assigns in the background to memories that no client has filed."""

    assign: Literal["off", "local"] = Field(
        "local", description="local: by vectors and words, nothing leaves the machine; off: clients alone file."
    )
    threshold: float = Field(
        0.5, gt=0, lt=1, description="How sure it must be, 0 to 1. A higher one leaves more without a category."
    )
    most: int = Field(
        1, ge=1, le=5, description="Categories that one memory is assigned; further ones are surer to err."
    )


class EgressSettings(Section):
    """Where the service may connect to, beyond the public internet and the addresses in these settings."""

    allow: tuple[str, ...] = Field(
        (), description="Private hosts that may be reached: host, host:port, address or CIDR such as 10.0.0.0/8."
    )

    @field_validator("allow")
    @classmethod
    def _each_can_be_read(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            Allowed.parse(entry)
        return value
