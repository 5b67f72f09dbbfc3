"""`openmemory doctor`: checks every component and reports problems."""

from __future__ import annotations

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import Json


@connected
async def doctor(client: Client, json: Json = False) -> None:
    """Look at every store and say what is wrong; exit code 1 if anything is."""
    from openmemory.cli.output import as_json, plain, table, working

    with working("Looking at every part"):
        found = await client.call("GET", "/api/v1/doctor", patient=True)
    if json:
        as_json(found)
    else:
        print(f"OpenMemory {found['version']}: {found['status']}")
        rows = [
            (
                name,
                "ok" if check["ok"] else "FAILS",
                ", ".join(f"{key} {value}" for key, value in check["detail"].items())
                if check["ok"]
                else check["error"],
                f"{check['milliseconds']:.0f} ms",
            )
            for name, check in found["checks"].items()
        ]
        rows += [(name.replace("_", " "), count, "", "") for name, count in found["counts"].items()]
        rows += [
            ("vectors waiting", found["marks_waiting"], "", ""),
            ("vectors stuck", found["marks_stuck"], "", ""),
            ("vectors that differ", "unknown" if found["drift"] is None else found["drift"], "", ""),
        ]
        rows += [
            (f"collection {one['state']}", one["points"], f"{one['collection']} ({one['model']})", "")
            for one in found["collections"]
        ]
        table(["", "", "detail", ""], rows, wide="detail")
        for problem in found["problems"]:
            print(f"Problem: {plain(problem)}")
    if found["problems"]:
        raise typer.Exit(1)
