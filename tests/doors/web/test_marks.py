"""The marked words of the list, as a browser without scripts sees them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.doors.web.conftest import Visitor


@pytest.mark.parametrize(
    ("query", "text", "marked"),
    [
        ("Where do I keep the Docker files?", "I ignore Docker in Dorset.", ["Docker"]),
        ("is the cat in a car", "The category of cars: is it a CAT?", ["CAT"]),
        ("Anna's tea", "Bob's TEA is Anna's s-bend.", ["TEA", "Anna"]),
        ("who are you", "You are who you are.", []),
        ("get user", "get_user(user_id) forgets users", ["get", "user", "user"]),
        ("node.js", "A node of .js and nodes", ["node", "js"]),
        ("我的咖啡 café", "她喜欢我的咖啡。 Le café.", ["我的咖啡", "café"]),
    ],
)
async def test_only_whole_words_that_name_a_subject_are_marked(
    visitor: Visitor, remember: Callable[..., Any], query: str, text: str, marked: list[str]
) -> None:
    await remember(visitor.user, text)
    assert re.findall("<mark>(.*?)</mark>", await visitor.get("memories", q=query)) == marked


async def test_a_part_of_the_text_is_marked_as_it_was_looked_for(
    visitor: Visitor, remember: Callable[..., Any]
) -> None:
    await remember(visitor.user, "The category of the cat.")
    shown = await visitor.get("memories", q="The Cat", state="any")
    assert re.findall("<mark>(.*?)</mark>", shown) == ["The cat", "the cat"]
