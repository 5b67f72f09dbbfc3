"""The errors of the product. Adapters map the five base classes to their protocol; nothing here knows HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self


class OpenMemoryError(Exception):
    """Base of every expected failure.

    `code` is stable and machine-readable; the message is for people; `hint` suggests what would work.
    """

    code = "error"

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code


class NotFound(OpenMemoryError):
    """The object does not exist, or is not the caller's. Callers cannot distinguish the two."""

    code = "not_found"


class Unauthenticated(OpenMemoryError):
    """The request has no credential, or an invalid one."""

    code = "unauthenticated"


class Forbidden(OpenMemoryError):
    """The caller is authenticated but not allowed to do this."""

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
    """No item of a batch is stored. `refused` maps the position of every rejected item to its error."""

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
        """Returns the error of a batch of `count` items in the field `name`. It describes the first rejected item."""
        place, first = next(iter(refused.items()))
        problem = first.message.removeprefix(f"{first.field}: ")
        field = f"{name}[{place}]" if first.field == "body" else f"{name}[{place}].{first.field}"
        others = f" ({len(refused):,} of {count:,} are refused, and none is stored)" if count > 1 else ""
        return cls(field, problem + others, refused=refused, code=first.code, hint=first.hint)


class ConflictError(OpenMemoryError):
    """The request contradicts the current state, such as a transition that is not allowed."""

    code = "conflict"


class Unavailable(OpenMemoryError):
    """A dependency does not answer at the moment. `retry_after` is in seconds."""

    code = "unavailable"

    def __init__(
        self, message: str, *, retry_after: float = 1.0, code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retry_after = retry_after


class WriteConflict(Unavailable):
    """A serialization conflict: another transaction changed the same data. Nothing was written; a retry may succeed."""

    code = "write_conflict"


class TooMany(OpenMemoryError):
    """A rate limit was reached. `retry_after` is in seconds."""

    code = "too_many_requests"

    def __init__(self, message: str, *, retry_after: float, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retry_after = retry_after


class SetupError(OpenMemoryError):
    """The service cannot start with this configuration; the message is one line. The process exits with 2."""

    code = "setup"


MOVE_BY_ARCHIVES = (
    "start the OpenMemory that made it, export each user (`openmemory export NAME.zip --user NAME`), and import the"
    " archives (`openmemory import NAME.zip`) into an empty database or data folder with this one; API keys, saved"
    " settings and the audit log do not come along, so create new keys"
)
"""The advice for data that this version cannot open."""
