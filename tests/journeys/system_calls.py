"""What a process and its children ask of the kernel, as strace writes it down: addresses and paths."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SENDING = "connect,sendto,sendmsg,sendmmsg"
_WRITING = (
    "open,openat,openat2,creat,mkdir,mkdirat,mknod,mknodat,link,linkat,symlink,symlinkat,rename,renameat,renameat2"
)
_HIDDEN = "io_uring_setup"
"""Makes a ring through which a process could do all of the above without a call that strace sees."""

_CALL = re.compile(r"^\d+ +(\w+)\((.*)$")
_INTERNET = re.compile(r'sin6?_port=htons\((\d+)\).*?(?:inet_addr\(|inet_pton\(AF_INET6, )"([^"]+)"')
_UNIX = re.compile(r'sun_path=@?"([^"]+)"')
_PATH = re.compile(r'(?:<([^>]*)>, )?"([^"]*)"')
_FAMILY = re.compile(r"sa_family=AF_(\w+)")
_FOR_WRITING = re.compile(r"O_(?:WRONLY|RDWR|CREAT|TMPFILE)")


@dataclass(frozen=True)
class Trace:
    """Everything that was called so far."""

    lines: tuple[str, ...]

    def addresses(self) -> set[tuple[str, int]]:
        """Addresses and ports that something was sent to, or tried to be."""
        return {(address, int(port)) for port, address in self._targets(_INTERNET)}

    def sockets(self) -> set[str]:
        """Paths of unix sockets that were connected to, or tried to be."""
        return set(self._targets(_UNIX))

    def families(self) -> set[str]:
        """Kinds of addresses that were sent to."""
        return set(self._targets(_FAMILY))

    def written(self) -> set[Path]:
        """Absolute paths that were made, replaced or opened for writing, or tried to be.

        Relative ones are left out: they are below the folder that a process runs in.
        """
        found: set[Path] = set()
        for name, arguments in self._calls(_WRITING):
            if not name.startswith("open") or _FOR_WRITING.search(arguments):
                given = arguments.partition(" = ")[0]
                found |= {Path(os.path.normpath(Path(base, path))) for base, path in _PATH.findall(given)}
        return {path for path in found if path.is_absolute()}

    def opened(self) -> set[Path]:
        """Absolute paths that were opened, for whatever purpose, or tried to be."""
        found: set[Path] = set()
        for name, arguments in self._calls(_WRITING):
            if name.startswith("open"):
                given = arguments.partition(" = ")[0]
                found |= {Path(os.path.normpath(Path(base, path))) for base, path in _PATH.findall(given)}
        return found

    def read(self, path: str) -> bool:
        """Says if the file was opened."""
        return any(f'"{path}"' in arguments for _, arguments in self._calls(_WRITING))

    def _calls(self, names: str) -> Iterator[tuple[str, str]]:
        wanted = set(names.split(","))
        for line in self.lines:
            if (call := _CALL.match(line)) and call[1] in wanted:
                yield call[1], call[2]

    def _targets(self, pattern: re.Pattern[str]) -> Iterator[tuple[str, ...] | str]:
        for _, arguments in self._calls(_SENDING):
            yield from pattern.findall(arguments)


def tracing(file: Path) -> list[str]:
    """The command under which a process is traced to a file, with all that it starts; its process id stays its own."""
    calls = ",".join(f"?{name}" for name in f"{_SENDING},{_WRITING}".split(","))  # not every machine has each of them
    # Paths and addresses are written down; what is sent is not.
    how = ["-D", "-f", "-y", "-q", "--seccomp-bpf", "-s", "0", "-e", "signal=none", "-o", str(file)]
    return ["strace", *how, "-e", f"trace={calls},{_HIDDEN}", "-e", f"inject={_HIDDEN}:error=ENOSYS"]


def ended(file: Path, pid: int) -> bool:
    """Says if the trace tells the end of this process."""
    # Short numbers are padded.
    return re.search(rf"^{pid} +\+\+\+ exited", file.read_text(errors="replace"), re.MULTILINE) is not None


def read(file: Path) -> Trace:
    """What was written to the file so far."""
    return Trace(tuple(file.read_text(errors="replace").splitlines()))
