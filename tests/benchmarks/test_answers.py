"""The requests whose answers are compared between versions can be read, and what is volatile gets a stand-in."""

from __future__ import annotations

import json
import shlex

import pytest

from benchmarks.answers import CALL, LINE, REQUESTS, first_id, requests, stable

ID = "0d9c5e0e-3d3b-4b6f-9a53-0f6d1f7b8c11"


@pytest.mark.parametrize("line", requests(REQUESTS))
def test_each_request_can_be_read(line: str) -> None:
    match = LINE.fullmatch(line)
    assert match is not None
    if match["door"] == "command":
        assert shlex.split(match["what"])
    elif match["door"] == "tool":
        call = CALL.fullmatch(match["what"])
        assert call is not None
        assert isinstance(json.loads(call["arguments"] or "{}"), dict)
    else:
        assert line == "wait" or (
            match["door"] in {"GET", "POST", "PUT", "PATCH", "DELETE"} and match["what"][0] == "/"
        )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f'"id": "{ID}", "by": "{ID.replace("0d", "1e")}"', '"id": "<tea>", "by": "<id>"'),
        ('"created_at": "2026-11-29T12:00:01.5Z", "day": "2026-11-29"', '"created_at": "<time>", "day": "<date>"'),
        ('"created_at": 1764417600, "size": 20', '"created_at": <epoch>, "size": 20'),
        ("score -0.1234, in 12.5 ms, at http://127.0.0.1:8765/", "score <score>, in <duration>, at http://<address>/"),
        ("7f9d2dd0 <data-66399630> om_a1b2_c3", "<short> <<short>> <key>"),
        ("nothing of this changes: 17 of 20, deadbeef", "nothing of this changes: 17 of 20, deadbeef"),
    ],
)
def test_what_differs_between_two_runs_gets_a_stand_in(line: str, expected: str) -> None:
    assert stable(line, {ID: "tea"}) == expected


def test_the_first_id_of_an_answer_is_that_of_what_was_made() -> None:
    assert first_id({"results": [{"id": ID}]}) == ID
    assert first_id({"total": 0, "items": []}) is None
    assert first_id(f"Added {ID}.\n") == ID
