from __future__ import annotations

import os
from pathlib import Path

from openmemory.embedded import server_log


def test_a_short_log_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "postgres.log"
    server_log.bound(log)
    log.write_text("short")
    server_log.bound(log)
    assert log.read_text() == "short"
    assert list(tmp_path.iterdir()) == [log]


def test_a_long_log_moves_aside_while_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "postgres.log"
    writer = server_log.open_log(log)
    try:
        for text in (b"first" * 10, b"second" * 10):
            os.write(writer, text)
            server_log.bound(log, largest=20)
            assert log.read_bytes() == b""
            assert (tmp_path / "postgres.log.1").read_bytes() == text
        os.write(writer, b"third")
        assert log.read_bytes() == b"third"
    finally:
        os.close(writer)


def test_a_failure_quotes_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "postgres.log"
    log.write_text("\n".join(f"line {number}" for number in range(1000)))
    told = str(server_log.failure(log, "does not start"))
    assert told == (f"The built-in PostgreSQL does not start: line 996 | line 997 | line 998 | line 999 (log: {log})")
