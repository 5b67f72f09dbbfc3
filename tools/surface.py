"""Writes the interfaces of REST, MCP and the command line to files, to compare two versions.

    python tools/surface.py FOLDER

Writes `openapi.json`, `tools.json` with the list that each choice of toolsets gives, and the parts of the reference,
among them the help of every command. `diff -r` of two folders shows each difference.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import reference
from fastapi import FastAPI

from openmemory.doors.mcp.server import TOOLS
from openmemory.doors.rest.api import include_rest


def openapi() -> Any:
    """The description of REST, with the parameters of each operation in the order of their names."""
    app = FastAPI()
    include_rest(app)
    described = app.openapi()
    for item in described["paths"].values():
        for operation in item.values():
            operation.get("parameters", []).sort(key=lambda one: (one["in"], one["name"]))
    return described


def tools() -> Any:
    """The tools as `tools/list` gives them, by toolset; those that are always listed are under "default"."""
    listed: dict[str, list[Any]] = {}
    for tool in TOOLS.values():
        listed.setdefault(tool.toolset or "default", []).append(tool.listing().model_dump(mode="json"))
    return listed


def main(folder: Path) -> None:
    """Writes all files."""
    reference.main(folder)
    for name, shown in {"openapi": openapi(), "tools": tools()}.items():
        text = json.dumps(shown, indent=2, ensure_ascii=False, sort_keys=True)
        (folder / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Write the interfaces to files, to compare two versions.")
    arguments.add_argument("folder", type=Path, help="the folder to write to; it is made if it is missing")
    main(arguments.parse_args().folder)
