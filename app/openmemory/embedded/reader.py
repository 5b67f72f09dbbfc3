"""Runs a short process that reads one file and prints an answer."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from subprocess import DEVNULL, PIPE

from openmemory.embedded.processes import environment


async def run_reader(module: str, argument: str, file: int, *, within: float, most: int) -> tuple[int, bytes]:
    """Runs a module of ours with a file as its input. Returns its exit code and its output.

    A process that takes longer than `within` seconds, or prints more than `most` bytes, is ended, and has no output.
    """
    # -I: nothing of the environment and of the working folder decides what is imported.
    command = (sys.executable, "-I", "-m", module, argument)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=file, stdout=PIPE, stderr=DEVNULL, cwd="/", env=environment(), start_new_session=True
    )
    output = bytearray()
    try:
        async with asyncio.timeout(within):
            assert process.stdout is not None
            while data := await process.stdout.read(1 << 16):
                output += data
                if len(output) > most:
                    return 1, b""
            return await process.wait(), bytes(output)
    except TimeoutError:
        return 1, b""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
