"""The settings file of the working folder. It counts once the user has confirmed it for this folder.

Somebody else may have written it: it comes with the files of a repository. It can name another data folder, database or
service, and an address that texts are sent to.
"""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openmemory.doors.cli import confirmed
from openmemory.doors.cli.output import on_a_terminal, plain, prompt_yes_no
from openmemory.doors.cli.trust import ask, forget
from openmemory.errors import Invalid, SetupError

if TYPE_CHECKING:
    from openmemory.config.settings_file import SettingsFile

_LARGEST = 100_000
"""The bytes that the file may have. All settings with their descriptions take 14,000."""
_DOTS = 100
"""The dots that a line may have. The time to read a key grows with the square of its parts."""
_WIDEST = 100
"""The characters of a value that a question shows."""
_NAMED = 5
"""The settings that an error names."""


def confirmed_file() -> SettingsFile | None:
    """The settings file of the working folder; None if there is none.

    On a terminal, it asks about a file that the user has not confirmed as it is. A file that sets nothing counts.

    Raises:
        SetupError: the file is not confirmed, or cannot be used.
    """
    try:
        file = _file_of(str(Path.cwd()))
    except FileNotFoundError:  # the working folder is gone
        return None
    if file is None:
        return None
    set_here = _unconfirmed_settings(file)
    if set_here and not (on_a_terminal() and prompt_yes_no(_question(file, set_here))):
        names = [".".join(path) for path in set_here]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise SetupError(
            f"{plain(file.path)} is not used before you confirm it for this folder; it sets"
            f" {', '.join(names[:_NAMED])}{more}",
            hint=f"confirm it with `openmemory config trust`, or name it with --config {file.path.name};"
            f" --config {os.devnull} leaves it out",
        )
    if set_here:
        _confirm(file)
    return file


def trust(
    *,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder.")] = Path(),
    remove: Annotated[bool, typer.Option("--remove", help="Forget what was confirmed for the folder.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Confirm the openmemory.toml of a folder as it is. No command uses it there before.

    The file may have come with the files of a repository, and somebody else may have written it. It is asked about
    again when it changes. A file that --config or OPENMEMORY_CONFIG names needs no confirmation.
    """
    if not path.is_dir():
        raise Invalid("PATH", f"must be a folder, not {str(path)!r}")
    folder = str(path.resolve())
    if remove:
        forget(folder, "settings")
        return
    file = _file_of(folder)
    if file is None or not (set_here := _unconfirmed_settings(file)):
        print("There is nothing to confirm.")
        return
    if not yes:
        ask(_question(file, set_here), plain(file.path))
    _confirm(file)
    print(f"Commands in {plain(folder)} use its {file.path.name}.")


def _file_of(folder: str) -> SettingsFile | None:
    """The settings file of exactly this folder, without following a link and without waiting for a pipe."""
    from openmemory.config.settings_file import FILE_NAME, SettingsFile

    path = Path(folder, FILE_NAME)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        if path.is_symlink():
            raise _unusable(path, "is a link") from None
        raise _unusable(path, f"cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _unusable(path, "is no plain file")
        content = os.read(descriptor, _LARGEST + 1)
    finally:
        os.close(descriptor)
    if len(content) > _LARGEST:
        raise _unusable(path, f"is larger than {_LARGEST:,} bytes")
    return SettingsFile(path, content)


def _unusable(path: Path, problem: str) -> SetupError:
    return SetupError(
        f"{plain(path)} {problem}",
        hint=f"name the settings file with --config FILE; --config {os.devnull} uses none",
    )


def _unconfirmed_settings(file: SettingsFile) -> dict[tuple[str, ...], Any]:
    """Returns what a file sets; nothing if the user has confirmed it."""
    from openmemory.config.settings import entries

    if confirmed.confirmed(str(file.path.parent), "settings") == sha256(file.content).hexdigest():
        return {}
    if any(line.count(b".") > _DOTS for line in file.content.splitlines()):
        raise _unusable(file.path, f"has more than {_DOTS} dots in a line")
    return entries(file)


def _confirm(file: SettingsFile) -> None:
    try:
        confirmed.confirm(str(file.path.parent), sha256(file.content).hexdigest(), "settings")
    except OSError as error:
        raise SetupError(f"The file cannot be confirmed: {error}") from None


def _question(file: SettingsFile, set_here: dict[tuple[str, ...], Any]) -> str:
    """The question, with each setting that can name something: a folder, a database, an address, a user. Numbers and
    choices are only named."""
    from openmemory.config.settings import keys

    fields = keys()
    lines, others = [], []
    for path, value in set_here.items():
        name = ".".join(path)
        if (text := _format_value(value, fields[path].annotation)) is None:
            others.append(name)
        else:
            lines.append(f"  {name} = {text}")
    if others:
        lines.append(f"  {'and ' if lines else ''}{', '.join(others)}")
    known_before = confirmed.confirmed(str(file.path.parent), "settings") is not None
    why = "has changed since you confirmed it" if known_before else "may be somebody else's"
    listing = "\n".join(lines)
    return f"{plain(file.path)} {why}. It sets:\n{listing}\nUse it in this folder as it is now?"


def _format_value(value: Any, annotation: Any) -> str | None:
    """A value of a setting that is a text or a list, on one line and without secrets; None for other settings."""
    from pydantic import SecretStr

    from openmemory.doors.cli.project import without_credentials

    if isinstance(value, str) and annotation in (str, SecretStr):
        if annotation is SecretStr:
            value = without_credentials(value).partition("?")[0] if "://" in value else "********"
        else:
            value = without_credentials(value)
    elif isinstance(value, list):
        value = ", ".join(str(one) for one in value)
    else:
        return None
    text = plain(value)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}…"
