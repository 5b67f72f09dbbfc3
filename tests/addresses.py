"""Addresses of clients. Wrong keys are counted by address, so a test that sends some needs its own."""

from __future__ import annotations

from itertools import count

_numbers = count(1)


def unused_address() -> str:
    """Returns an address that no other test of this process uses, from the network for benchmarks (RFC 2544)."""
    number = next(_numbers)
    return f"198.18.{number // 256}.{number % 256}"
