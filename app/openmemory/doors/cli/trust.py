"""`openmemory projects trust`: confirms the project that the file of a folder names."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from openmemory.doors.cli import confirmed, project
from openmemory.doors.cli.output import note, on_a_terminal, plain, prompt_yes_no
from openmemory.errors import Invalid, SetupError


@cache
def choose_namespace(folder: str) -> str | None:
    """The namespace of a folder's project. On a terminal, it asks about one that the user has not confirmed."""
    here = project.of_folder(folder)
    if (claim := here.unconfirmed) is None:
        return here.namespace
    if on_a_terminal() and prompt_yes_no(_question(claim)):
        _confirm(claim)
        return claim.namespace
    note(
        f"{plain(_file(claim))} names another project than {plain(here.namespace or 'default')}. It is not used before"
        " `openmemory projects trust` confirms it."
    )
    return here.namespace


def trust(
    *,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder.")] = Path(),
    remove: Annotated[bool, typer.Option("--remove", help="Forget what was confirmed for the folder.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Confirm the project that the file .openmemory of a folder names. Nothing uses it before.

    The file comes with the files of a repository, so somebody else may have written it. It is asked about again if it
    names another project later.
    """
    folder = str(path.resolve())
    if not path.is_dir():
        raise Invalid("PATH", f"must be a folder, not {folder!r}")
    if remove:
        forget(folder)
        return
    claim = project.of_folder(folder).unconfirmed
    if claim is None:
        print(f"There is nothing to confirm. The project is {plain(project.namespace(folder) or 'default')}.")
        return
    if not yes:
        ask(_question(claim), f"the project {claim.namespace!r}")
    _confirm(claim)
    print(f"The project of {plain(claim.folder)} is {plain(claim.namespace)}.")


def forget(folder: str, what: confirmed.Confirmable = "namespace") -> None:
    """Forget what was confirmed for a folder, and say so.

    Raises:
        SetupError: the confirmation cannot be removed.
    """
    try:
        was_confirmed = confirmed.forget(folder, what)
    except OSError as error:
        raise SetupError(f"The confirmation cannot be removed: {error}") from None
    print("It is not confirmed any more." if was_confirmed else "Nothing was confirmed for this folder.")


def ask(question: str, what: str) -> None:
    """Ask on the terminal. The command ends if the answer is no.

    Raises:
        Invalid: there is no terminal.
    """
    if not on_a_terminal():
        raise Invalid("--yes", f"must be given without a terminal, to use {what}")
    typer.confirm(question, abort=True, err=True)


def _file(claim: project.Claim) -> str:
    return str(Path(claim.folder, project.NAMESPACE_FILE))


def _question(claim: project.Claim) -> str:
    return f"{plain(_file(claim))} names the project {plain(claim.namespace)}. Use it for this folder?"


def _confirm(claim: project.Claim) -> None:
    try:
        confirmed.confirm(*claim)
    except OSError as error:
        raise SetupError(f"The project cannot be confirmed: {error}") from None
