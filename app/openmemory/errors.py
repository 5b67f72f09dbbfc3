"""What can go wrong, in words. Adapters map the five bases to their protocol; nothing here knows HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self


class OpenMemoryError(Exception):
    """Base of every expected failure.

    `code` is stable and machine-readable; the message is for people; `hint` says what would work.
    """

    code = "error"

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code


class NotFound(OpenMemoryError):
    """There is no such thing, or it is not the caller's: the two are never told apart."""

    code = "not_found"


class Unauthenticated(OpenMemoryError):
    """No credential, or one that is not valid."""

    code = "unauthenticated"


class Forbidden(OpenMemoryError):
    """The caller is known and may not do this."""

    code = "forbidden"


class Invalid(OpenMemoryError):
    """The input cannot be used. `field` names the offending input."""

    code = "invalid"

    def __init__(self, field: str, problem: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(f"{field}: {problem}", code=code, hint=hint)
        self.field = field


class TooLarge(Invalid):
    """The input is well formed but over a limit; the message names the limit and its setting."""

    code = "too_large"


class BatchRefused(Invalid):
    """Nothing of a batch is stored. `refused` holds the error of every item that cannot be, by its position."""

    def __init__(
        self,
        field: str,
        problem: str,
        *,
        refused: Mapping[int, Invalid],
        code: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(field, problem, code=code, hint=hint)
        self.refused = refused

    @classmethod
    def of(cls, name: str, refused: Mapping[int, Invalid], count: int) -> Self:
        """The error of a batch of `count` items that came in the field `name`; it says what is wrong with the first."""
        place, first = next(iter(refused.items()))
        problem = first.message.removeprefix(f"{first.field}: ")
        field = f"{name}[{place}]" if first.field == "body" else f"{name}[{place}].{first.field}"
        others = f" ({len(refused):,} of {count:,} are refused, and none is stored)" if count > 1 else ""
        return cls(field, problem + others, refused=refused, code=first.code, hint=first.hint)


class Conflict(OpenMemoryError):
    """The request contradicts the present state, such as a transition that is not allowed."""

    code = "conflict"


class Unavailable(OpenMemoryError):
    """A dependency does not answer now. `retry_after` is in seconds."""

    code = "unavailable"

    def __init__(
        self, message: str, *, retry_after: float = 1.0, code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retry_after = retry_after


class Overtaken(Unavailable):
    """Somebody else changed the same at the same moment; nothing was written, and doing it again may go well."""

    code = "overtaken"


class TooMany(OpenMemoryError):
    """A limit on how often something may be done was reached. `retry_after` is in seconds."""

    code = "too_many_requests"

    def __init__(self, message: str, *, retry_after: float, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retry_after = retry_after


class SetupError(OpenMemoryError):
    """The service cannot start as it is configured; one line tells why. The process exits with 2."""

    code = "setup"
