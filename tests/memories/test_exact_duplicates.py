"""A text is stored once per app and namespace, whichever line ends, blanks and composition it comes with."""

from __future__ import annotations

import pytest

from openmemory.errors import ConflictError
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import Event, MemoryCreate, MemoryUpdate
from openmemory.services import Services

TEXT = "Zoé sings:\n- jazz\n- fado"
FORMS = {
    "NFD": "Zoe\u0301 sings:\n- jazz\n- fado",
    "Windows": "Zoé sings:\r\n- jazz\r\n- fado\r\n",
    "old Mac": "Zoé sings:\r- jazz\r- fado",
    "trailing blanks": "Zoé sings: \n- jazz\t\n- fado\n\n",
    "leading blanks": "\n Zoé sings:\n- jazz\n- fado",
    "no-break space": "Zoé sings:\u00a0\n- jazz\n- fado\u00a0",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_another_form_of_a_text_is_the_same_memory(services: Services, owner: Caller, form: str) -> None:
    first = await services.memories.add(owner, MemoryCreate(text=TEXT))
    again = await services.memories.add(owner, MemoryCreate(text=form))
    assert (first.event, again.event, again.id) == (Event.ADD, Event.NONE, first.id)
    one, two = await services.memories.add_many(owner, [MemoryCreate(text=form), MemoryCreate(text="Ada draws")])
    assert (one.event, one.id, two.event) == (Event.NONE, first.id, Event.ADD)
    with pytest.raises(ConflictError):
        await services.memories.update(owner, two.id, MemoryUpdate(text=form))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_a_text_is_stored_as_it_came_and_may_change_its_form(
    services: Services, owner: Caller, form: str
) -> None:
    added = await services.memories.add(owner, MemoryCreate(text=form))
    assert (await services.memories.get(owner, added.id)).content == form
    changed = await services.memories.update(owner, added.id, MemoryUpdate(text=TEXT))
    assert changed.memory.content == TEXT


@pytest.mark.parametrize(
    "other",
    [
        "Zoé sings: - jazz - fado", "Zoé sings:\n\n- jazz\n- fado", "zoé sings:\n- jazz\n- fado",
        "Zoe sings:\n- jazz\n- fado", "Zoé sings:\n  - jazz\n- fado",
    ],
)  # fmt: skip
async def test_a_text_that_may_mean_something_else_is_another_memory(
    services: Services, owner: Caller, other: str
) -> None:
    await services.memories.add(owner, MemoryCreate(text=TEXT))
    assert (await services.memories.add(owner, MemoryCreate(text=other))).event is Event.ADD
