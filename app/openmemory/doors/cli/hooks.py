"""`openmemory hooks`: has assistants run `openmemory hook` by themselves. And the help of `openmemory hook`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from openmemory.doors.cli import scope
from openmemory.doors.cli.assistants import DryRun, Names, Yes, adding, change_files, chosen_from, removing
from openmemory.doors.cli.options import ConfigFile, DataDir, Json, Namespace, Url, User
from openmemory.doors.cli.output import CommandAnswer, Table

if TYPE_CHECKING:
    from openmemory.connect.clients import AssistantClient
    from openmemory.connect.hooks import Hook

hooks = typer.Typer(
    help="Have assistants use the memory by themselves: show them a brief when a session starts.", no_args_is_help=True
)

Budget = Annotated[
    int | None, typer.Option(metavar="TOKENS", min=100, max=2_000, help="Tokens that a brief may have; default: 600.")
]


@hooks.command()
def add(
    names: Names = None,
    *,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Also search for each prompt, and show the few memories that fit it.")
    ] = False,
    capture: Annotated[
        bool,
        typer.Option(
            "--capture",
            help="Also send what you wrote to the service when a session of Claude Code is compacted or ends. The"
            " language model of the service makes memories of it, which costs calls; without one, nothing is kept.",
        ),
    ] = False,
    log: Annotated[
        bool,
        typer.Option(
            "--log",
            help="Also store what both sides said in a session of Claude Code, word for word, when it is compacted or"
            " ends. With --capture, the language model of the service reads it.",
        ),
    ] = False,
    budget: Budget = None,
    user: User = None,
    data_dir: DataDir = None,
    config: ConfigFile = None,
    url: Url = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Add the hooks to the files of Claude Code, Codex and Cursor, or renew them.

    When a session starts, the assistant gets a brief: a line for each of the most telling memories of the project, and
    of the user, within a budget of tokens. If the service does not answer within 300 ms, the session starts without it.
    No language model is called, unless you choose --capture. For a service elsewhere, set OPENMEMORY_API_KEY where the
    assistant starts.
    """
    from openmemory.connect.hooks import CAPTURE

    events: list[Hook] = ["session-start"]
    if prompt:
        events.append("prompt")
    if capture or log:
        events += CAPTURE
    more = [*(["--log"] if log else []), *(["--infer"] if log and capture else [])]
    plans = adding(_select_clients(names, events), data_dir, config, user=user, url=url, budget=budget, more=more)
    change_files(plans, dry_run=dry_run, yes=yes, json=json)


@hooks.command()
def remove(names: Names = None, dry_run: DryRun = False, yes: Yes = False, json: Json = False) -> None:
    """Take out what `hooks add` has added, and nothing else."""
    change_files(removing(_select_clients(names)), dry_run=dry_run, yes=yes, json=json)


@hooks.command()
def status(json: Json = False) -> None:
    """List the assistants that have hooks, and which of ours each runs."""
    from openmemory.connect.connections import entry
    from openmemory.connect.hooks import hooked, hooks_in
    from openmemory.errors import Invalid

    rows: list[dict[str, Any]] = []
    for it in hooked():
        row: dict[str, Any] = {"client": it.app, "title": it.title, "file": str(it.file), "hooks": []}
        try:
            row["hooks"] = hooks_in(entry(it, it.file) or {})
        except Invalid as error:
            row["problem"] = error.message
        if it.installed:
            rows.append(row)
    cells = [(row["title"], ", ".join(row["hooks"]) or row.get("problem", "none"), row["file"]) for row in rows]
    CommandAnswer(rows, Table(["client", "hooks", "file"], cells, wide="file")).show(json=json)


def _select_clients(names: list[str] | None, events: list[Hook] | None = None) -> list[AssistantClient]:
    from openmemory.connect.hooks import BRIEF, hooked

    return chosen_from(hooked(events or BRIEF), names)


def hook(
    event: Annotated[
        Literal["session-start", "prompt", "pre-compact", "session-end"], typer.Argument(help="The moment it is for.")
    ],
    *,
    client: Annotated[
        str | None, typer.Option(metavar="NAME", help="The assistant: claude-code, codex or cursor.")
    ] = None,
    user: User = None,
    namespace: Namespace = None,
    budget: Budget = None,
    min_score: Annotated[
        float | None, typer.Option("--min-score", metavar="SCORE", help="prompt: only memories of at least this score.")
    ] = None,
    url: Url = None,
    data_dir: DataDir = None,
    log: Annotated[
        bool, typer.Option("--log", help="pre-compact, session-end: store what both sides said, word for word.")
    ] = False,
    infer: Annotated[bool, typer.Option("--infer", help="With --log: for the language model, too.")] = False,
    timeout: Annotated[
        int | None,
        typer.Option(metavar="MS", help="Milliseconds until it ends, from its start; default: 300, with --log 4000."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Say on standard error why nothing is printed.")] = False,
) -> None:
    """Run a hook: assistants do, and write their JSON to its standard input.

    session-start prints a brief, and prompt prints the memories that fit the prompt. pre-compact and session-end send
    what the user wrote since the last time to the service, for its language model, and print nothing; with --log they
    store what both sides said. The namespace is that of the project: the first line of .openmemory if the user has
    confirmed it, otherwise the path of the Git remote (owner/name), otherwise the name of the folder. It ends with exit
    code 0 and prints nothing on any failure.
    """
    # `openmemory.__main__` does the same sooner: importing this module takes longer than a hook may take.
    from openmemory.doors.cli.hook import OPTIONS, run

    namespace = scope.here(namespace) if namespace else None
    values = dict(zip(OPTIONS, (client, user, namespace, budget, min_score, url, data_dir, timeout), strict=False))
    options = (f"--{name}={value}" for name, value in values.items() if value is not None)
    flags = {"--log": log, "--infer": infer, "--verbose": verbose}
    run([event, *options, *(name for name, is_on in flags.items() if is_on)])
