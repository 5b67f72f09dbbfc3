"""`openmemory models`: shows, tries and chooses the language model and the embedder."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.options import words
from openmemory.doors.cli.output import CommandAnswer, Table, read_stdin
from openmemory.errors import Invalid

models = typer.Typer(no_args_is_help=True)

_PATH = "/api/v1/config"
_PARTS = {"llm": "language model", "embedder": "embedder"}

Part = Annotated[
    Literal["llm", "embedder"], typer.Argument(metavar="PART", help="llm (the language model) or embedder.")
]
Provider = Annotated[str, typer.Argument(metavar="PROVIDER", help="Such as openai, ollama or local.")]
ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="The provider's name of the model.")]
Key = Annotated[
    str | None,
    typer.Option(
        metavar="KEY", help="env:NAME for a variable of the service, or - to read the key from standard input."
    ),
]
Address = Annotated[str | None, typer.Option(metavar="URL", help="The provider's address, if it is not the usual one.")]
Dimensions = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="embedder: the length of its vectors."),
]
Temperature = Annotated[float | None, typer.Option(metavar="T", min=0, max=2, help="llm: 0 gives the same answers.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", metavar="N", min=1, help="llm: the longest answer.")]


@models.command()
@connected
async def show(client: Client) -> CommandAnswer:
    """Show the models in force, and what the language model is told besides. Keys are masked."""
    answer = await client.call("GET", _PATH)
    rows = [
        (_PARTS[part], name, str(value))
        for part in _PARTS
        if (section := answer["mem0"][part])
        for name, value in [("provider", section["provider"]), *section["config"].items()]
        if value is not None
    ]
    if instructions := (answer["openmemory"] or {}).get("custom_instructions"):
        rows.append((_PARTS["llm"], "instructions", instructions))
    notes = [answer["note"]] if answer.get("note") else []
    return CommandAnswer(answer, Table(["model", "field", "value"], rows, wide="value"), notes=notes)


@models.command()
@connected
async def choose(
    client: Client,
    *,
    part: Part,
    provider: Provider,
    model: ModelName,
    key: Key = None,
    address: Address = None,
    dimensions: Dimensions = None,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    no_test: Annotated[bool, typer.Option("--no-test", help="Save it without asking it once before.")] = False,
) -> CommandAnswer:
    """Choose a model, after it has answered once.

    What is left out stays as it is, if the provider stays. Another embedder makes its vectors beside the present ones,
    and searches change to it when they are complete.
    Example: `openmemory models choose llm openai gpt-4o-mini --key env:OPENAI_API_KEY`.
    """
    config = {
        "model": model, "api_key": _key(key), "embedding_dims": dimensions, "temperature": temperature,
        "max_tokens": max_tokens, **_address(provider, address),
    }  # fmt: skip
    section = {"provider": provider, "config": {name: value for name, value in config.items() if value is not None}}
    body = {"mem0": {part: section}}
    if not no_test:
        result = (await client.call("POST", f"{_PATH}/test", body=body, patient=True))[part]
        if not result["ok"]:
            hint = "Nothing was saved. --no-test saves it nevertheless."
            raise Invalid("MODEL", f"{result['model']} does not answer: {result['detail']}", hint=hint)
    answer = await client.call("PATCH", _PATH, body=body)
    notes = [answer["note"]] if answer.get("note") else []
    return CommandAnswer(answer, f"The {_PARTS[part]} is {model} of {provider}.", notes=notes)


@models.command()
@connected
async def test(client: Client) -> CommandAnswer:
    """Ask the models in force once. Nothing is stored."""
    answer = await client.call("POST", f"{_PATH}/test", body={}, patient=True)
    rows = [
        (_PARTS[part], one["model"], "answers" if one["ok"] else str(one["detail"]), f"{one['seconds']:.1f} s")
        for part in _PARTS
        if (one := answer[part])
    ]
    failed = any(one is not None and not one["ok"] for one in answer.values())
    return CommandAnswer(answer, Table(["model", "name", "result", "time"], rows, wide="result"), failed=failed)


@models.command()
@connected
async def reset(client: Client, *, part: Part) -> CommandAnswer:
    """Forget what was chosen: the settings of the service count again."""
    return CommandAnswer(
        await client.call("PATCH", _PATH, body={"mem0": {part: None}}),
        f"The {_PARTS[part]} is that of the settings.",
    )


@models.command()
@connected
async def instruct(
    client: Client,
    *,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="The instructions, without quotes; - reads standard input; none: removes."),
    ] = None,
) -> CommandAnswer:
    """Save what the language model is told besides when it looks for facts, or remove it."""
    instructions = (read_stdin() if text == ["-"] else words(text)) or None
    answer = await client.call("PATCH", _PATH, body={"openmemory": {"custom_instructions": instructions}})
    return CommandAnswer(answer, "Saved the instructions." if instructions else "Removed the instructions.")


def _key(key: str | None) -> str | None:
    """Returns the key to send. A key on the command line would be in the history of the shell."""
    if key is None or key.startswith("env:"):
        return key
    if key != "-":
        raise Invalid("--key", "must be env:NAME, or - to read the key from standard input")
    return read_stdin().strip()


def _address(provider: str, address: str | None) -> dict[str, str]:
    """Returns the part of the configuration that has the address of a provider."""
    if address is None:
        return {}
    from openmemory.saved_settings.providers import address_config

    return address_config(provider, address)
