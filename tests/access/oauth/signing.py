"""Keys that sign tokens, and tokens that no honest library would make."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

_CURVES = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}


def encoded(content: bytes | dict[str, Any]) -> str:
    """A segment of a token."""
    if isinstance(content, dict):
        content = json.dumps(content).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@dataclass(frozen=True)
class SigningKey:
    """A private key of the authorization server."""

    algorithm: str = "ES256"
    bits: int = 2048
    id: str = field(default_factory=lambda: uuid4().hex[:8])

    @cached_property
    def private(self) -> Any:
        if self.algorithm == "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
        if self.algorithm in _CURVES:
            return ec.generate_private_key(_CURVES[self.algorithm]())
        return rsa.generate_private_key(65537, self.bits)

    @property
    def jwk(self) -> dict[str, Any]:
        """What is published of it."""
        public: dict[str, Any] = get_default_algorithms()[self.algorithm].to_jwk(
            self.private.public_key(), as_dict=True
        )
        public.pop("key_ops", None)
        return public | {"kid": self.id, "use": "sig", "alg": self.algorithm}

    def sign(self, claims: dict[str, Any] | bytes, **header: Any) -> str:
        """A token with these claims; members of the header that are None are left out."""
        head = {"alg": self.algorithm, "typ": "at+jwt", "kid": self.id} | header
        head = {name: value for name, value in head.items() if value is not None}
        content = f"{encoded(head)}.{encoded(claims)}"
        signature = get_default_algorithms()[self.algorithm].sign(content.encode(), self.private)
        return f"{content}.{encoded(signature)}"
