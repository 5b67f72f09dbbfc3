"""Every path answers with and without a trailing slash, and redirects nobody: old clients do not follow a 307."""

from __future__ import annotations

import httpx
import pytest


@pytest.mark.parametrize("path", ["/api/v1/memories", "/api/v1/apps"])
@pytest.mark.parametrize("slash", ["", "/"])
async def test_lists_answer_under_both_forms(api: httpx.AsyncClient, path: str, slash: str) -> None:
    answer = await api.get(path + slash, params={"user_id": "default_user"})
    assert answer.status_code == 200, answer.text
