from __future__ import annotations

from uuid import uuid4

from openmemory.identity.caller import Caller
from openmemory.services import Services


async def test_a_user_is_known_by_the_internal_id(services: Services, owner: Caller):
    assert await services.directory.name_of(owner.user_id) == owner.user


async def test_an_unknown_id_has_no_name(services: Services):
    assert await services.directory.name_of(uuid4()) is None
