"""The answers of this version and of another one to the same requests, over REST, MCP and the command line.

    git worktree add ../before v1 && make -C ../before .venv/.dev
    python -m benchmarks answers ../before [--requests benchmarks/answers.txt] [--keep FOLDER]

Each version starts on an empty folder and answers the requests of `answers.txt` in their order. Names
replace ids, times, keys and addresses. A diff shows each answer that is still different.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import json
import os
import re
import shlex
import subprocess
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from string import Template
from typing import Any

import httpx

from benchmarks.service import HERE, idle, python_of, running_service, temporary_folder

USER = "anna"
REQUESTS = Path(__file__).with_name("answers.txt")
LINE = re.compile(r"(?:(?P<name>\w+) = )?(?P<door>\S+)(?: (?P<what>.*))?")
CALL = re.compile(r"(?P<tool>\S+)(?: @(?P<server>\w+))?(?: (?P<arguments>\{.*\}))?")
DATE = r"\d{4}-\d\d-\d\d"
ID = r"\b[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\b"
VOLATILE = {
    ID: "id",
    rf"\b{DATE}[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?": "time",
    rf"\b{DATE}\b": "date",
    r"\b1[78]\d{8}(?:\.\d+)?\b": "epoch",
    r"\bom_\w+": "key",
    r"\b(?=[0-9a-f]*\d)[0-9a-f]{8}\b|\bdata-\d+": "short",
    r"-?\b\d+\.\d{2,}(?:e-\d+)?\b": "score",
    r"127\.0\.0\.1:\d+": "address",
    r"\b\d+(?:\.\d+)? ?(?:ms|s|seconds?)\b": "duration",
}
"""Patterns of values that differ from run to run, and the names that replace them."""

STAND_INS = re.compile("|".join(f"(?P<{name}>{pattern})" for pattern, name in VOLATILE.items()))


class Session:
    """Sends requests to one service, and replaces the values that differ from run to run.

    async with httpx.AsyncClient(base_url=url) as http:
        answers = await Session(http, checkout, folder).answers(lines)
    """

    def __init__(self, http: httpx.AsyncClient, checkout: Path, folder: Path) -> None:
        self._http = http
        self._checkout = checkout
        self._folder = folder
        self._names: dict[str, str] = {}

    async def answers(self, lines: list[str]) -> list[list[str]]:
        """Returns the answer to each request, in lines."""
        answers = []
        for line in lines:
            if line == "wait":
                await idle(str(self._http.base_url))
                answers.append([])
            else:
                answer = stable(await self._answer(line), {id_: name for name, id_ in self._names.items()})
                answers.append([one.rstrip() for one in answer.splitlines()])
        return answers

    async def _answer(self, line: str) -> str:
        match = LINE.fullmatch(line)
        assert match is not None, line
        what = Template(match["what"] or "").safe_substitute(self._names)
        if match["door"] == "tool":
            status, answer = await self._tool(what)
        elif match["door"] == "command":
            status, answer = await asyncio.to_thread(self._command, what)
        else:
            status, answer = await self._rest(match["door"], what)
        if match["name"] and (first := first_id(answer)):
            self._names[match["name"]] = first
        shown = answer if isinstance(answer, str) else json.dumps(answer, indent=1, ensure_ascii=False)
        return f"{status}\n{shown}"

    async def _rest(self, method: str, what: str) -> tuple[str, Any]:
        path, _, body = what.partition(" ")
        headers = {"Content-Type": "application/json"} if body else {}
        answer = await self._http.request(method, path, content=body or None, headers=headers)
        kind = answer.headers.get("content-type", "")
        return f"{answer.status_code} {kind}", answer.json() if kind.endswith("json") else answer.text

    async def _tool(self, what: str) -> tuple[str, Any]:
        match = CALL.fullmatch(what)
        assert match is not None, what
        call = {"name": match["tool"], "arguments": json.loads(match["arguments"] or "{}")}
        answer = await self._http.post(
            f"/mcp/claude/http/{USER}",
            params={"as": match["server"]} if match["server"] else {},
            json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call},
            headers={"Accept": "application/json, text/event-stream"},
        )
        result = answer.json()
        for content in result.get("result", {}).get("content", []):
            try:
                content["text"] = json.loads(content["text"])
            except ValueError:
                content["text"] = content["text"].splitlines()
        return str(answer.status_code), result

    def _command(self, what: str) -> tuple[str, Any]:
        done = subprocess.run(
            [python_of(self._checkout).parent / "openmemory", *shlex.split(what)],
            cwd=self._folder.parent,
            env=os.environ
            | {"OPENMEMORY_DATA_DIR": str(self._folder), "OPENMEMORY_ACCESS_DEFAULT_USER": USER}
            | {"HOME": str(self._folder.parent), "COLUMNS": "80"},
            capture_output=True,
            check=False,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        return f"exit {done.returncode}", done.stdout + done.stderr


def stable(text: str, names: dict[str, str]) -> str:
    """Replaces the values that differ from run to run with names. `names`: the names of known ids."""
    return STAND_INS.sub(lambda match: f"<{names.get(match[0], match.lastgroup)}>", text)


def requests(file: Path) -> list[str]:
    """The requests of a file: each line that is no comment."""
    return [line for line in file.read_text().splitlines() if line and not line.startswith("#")]


def first_id(answer: Any) -> str | None:
    """The first `id` in an answer, however deep, or the first id in a text."""
    if isinstance(answer, str):
        match = re.search(ID, answer)
        return match[0] if match else None
    if isinstance(answer, dict) and isinstance(answer.get("id"), str):
        return str(answer["id"])
    parts = answer.values() if isinstance(answer, dict) else answer if isinstance(answer, list) else ()
    return next(filter(None, (first_id(part) for part in parts if isinstance(part, dict | list))), None)


async def session(url: str, checkout: Path, folder: Path, lines: list[str]) -> list[list[str]]:
    """The answers of a service that has just begun."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        return await Session(http, checkout, folder).answers(lines)


def main() -> None:
    """Ask both versions and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout of the other version")
    parser.add_argument("--requests", type=Path, default=REQUESTS)
    parser.add_argument("--keep", type=Path, help="write the answers of both versions to this folder")
    arguments = parser.parse_args()
    lines = requests(arguments.requests)
    answers = []
    with ExitStack() as stack:
        data = stack.enter_context(temporary_folder("answers"))
        for name, checkout in (("before", arguments.before.resolve()), ("now", HERE)):
            folder = data / name / "data"
            folder.parent.mkdir()
            with running_service(folder, checkout, OPENMEMORY_ACCESS_DEFAULT_USER=USER) as url:
                answers.append(asyncio.run(session(url, checkout, folder, lines)))
            if arguments.keep:
                arguments.keep.mkdir(parents=True, exist_ok=True)
                asked = (["> " + line, *answer, ""] for line, answer in zip(lines, answers[-1], strict=True))
                (arguments.keep / f"{name}.txt").write_text("\n".join(chain.from_iterable(asked)))
    different = 0
    for line, before, now in zip(lines, *answers, strict=True):
        if before != now:
            different += 1
            print(f"> {line}", *difflib.unified_diff(before, now, n=2, lineterm=""), sep="\n", end="\n\n")
    print(f"{different} of {len(lines)} answers differ")


if __name__ == "__main__":
    main()
