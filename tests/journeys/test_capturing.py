"""kill -9 in the middle of extracting facts: no text is lost, and nothing is done twice."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.journeys.service import Service, short_parent, starting, until
from tests.llm.server import Answer, LlmServer, says

KILLS = int(os.environ.get("OPENMEMORY_TEST_KILLS", "4"))
TEXTS = 60
WRITERS = 6


@pytest.fixture
def model() -> Iterator[LlmServer]:
    """It adds each note once, under the number that stands in it."""

    def answer(asked: dict[str, Any]) -> Answer:
        number = re.findall(r"Note (\d+):", asked["messages"][1]["content"].rpartition("<said-")[2])[0]
        operation = {"op": "ADD", "id": None, "text": f"Fact {number}.", "categories": ["notes"], "kind": "fact",
                     "importance": 5, "from": None, "until": None, "reason": None}  # fmt: skip
        return says({"operations": [operation]}, delay=random.uniform(0, 0.4))

    made = LlmServer(answer)
    yield made
    made.close()


def write(url: str, number: int, deadline: float) -> None:
    """Send a note until it is acknowledged, as a careful client would."""
    body = {"user_id": "alice", "text": f"Note {number}: keep it.", "app": f"app-{number % 4}", "async": True}
    while True:
        assert time.monotonic() < deadline, "the service did not come back"
        try:
            answer = httpx.post(
                f"{url}/api/v1/memories", json=body, headers={"Idempotency-Key": str(number)}, timeout=10
            )
            if answer.status_code in (200, 202):
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)


def everything(url: str, path: str, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    page = 1
    while True:
        got = httpx.get(
            f"{url}{path}", params={"user_id": "alice", "size": 100, "page": page, **params}, timeout=30
        ).json()
        found += got["items"]
        if len(found) >= got["total"] or not got["items"]:
            return found
        page += 1


def settings(model: LlmServer) -> dict[str, str]:
    return {
        "OPENMEMORY_LLM_PROVIDER": "openai",
        "OPENMEMORY_LLM_MODEL": "m",
        "OPENMEMORY_LLM_API_KEY": "test-key-0123456789",
        "OPENMEMORY_LLM_BASE_URL": model.url,
        "OPENMEMORY_LOG_LEVEL": "warning",
    }


@pytest.mark.slow
@pytest.mark.journey
@pytest.mark.timeout(600)
def test_kills_lose_no_text_and_do_nothing_twice(model: LlmServer, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(11)
    with short_parent() as parent:
        folder = Path(parent) / "killed"
        with starting(folder) as start:
            service: Service = start(**settings(model))
            url = service.ready()
            port = url.rpartition(":")[2]
            deadline = time.monotonic() + 400
            with ThreadPoolExecutor(WRITERS) as writers:
                written = [writers.submit(write, url, number, deadline) for number in range(TEXTS)]
                for _ in range(KILLS):
                    before = len(model.asked)
                    until(lambda before=before: len(model.asked) > before, 60)  # type: ignore[misc]
                    time.sleep(chance.uniform(0, 0.5))
                    os.kill(service.process.pid, signal.SIGKILL)
                    service.process.wait(10)
                    service = start("--port", port, **settings(model))
                    service.ready()
                for each in written:
                    each.result()
            while True:
                captures = everything(url, "/api/v1/captures")
                if all(one["status"] == "done" for one in captures):
                    break
                assert time.monotonic() < deadline, [one for one in captures if one["status"] != "done"][:3]
                time.sleep(0.5)
            facts = [item["content"] for item in everything(url, "/api/v1/memories")]
            interrupted = sum(one["attempts"] > 1 for one in captures)
    assert len(captures) == TEXTS
    assert interrupted > 0, "no kill came in between"
    lost = {f"Fact {number}." for number in range(TEXTS)} - set(facts)
    assert lost == set()
    assert len(facts) == len(set(facts)) == TEXTS, "something was applied twice"
    assert [len(one["results"]) for one in captures] == [1] * TEXTS
    assert {one["results"][0]["event"] for one in captures} == {"ADD"}, "NONE: it was there already"
    with capsys.disabled():
        print(
            f"\n{KILLS} kills, {TEXTS} texts, {interrupted} interrupted, {len(model.asked)} questions; lost 0, twice 0"
        )


@pytest.mark.slow
@pytest.mark.journey
@pytest.mark.timeout(300)
def test_nothing_leaves_unless_a_model_is_configured(tmp_path: Path) -> None:
    """Every socket of the service, as the kernel lists them, while texts are added with infer=true."""
    with short_parent() as parent, starting(Path(parent) / "alone") as start:
        service = start(OPENAI_API_KEY="test-key-0123456789", OPENROUTER_API_KEY="test-key-0123456789")
        url = service.ready()
        seen: set[str] = set()
        for number in range(10):
            body = {"user_id": "alice", "text": f"Text {number}."}
            assert httpx.post(f"{url}/api/v1/memories", json=body, timeout=30).status_code == 200
            for process in service.family():
                for socket in process.net_connections("inet"):
                    if socket.raddr and not socket.raddr.ip.startswith("127."):
                        seen.add(socket.raddr.ip)
        assert seen == set()
