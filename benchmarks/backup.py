"""An archive out of one service and into a fresh one: seconds, the service's memory while it works, and equality.

    python -m benchmarks backup [--sizes 10000,100000] [--folder FOLDER]

For every size a service whose user has that many memories is exported over HTTP, the archive is brought in by a service
on a new folder, and that one is exported again: both archives must say the same, apart from when they were made. The
peak is what the kernel says of the service process (VmHWM, reset before each request), less what it had before: it must
not grow with the archive. With `--folder` the filled folders are kept and used again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import hashlib
import json
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.seed import USER, seed
from benchmarks.service import idle, running_service, temporary_folder
from openmemory.backup.json_stream import entries

PATIENT = httpx.Timeout(10, read=None, write=None)
MIB = 2**20


@dataclass
class Figures:
    """One request: seconds, MiB in memory before, and at most while it was answered."""

    seconds: float
    before: float
    peak: float

    def __str__(self) -> str:
        grown = self.peak - self.before
        return f"{self.seconds:7.1f} s   peak {self.peak:6.0f} MiB, {grown:5.0f} above the {self.before:.0f} before"


def fields(number: int) -> dict[str, Any]:
    """What memories have besides their texts."""
    return {
        "categories": (f"subject-{number % 40}",),
        "namespace": f"project-{number % 7}",
        "metadata": {"source": "benchmark", "number": number, "tags": ["a", "b"]},
    }


class Process:
    """The memory of the process that serves."""

    def __init__(self, data_dir: Path) -> None:
        self.folder = Path("/proc") / str(json.loads((data_dir / "service.json").read_text())["pid"])

    def _of(self, name: str) -> float:
        for line in (self.folder / "status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) / 1024
        raise RuntimeError(f"the kernel tells no {name}")

    @contextlib.contextmanager
    def watched(self, into: dict[str, Figures], name: str) -> Iterator[None]:
        (self.folder / "clear_refs").write_text("5")
        before, started = self._of("VmRSS"), time.perf_counter()
        yield
        into[name] = Figures(time.perf_counter() - started, before, self._of("VmHWM"))
        print(f"  {name:24}{into[name]}", flush=True)


async def settled(url: str) -> None:
    """Wait until nothing else goes on: what was added is delivered, and the sync of the start is over."""
    await idle(url)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENT) as http:
        for _ in range(400):
            if (await http.post("/api/v1/sync", params={"dry_run": True})).status_code == 200:
                return
            await asyncio.sleep(0.5)
    raise TimeoutError("the sync does not end")


def export(url: str, into: Path) -> None:
    """A user's archive as a file."""
    body = {"user_id": USER}
    with (
        httpx.stream("POST", f"{url}/api/v1/backup/export", json=body, timeout=PATIENT) as answer,
        into.open("wb") as file,
    ):
        answer.raise_for_status()
        for data in answer.iter_bytes():
            file.write(data)


def bring_in(url: str, archive: Path) -> dict[str, Any]:
    """Bring an archive in; the report."""
    with archive.open("rb") as file:
        answer = httpx.post(
            f"{url}/api/v1/backup/import",
            files={"file": (archive.name, file, "application/zip")},
            data={"user_id": USER},
            timeout=PATIENT,
        )
    answer.raise_for_status()
    report: dict[str, Any] = answer.json()["report"]
    return report


def digests(archive: Path, own: dict[str, str]) -> dict[str, Counter[bytes]]:
    """Every record of an archive by its list, as a digest. `own`: ids of this archive and what stands for them, since
    users and apps of the default's names are there before anything comes in."""
    found: dict[str, Counter[bytes]] = {}

    def note(kind: str, value: Any) -> None:
        text = json.dumps(value, sort_keys=True)
        for id_, name in own.items():
            text = text.replace(id_, name)
        found.setdefault(kind, Counter())[hashlib.sha256(text.encode()).digest()] += 1

    with zipfile.ZipFile(archive) as zipped:
        with zipped.open("memories.json") as member:
            for entry in entries(member.read, "memories.json"):
                if entry.key in ("export_meta", "user", "apps") or entry.number == -1:
                    continue
                note(entry.key, entry.value)
        for name in zipped.namelist():
            if name.endswith(".gz"):
                with zipped.open(name) as member, gzip.open(member) as lines:
                    for line in lines:
                        note(name, json.loads(line))
    return found


def names(archive: Path) -> dict[str, str]:
    """The ids of the user and the apps, each with its name."""
    own = {}
    with zipfile.ZipFile(archive) as zipped, zipped.open("memories.json") as member:
        for entry in entries(member.read, "memories.json"):
            if entry.key == "user":
                own[entry.value["id"]] = "user:" + entry.value["user_id"]
            elif entry.key == "apps" and entry.value is not None:
                own[entry.value["id"]] = "app:" + entry.value["name"]
            elif entry.key == "memories":
                break
    return own


async def measure(size: int, folder: Path) -> None:
    """Out, in, and out again."""
    full = folder / f"backup-{size}"
    if not (full / "data").exists():
        full.mkdir(parents=True)
        started = time.perf_counter()
        await asyncio.to_thread(seed, full / "data", size, fields)
        print(f"  filled in {time.perf_counter() - started:.0f} s")
    done: dict[str, Figures] = {}
    with temporary_folder("backup") as fresh:
        first, second = folder / f"first-{size}.zip", folder / f"second-{size}.zip"
        with running_service(full / "data") as url:
            await settled(url)
            with Process(full / "data").watched(done, "export"):
                await asyncio.to_thread(export, url, first)
        with running_service(fresh / "data", OPENMEMORY_ACCESS_DEFAULT_USER=USER) as url:
            await settled(url)
            with Process(fresh / "data").watched(done, "import"):
                report = await asyncio.to_thread(bring_in, url, first)
            assert report["memories"]["added"] == report["vectors"] == size, report
            assert report["left_out"] == [], report
            started = time.perf_counter()
            await idle(url)
            print(f"  {'indexed after':24}{time.perf_counter() - started:7.1f} s")
            await settled(url)
            with Process(fresh / "data").watched(done, "import once more"):
                again = await asyncio.to_thread(bring_in, url, first)
            assert again["memories"]["unchanged"] == size, again
            await asyncio.to_thread(export, url, second)
    one, two = digests(first, names(first)), digests(second, names(second))
    for kind, records in one.items():
        assert records == two[kind], f"{kind}: {len(records - two[kind])} are not the same"
    print(
        f"  the same by content: {sum(records.total() for records in one.values()):,} records of {len(one)} kinds; "
        f"{first.stat().st_size / MIB:.0f} MiB"
    )
    first.unlink()
    second.unlink()


def main() -> None:
    """Measure every size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000", help="numbers of memories")
    parser.add_argument("--folder", type=Path, help="where filled folders are kept")
    given = parser.parse_args()
    with temporary_folder("bench") as temporary:
        for size in map(int, given.sizes.split(",")):
            print(f"{size:,} memories", flush=True)
            asyncio.run(measure(size, given.folder or temporary))


if __name__ == "__main__":
    main()
