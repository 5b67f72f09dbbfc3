"""Access to the built-in PostgreSQL: only the account that this process runs as may connect."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from openmemory.embedded.account import Account
from openmemory.errors import SetupError

_HBA = "pg_hba.conf"
_IDENT = "pg_ident.conf"
_MAP = "openmemory"


def restricted(folder: Path, account: Account | None) -> dict[str, str]:
    """Write the authentication rules into the data folder, and return the server settings that point to them.

    The files of the same names in PostgreSQL's own folder are not read. That folder belongs to the server's account,
    whose other processes could change them.

    Raises:
        SetupError: our account has no name that the server could look up.
    """
    # The server asks the kernel for the user id of a client, and looks up its name.
    name = _own_name().replace('"', '""')
    return {
        "hba_file": _written(folder / _HBA, f"local all all peer map={_MAP}\n", account),
        "ident_file": _written(folder / _IDENT, f'{_MAP} "{name}" all\n', account),
    }


def _own_name() -> str:
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise SetupError(
            f"The user id {uid} has no entry in /etc/passwd, which the built-in PostgreSQL needs: start OpenMemory as "
            "a user that has one (in a container of its image: --user 10001) or set database.url"
        ) from None


def _written(path: Path, text: str, account: Account | None) -> str:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644 if account else 0o600)  # the server's account must read it
    return str(path)
