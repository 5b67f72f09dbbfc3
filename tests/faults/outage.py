"""What a user of the service sees while something behind it fails, and what must never be seen."""

from __future__ import annotations

import json
import time
from itertools import count
from statistics import median
from typing import Any, ClassVar
from uuid import uuid4

import httpx

from openmemory.search.candidates.retrieval import INDEX_BEHIND

RECOVERY = 60.0
"""Seconds after a fault within which the service must be whole again, by itself."""

NO_INDEX = "Using text search (vector store unavailable)"
NO_EMBEDDER = "Using text search (embedder unavailable)"

# All are near to the question for the embedder of these tests, so that no bound of scores leaves one out.
KEPT = "The lighthouse keeper polishes the brass lamp every evening."
DELETED = "The lighthouse safe opens with the code four seven one."
DENIED = "The lighthouse diary tells of the debt."
BEFORE = "The lighthouse bell is on the roof."
AFTER = "The lighthouse bell is on the wall."
NEW = "The lighthouse cat sleeps on the stairs."


class Outage:
    """One user's memories across one fault. Every search is held against what the user may see at that moment."""

    asked: ClassVar[count[int]] = count(1)  # shared: a service keeps the vectors of what any test asked it

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(base_url=url, timeout=40)
        self.user = f"user-{uuid4().hex[:10]}"
        self.searches: list[float] = []
        self.writes: list[float] = []
        self.ids: dict[str, str] = {}

    def close(self) -> None:
        self.client.close()

    def begin(self) -> None:
        """Store the memories and wait until they are found by meaning; how long writes take then is the measure."""
        for text in (KEPT, DELETED, DENIED, BEFORE):
            self.add(text)
        self.whole(RECOVERY)
        self.healthy_write = median(self.writes)
        self.writes.clear()
        self.searches.clear()

    def change(self) -> None:
        """Delete, deny, reword and add, each answered as quickly as ever."""
        body = {"user_id": self.user, "memory_ids": [self.ids[DELETED]]}
        self._written("DELETE", "/api/v1/memories", body)
        del self.ids[DELETED]
        rule = {"user_id": self.user, "effect": "deny", "app": "reader", "object_type": "memory"}
        self._written("POST", "/api/v1/grants", rule | {"object": self.ids.pop(DENIED)})
        memory = self.ids.pop(BEFORE)
        self._written("PUT", f"/api/v1/memories/{memory}", {"user_id": self.user, "memory_content": AFTER})
        self.ids[AFTER] = memory
        self.add(NEW)
        assert max(self.writes) < max(1.0, 10 * self.healthy_write), self.writes

    def add(self, text: str) -> None:
        answer = self._written(
            "POST", "/api/v1/memories", {"user_id": self.user, "app": "reader", "text": text, "infer": False}
        )
        self.ids[text] = answer["id"]

    def search(self) -> dict[str, Any]:
        """Asks for what all texts contain. The spaces are new each time, so that no vector is cached."""
        query = f"the{' ' * next(self.asked)}lighthouse"
        body = {"user_id": self.user, "app": "reader", "query": query, "limit": 20}
        started = time.perf_counter()
        answer = self.client.post("/api/v1/memories/search", json=body)
        self.searches.append(time.perf_counter() - started)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        scores = {it["memory"]: it["score"] for it in found["results"]}
        assert set(scores) == set(self.ids), (scores, found["search_method"], found["note"])
        return found

    def degraded(self, note: str, *, times: int, each: float, quickly: float) -> None:
        """Text search answers: each time within `each` seconds, and within `quickly` once the failures are known."""
        for _ in range(times):
            found = self.search()
            assert (found["search_method"], found["note"]) == ("database_text", note), found
        taken = self.searches[-times:]
        assert max(taken) < each, taken
        assert median(taken[-4:]) < quickly, taken

    def hybrid(self, *, times: int) -> None:
        """Nothing is to be seen of the fault."""
        for _ in range(times):
            found = self.search()
            assert found["search_method"] == "hybrid", found["note"]
            # What was written may wait longer than a search keeps silent about, while this machine is busy.
            assert found["note"] is None or found["note"].startswith(INDEX_BEHIND), found["note"]

    def whole(self, within: float = RECOVERY) -> float:
        """Wait until searches are hybrid and find every memory by meaning, and the index equals PostgreSQL; how long
        that took. What may not be seen is not seen meanwhile."""
        started = time.monotonic()
        while True:
            found = self.search()
            doctor = self.doctor()
            cosines = [it["parts"]["cosine"] is not None for it in found["results"]]
            state = (found["search_method"], all(cosines), doctor["drift"], doctor["vectors_waiting"])
            if state == ("hybrid", True, 0, 0):
                return time.monotonic() - started
            assert time.monotonic() - started < within, (state, doctor["problems"])
            time.sleep(0.2)

    def doctor(self) -> dict[str, Any]:
        answer = self.client.get("/api/v1/doctor")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def report(self, fault: str, faulted: int, recovered: float) -> None:
        """One line of figures, shown by `pytest -s`."""
        taken = {
            "fault": fault, "requests spoilt": faulted, "recovered in s": round(recovered, 1),
            "searches": len(self.searches), "slowest search ms": round(1000 * max(self.searches)),
            "slowest write ms": round(1000 * max(self.writes, default=0)),
        }  # fmt: skip
        print(json.dumps(taken))

    def _written(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        started = time.perf_counter()
        answer = self.client.request(method, path, json=body)
        self.writes.append(time.perf_counter() - started)
        assert answer.status_code in (200, 201), answer.text
        return dict(answer.json())
