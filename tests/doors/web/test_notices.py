"""The words on the last action, as a browser without scripts sees them."""

from __future__ import annotations

import pytest

from tests.doors.web.conftest import Visitor


@pytest.mark.slow
async def test_a_notice_is_for_the_user_who_caused_it(visitor: Visitor) -> None:
    await visitor.get("memories")
    await visitor.submit("memories", text="The plan is secret.")
    await visitor.submit(f"memory/{visitor.memory_ids[0]}/file", categories="plans")
    assert "Filed under plans." in visitor.words
    await visitor.get("memories", user="default_user")
    assert "Filed" not in visitor.words
    await visitor.get("memories")
    assert "Filed under plans." in visitor.words


async def test_a_notice_without_undo_belongs_to_the_page_it_came_with(visitor: Visitor) -> None:
    await visitor.get("memories")
    await visitor.submit("memories", text="Alice drinks tea.")
    assert "Added." in visitor.words
    memory = f"memory/{visitor.memory_ids[0]}"
    for path in (memory, "activity", "memories"):
        await visitor.get(path)
        assert "Added." not in visitor.words
    await visitor.get(memory)
    await visitor.submit(f"{memory}/edit", text="Alice drinks tea.")
    assert "Nothing changed: it says this already." in visitor.words
    await visitor.get("settings")
    assert "Nothing changed" not in visitor.words


async def test_a_notice_with_undo_stays_on_the_next_pages(visitor: Visitor) -> None:
    await visitor.get("memories")
    await visitor.submit("memories", text="Alice drinks tea.")
    memory = f"memory/{visitor.memory_ids[0]}"
    await visitor.submit(f"{memory}/edit", text="Alice drinks coffee.")
    await visitor.get("activity")
    assert ">Undo<" in visitor.shown
    await visitor.submit(f"{memory}/revert", revision="2")
    assert "It is as before." in visitor.words
    await visitor.get("activity")
    assert "It is as before." not in visitor.words
    assert ">Undo<" not in visitor.shown
