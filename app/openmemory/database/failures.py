"""Translates failures of PostgreSQL into our errors, with one table by SQLSTATE."""

from __future__ import annotations

from typing import NamedTuple

from psycopg import errors as pg
from sqlalchemy import exc

from openmemory.errors import Unavailable, WriteConflict


class _Meaning(NamedTuple):
    message: str
    code: str = "database_unavailable"
    retry_after: float = 1.0


_AWAY = _Meaning("The database does not answer.")
_LOGIN = _Meaning("The database refuses the login of OpenMemory.", "database_login", 30.0)
_DAMAGED = _Meaning("The database reports a failing disk or damaged files.", "database_damaged", 30.0)
_BUSY = _Meaning("The database has no free connection.")

_MEANINGS = {
    "25006": _Meaning("The database is read-only at the moment.", "database_read_only", 5.0),
    "28": _LOGIN,
    "3D": _Meaning("The database of OpenMemory does not exist on the server.", "database_login", 30.0),
    "53100": _Meaning("The disk of the database is full.", "database_full", 30.0),
    "53200": _Meaning("The database has no memory left.", "database_full", 5.0),
    "53300": _BUSY,
    "55P03": _Meaning("Somebody else has locked the data in the database.", "database_locked", 5.0),
    "57014": _Meaning("The database did not answer in time.", "database_slow"),
    "57P03": _Meaning("The database is starting or stopping."),
    "58": _DAMAGED,
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,
}
"""By SQLSTATE, or by its class. All others that the driver calls operational mean that PostgreSQL is away."""

_WORDS = {
    "too many clients already": "53300",
    "remaining connection slots are reserved": "53300",
    "too many connections for": "53300",
    "no more connections allowed": "53300",  # PgBouncer
    "session is read-only": "25006",
    "server is in hot standby mode": "25006",
    "the database system is": "57P03",
    "authentication failed": "28P01",
    "no pg_hba.conf entry": "28000",
    "is not permitted to log in": "28000",
    'role "': "28000",
    '" does not exist': "3D000",
    "No space left on device": "53100",
}
"""Parts of the messages with which servers refuse connections. libpq does not pass the SQLSTATE of these on."""

_OPERATIONAL = (
    pg.OperationalError,
    pg.InterfaceError,
    pg.DataCorrupted,
    pg.IndexCorrupted,
    # A read-only server may have been replaced by another, and a server ends transactions that are left idle.
    pg.ReadOnlySqlTransaction,
    pg.IdleInTransactionSessionTimeout,
    ConnectionError,
)


def cause_of(error: BaseException) -> BaseException:
    """Returns the driver's error within SQLAlchemy's."""
    return error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error


def sqlstate_of(error: BaseException) -> str:
    """Returns the SQLSTATE of a driver's error, also of a refused connection; empty: it has none."""
    if state := getattr(error, "sqlstate", None):
        return str(state)
    words = str(error) if isinstance(error, pg.OperationalError) else ""
    return next((state for part, state in _WORDS.items() if part in words), "")


def has_no_room(error: exc.DBAPIError) -> bool:
    """Returns True if the server refused a connection because others use all that it grants."""
    return sqlstate_of(cause_of(error)) == "53300"


def unavailable(error: BaseException, *, broken: bool) -> Unavailable | None:
    """Returns the error for callers; None if PostgreSQL is well and only refuses this statement. `broken`: the
    connection was lost."""
    cause = cause_of(error)
    if isinstance(error, exc.TimeoutError):
        meaning = _BUSY
    elif isinstance(cause, pg.DeadlockDetected | pg.SerializationFailure) and not broken:
        # PostgreSQL is healthy and aborted one of two conflicting transactions.
        return WriteConflict("Somebody else changed the same at the same moment, and nothing was written. Do it again.")
    elif broken or isinstance(cause, _OPERATIONAL):
        state = sqlstate_of(cause)
        meaning = _MEANINGS.get(state) or _MEANINGS.get(state[:2]) or _AWAY
    else:
        return None
    return Unavailable(meaning.message, code=meaning.code, retry_after=meaning.retry_after)
