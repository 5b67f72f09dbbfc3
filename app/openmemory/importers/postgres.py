"""Reads a database of another program in PostgreSQL: in one transaction, which is read-only and sees one moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from openmemory.errors import SetupError, Unavailable
from openmemory.importers.source import BadSource

if TYPE_CHECKING:
    from psycopg import Connection

_SCHEMES = ("postgresql", "postgres")
_CONNECT_SECONDS = 10
_SETTINGS = {
    "statement_timeout": "300s", "lock_timeout": "10s", "row_security": "off", "timezone": "UTC", "datestyle": "ISO",
}  # fmt: skip
"""Settings of the transaction. Rules on rows would hide some without a word; with `row_security` off, the server
refuses to read tables whose rules are for this role."""
_AT_ONCE = 500
"""Rows that are fetched at a time."""
_AS_TEXT = ("json", "jsonb", "timestamptz", "timestamp", "date", "uuid", "numeric")
"""Types whose values are cleaned from their text: numbers in JSON keep their digits, and a time may be infinite."""
_TABLES = """
    SELECT c.relname, a.attname FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relkind IN ('r', 'p') AND pg_catalog.pg_table_is_visible(c.oid)
    AND c.relnamespace <> 'pg_catalog'::pg_catalog.regnamespace
"""


def is_database(source: str) -> bool:
    """Returns True for the address of a database, as SQLAlchemy or libpq write it."""
    scheme, rest, _ = source.partition("://")
    return bool(rest) and scheme.lower().partition("+")[0] in _SCHEMES


def address_without_credentials(source: str) -> str:
    """The address without anything that may be a password: its server and its database."""
    return f"postgresql://{_where(source).rpartition('@')[2].partition('?')[0]}"


def _where(source: str) -> str:
    return source.partition("://")[2]


class PostgresTables:
    """The tables of a database of PostgreSQL, as far as the search path of the user finds them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        columns = defaultdict[str, set[str]](set)
        for table, column in connection.execute(_TABLES):
            columns[table].add(column)
        self.columns = dict(columns)

    def rows(self, table: str, columns: Sequence[str], order: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
        """The rows of a table, by these columns. Rows that are equal by `order` come as they were stored."""
        from psycopg import sql

        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        query = sql.SQL("SELECT {} FROM {}").format(names, sql.Identifier(table))
        if order:
            query += sql.SQL(" ORDER BY {}, tableoid, ctid").format(sql.SQL(", ").join(map(sql.Identifier, order)))
        with self._connection.cursor(name="rows") as cursor:
            cursor.itersize = _AT_ONCE
            for row in cursor.execute(query):
                yield dict(zip(columns, row, strict=True))

    def count(self, table: str) -> int:
        """The number of rows of a table."""
        from psycopg import sql

        row = self._connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))).fetchone()
        return int(row[0]) if row else 0


@contextmanager
def opened(source: str) -> Iterator[PostgresTables]:
    """Connects to a database, and ends the transaction without a change. A password may also come from `PGPASSWORD` or
    the password file of libpq.

    Raises:
        SetupError: the address is none.
        Unavailable: the server does not answer, or refuses the login.
        BadSource: a table cannot be read.
    """
    import psycopg
    from psycopg.types.string import TextLoader

    try:
        with _connect(source) as connection:
            connection.read_only, connection.isolation_level = True, psycopg.IsolationLevel.REPEATABLE_READ
            for name, value in _SETTINGS.items():
                connection.execute("SELECT set_config(%s, %s, true)", (name, value))
            for name in _AS_TEXT:
                connection.adapters.register_loader(name, TextLoader)
            yield PostgresTables(connection)
            connection.rollback()
    except psycopg.OperationalError as error:
        # A statement that took too long is one of these, too.
        raise Unavailable(f"{address_without_credentials(source)}: {_words(error)}") from None
    except psycopg.Error as error:
        raise BadSource(f"cannot be read: {_words(error)}") from None
    except UnicodeDecodeError:
        raise BadSource("cannot be read: it holds text that is not UTF-8") from None


def _connect(source: str) -> Connection:
    import psycopg
    from psycopg.conninfo import make_conninfo

    form_error = SetupError(_FORM, hint="set PGPASSWORD for the password, or write its signs as %XX, such as %40 for @")
    if set("@/?#") & set(_where(source).rpartition("@")[0]):
        raise form_error  # libpq would take a part of the password for the server, and name it in its errors
    try:
        conninfo = make_conninfo(f"postgresql://{_where(source)}", client_encoding="UTF8")
    except (psycopg.Error, ValueError):
        raise form_error from None
    try:
        return psycopg.connect(conninfo, connect_timeout=_CONNECT_SECONDS, application_name="openmemory import")
    except psycopg.OperationalError as error:
        hint = "check the address, the user and the password"
        raise Unavailable(f"{address_without_credentials(source)}: {_refusal(str(error))}", hint=hint) from None


_FORM = "The address of a database must be postgresql://USER@HOST:PORT/DATABASE"


def _refusal(message: str) -> str:
    """The reason that libpq gives, without the address before it."""
    return next(iter(message.splitlines()), "it does not answer").rpartition("failed: ")[2]


def _words(error: Exception) -> str:
    """The first line of an error of the server, without the values that its other lines repeat."""
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    return str(primary or "the connection was lost")
