"""`openmemory rules`: tells an assistant in its rules file to use the memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

rules = typer.Typer(
    help="Tell assistants in their rules files (CLAUDE.md, AGENTS.md, ...) to use the memory.", no_args_is_help=True
)

Files = Annotated[list[Path], typer.Argument(metavar="FILE", help="Such as CLAUDE.md or .cursor/rules/openmemory.mdc.")]


@rules.command()
def add(files: Files) -> None:
    """Add a marked block to each file, or renew it. Missing files are made."""
    from openmemory.connect.rules import with_rules

    _edit(files, with_rules)


@rules.command()
def remove(files: Files) -> None:
    """Remove the block from each file, and a file that holds nothing else."""
    from openmemory.connect.rules import without_rules

    _edit(files, lambda text, _: without_rules(text))


def _edit(files: list[Path], edit: Callable[[str, Path], str | None]) -> None:
    from openmemory.connect.connections import inside, write_atomically
    from openmemory.errors import Invalid

    for file in files:
        try:
            inside(file, _folder(file))
            before = file.read_bytes().decode() if file.exists() else ""
            after = edit(before, file)
            if after == before:
                print(f"{file}: nothing to change")
                continue
            if after is None:
                file.unlink()
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(file.resolve(), after, like=file)
        except UnicodeDecodeError as error:
            raise Invalid(str(file), "is not UTF-8") from error
        except OSError as error:
            raise Invalid(str(file), error.strerror or str(error)) from error
        print(f"{file}: {'removed' if after is None else 'changed'}")


def _folder(file: Path) -> Path:
    """The folder that no link may lead out of: the project, or that of a file elsewhere."""
    from openmemory.doors.cli.connect import root_of

    here, place = root_of(Path.cwd()), Path(os.path.normpath(Path.cwd() / file))
    return here if here in place.parents else place.parent
