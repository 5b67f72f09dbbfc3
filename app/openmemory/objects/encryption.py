"""Encrypts objects with AES-256-GCM in frames, so that neither side ever holds a whole object.

A frame is sealed with its number and with the mark of the last one. Frames that are exchanged, repeated or left out
are noticed (STREAM, Hoang, Reyhanitabar, Rogaway and Vizár 2015).
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from openmemory.errors import OpenMemoryError

KEY_BYTES = 32

_FRAME = 1024 * 1024
_TAG = 16
_PREFIX = 7
_VERSION = b"\x01"
_HEADER = len(_VERSION) + _PREFIX


class ObjectDamaged(OpenMemoryError):
    """An object is not what was stored: it was damaged, or its key is another one."""

    code = "object_damaged"


def wrap(service_key: bytes, user_key: bytes, user: bytes) -> bytes:
    """The key of a user, encrypted with the key of the service."""
    nonce = secrets.token_bytes(12)
    return nonce + AESGCM(service_key).encrypt(nonce, user_key, user)


def unwrap(service_key: bytes, wrapped: bytes, user: bytes) -> bytes:
    """The key of a user.

    Raises:
        ObjectDamaged: it was encrypted with another key of the service, or for another user.
    """
    try:
        return AESGCM(service_key).decrypt(wrapped[:12], wrapped[12:], user)
    except InvalidTag:
        raise ObjectDamaged("The key of the stored documents does not fit: objects.key is another one.") from None


def sealed(key: bytes, name: str, plain: BinaryIO) -> Iterator[bytes]:
    """Yields the encrypted object of this name. Reads the file as it goes."""
    cipher, prefix = AESGCM(key), secrets.token_bytes(_PREFIX)
    yield _VERSION + prefix
    number, frame = 0, plain.read(_FRAME)
    while True:
        following = plain.read(_FRAME)
        yield cipher.encrypt(_nonce(prefix, number, last=not following), frame, name.encode())
        if not following:
            return
        number, frame = number + 1, following


async def opened(key: bytes, name: str, encrypted: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields the content of an encrypted object.

    Raises:
        ObjectDamaged: it is not what was stored under this name.
    """
    cipher, data, prefix, number = AESGCM(key), bytearray(), b"", 0
    size = _FRAME + _TAG
    try:
        async for chunk in encrypted:
            data += chunk
            if not prefix and len(data) >= _HEADER:
                if data[:1] != _VERSION:
                    raise ObjectDamaged("A stored document has a format that this version does not know.")
                prefix = bytes(data[1:_HEADER])
                del data[:_HEADER]
            # The last frame is opened when it is known to be the last.
            while prefix and len(data) > size:
                yield cipher.decrypt(_nonce(prefix, number, last=False), bytes(data[:size]), name.encode())
                del data[:size]
                number += 1
        if not prefix:
            raise ObjectDamaged("A stored document is damaged.")
        yield cipher.decrypt(_nonce(prefix, number, last=True), bytes(data), name.encode())
    except InvalidTag:
        raise ObjectDamaged("A stored document is damaged.") from None


def _nonce(prefix: bytes, number: int, *, last: bool) -> bytes:
    return prefix + number.to_bytes(4, "big") + bytes([last])
