"""One table says what a failure of PostgreSQL means."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors as pg
from sqlalchemy import exc

from openmemory.database.failures import unavailable
from openmemory.errors import WriteConflict


def wrapped(error: BaseException) -> exc.DBAPIError:
    return exc.DBAPIError("SELECT 1", {}, error)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (pg.DiskFull("x"), "database_full"),
        (pg.OutOfMemory("x"), "database_full"),
        (pg.ReadOnlySqlTransaction("x"), "database_read_only"),
        (pg.LockNotAvailable("x"), "database_locked"),
        (pg.QueryCanceled("x"), "database_slow"),
        (pg.IoError("x"), "database_damaged"),
        (pg.DataCorrupted("x"), "database_damaged"),
        (pg.AdminShutdown("x"), "database_unavailable"),
        (psycopg.OperationalError('connection failed: FATAL:  role "x" does not exist'), "database_login"),
        (psycopg.OperationalError('connection failed: FATAL:  database "x" does not exist'), "database_login"),
        (psycopg.OperationalError("FATAL:  password authentication failed for user"), "database_login"),
        (psycopg.OperationalError("connection failed: session is read-only"), "database_read_only"),
        (psycopg.OperationalError("Connection refused"), "database_unavailable"),
    ],
)
def test_a_failure_is_told_as_what_it_is(error: BaseException, code: str) -> None:
    refusal = unavailable(wrapped(error), broken=False)
    assert refusal is not None
    assert refusal.code == code
    assert refusal.retry_after >= 1
    assert "x" not in refusal.message.split()


def test_a_conflict_is_not_an_outage_unless_the_connection_is_lost() -> None:
    assert isinstance(unavailable(wrapped(pg.DeadlockDetected("x")), broken=False), WriteConflict)
    lost = unavailable(wrapped(pg.DeadlockDetected("x")), broken=True)
    assert lost is not None
    assert not isinstance(lost, WriteConflict)


@pytest.mark.parametrize("error", [pg.UniqueViolation("x"), pg.UndefinedTable("x"), pg.InsufficientPrivilege("x")])
def test_a_statement_that_is_refused_is_no_outage(error: BaseException) -> None:
    assert unavailable(wrapped(error), broken=False) is None
