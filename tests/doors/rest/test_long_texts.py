"""Texts that take long to cut: the service answers meanwhile, and says what it stored without."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from openmemory.sources.reading import PLAIN, TextReader

CODE = "class Cart:\n" + "\n".join(f"    def pay{n}(self):\n        return {n}\n" for n in range(100))
GUIDE = "# Shop\n\nSells.\n\n## Pay\n\nOnly with cards.\n"


async def test_every_door_for_texts_says_what_is_missing(
    client: httpx.AsyncClient, new_user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TextReader.__init__, "__kwdefaults__", {"defines": False, "seconds": 0.0})
    whose = {"user_id": new_user, "app": "cursor", "namespace": "shop"}

    async def stored(path: str, **request: Any) -> Any:
        answer = await client.post(f"/api/v1/{path}", **request)
        assert answer.status_code == 200, answer.text
        return answer.json()

    batch = await stored("files/batch", json=whose | {"files": [{"path": "a.py", "text": CODE}]})
    assert (batch["results"][0]["event"], batch["results"][0]["note"]) == ("ADD", PLAIN)
    session = await stored("sessions", json=whose | {"number": 1, "title": "A talk", "content": GUIDE})
    assert (session["event"], session["note"]) == ("ADD", PLAIN)
    document = await stored("documents", data=whose, files={"file": ("guide.md", GUIDE.encode())})
    assert (document["event"], document["note"]) == ("ADD", PLAIN)


async def test_the_service_answers_while_a_large_text_is_cut(
    client: httpx.AsyncClient, new_user: str, in_bulk: None
) -> None:
    text = CODE * (300_000 // len(CODE))
    body = {"user_id": new_user, "app": "cursor", "files": [{"path": "a.py", "text": text}]}
    storing = asyncio.create_task(client.post("/api/v1/files/batch", json=body))
    answered = 0
    while not (await asyncio.wait({storing}, timeout=0.02))[0]:
        assert (await client.get("/health/live")).status_code == 200
        answered += 1
    assert (await storing).status_code == 200
    assert answered > 1
