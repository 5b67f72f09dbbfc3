from __future__ import annotations

import re
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, text, update

from openmemory.access import keys as keys_module
from openmemory.access.keys import ApiKeys
from openmemory.access.models import ApiKey
from openmemory.access.schemas import KeyCreate
from openmemory.errors import Forbidden, Invalid, NotFound, Unavailable
from openmemory.identity.principal import LOCAL, Scope
from openmemory.services import Services

NOBODY = replace(LOCAL, scopes=frozenset({Scope.READ, Scope.WRITE}))


@pytest.fixture
def other_process(services: Services) -> ApiKeys:
    """The keys as another process knows them."""
    return ApiKeys(services.database, services.directory)


async def test_a_key_is_found_by_what_was_shown_once_and_only_its_hash_is_kept(services, new_user, other_process):
    made = await services.keys.create(
        LOCAL, KeyCreate(name="laptop", user_id=new_user, app="claude", namespaces=["work"], scopes=["read"])
    )
    assert re.fullmatch("om_[a-z0-9]{8}_[A-Za-z0-9_-]{43}", made.key)
    assert made.key.startswith(made.prefix)
    found = await other_process.find(made.key)
    assert (found.user, found.app, found.namespaces, found.scopes) == (new_user, "claude", ("work",), {Scope.READ})
    assert found.name == f"{made.prefix} (laptop)"
    async with services.database.statement() as tx:
        row = (
            await tx.execute(text("SELECT to_jsonb(k) FROM api_keys k WHERE id = :id"), {"id": made.id})
        ).scalar_one()
    assert made.key.split("_", 2)[2] not in str(row)
    assert made.key not in made.model_copy(update={"key": ""}).model_dump_json()


@pytest.mark.parametrize("change", ["last", "first", "prefix", "case", "longer", "nul", "surrogate"])
async def test_nothing_but_the_whole_key_opens(services, new_user, change):
    key = (await services.keys.create(LOCAL, KeyCreate(name="k", user_id=new_user))).key
    last = "A" if key[-1] != "A" else "B"
    changed = {
        "last": key[:-1] + last,
        "first": key[:12] + ("A" if key[12] != "A" else "B") + key[13:],
        "prefix": key[:3] + "zzzzzzzz" + key[11:],
        "case": key.swapcase(),
        "longer": key + "A",
        "nul": key[:-1] + "\x00",
        "surrogate": key[:-1] + "\ud800",
    }[change]
    assert changed != key
    assert await services.keys.find(changed) is None
    assert await services.keys.find(key) is not None


async def test_a_revoked_key_opens_no_more_here_at_once_and_elsewhere_in_five_seconds(
    services, new_user, other_process, monkeypatch
):
    made = await services.keys.create(LOCAL, KeyCreate(name="k", user_id=new_user))
    assert await services.keys.find(made.key)
    assert await other_process.find(made.key)
    await services.keys.revoke(LOCAL, made.id)
    assert await services.keys.find(made.key) is None
    assert await services.keys.in_force(made.id) is False
    monkeypatch.setattr(keys_module, "CACHE_SECONDS", 0.0)
    assert await other_process.find(made.key) is None
    with pytest.raises(NotFound):
        await services.keys.revoke(LOCAL, made.id)


async def test_an_expired_key_opens_no_more_even_if_it_is_remembered(services, new_user):
    made = await services.keys.create(
        LOCAL, KeyCreate(name="k", user_id=new_user, expires_at=datetime.now(UTC) + timedelta(days=1))
    )
    assert await services.keys.find(made.key)
    digest, known = next((d, k) for d, k in services.keys._cache.items() if k.id == made.id)
    services.keys._cache[digest] = replace(known, expires_at=datetime.now(UTC))
    assert services.keys.from_cache(made.key) is None
    async with services.database.statement() as tx:
        await tx.execute(update(ApiKey).where(ApiKey.id == made.id).values(expires_at=datetime.now(UTC)))
    assert await services.keys.find(made.key) is None


async def test_a_rotated_key_has_the_same_rights_and_the_old_one_ends(services, new_user):
    old = await services.keys.create(LOCAL, KeyCreate(name="k", user_id=new_user, app="a", scopes=["read"]))
    new = await services.keys.rotate(LOCAL, old.id)
    assert new.key != old.key
    assert await services.keys.find(old.key) is None
    found = await services.keys.find(new.key)
    assert (found.user, found.app, found.scopes) == (new_user, "a", {Scope.READ})
    kept = await services.keys.rotate(LOCAL, new.id, keep=3600)
    assert await services.keys.find(new.key)
    assert await services.keys.find(kept.key)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "user_id"),
        ({"user_id": "x", "everyone": True}, "user_id"),
        ({"user_id": "x", "expires_at": datetime(2020, 1, 1, tzinfo=UTC)}, "expires_at"),
        ({"user_id": "x", "expires_at": datetime(2120, 1, 1, tzinfo=UTC)}, "expires_at"),
        ({"user_id": "x", "expires_at": datetime(2029, 1, 1)}, "expires_at"),
    ],
)
async def test_a_key_says_whose_it_is_and_ends_in_the_future(services, given, field):
    with pytest.raises(Invalid) as refused:
        await services.keys.create(LOCAL, KeyCreate(name="k", **given))
    assert refused.value.field == field


async def test_only_administrators_have_to_do_with_keys(services, new_user):
    made = await services.keys.create(LOCAL, KeyCreate(name="k", user_id=new_user))
    for attempt in (
        services.keys.create(NOBODY, KeyCreate(name="k", user_id=new_user)),
        services.keys.list(NOBODY),
        services.keys.rotate(NOBODY, made.id),
        services.keys.revoke(NOBODY, made.id),
    ):
        with pytest.raises(Forbidden):
            await attempt
    assert await services.keys.find(made.key)


async def test_the_last_use_is_noted(services, new_user):
    made = await services.keys.create(LOCAL, KeyCreate(name="k", user_id=new_user))
    await services.keys.find(made.key)
    await services.keys.note_use()
    async with services.database.statement() as tx:
        used = await tx.scalar(select(ApiKey.last_used_at).where(ApiKey.id == made.id))
    assert datetime.now(UTC) - used < timedelta(minutes=1)


async def test_erasing_a_user_ends_their_keys(services, new_user):
    made = await services.keys.create(LOCAL, KeyCreate(name="k", user_id=new_user))
    owner = await services.directory.caller(new_user, None, owner=True)
    await services.memories.erase_user(owner)
    assert await services.keys.find(made.key) is None


async def test_without_postgres_a_key_that_was_good_is_still_known_but_no_other(services, new_user, monkeypatch):
    from openmemory.config.settings import DatabaseSettings
    from openmemory.database.engine import Database

    made = await services.keys.create(LOCAL, KeyCreate(name="k", user_id=new_user))
    keys = ApiKeys(services.database, services.directory)
    assert await keys.find(made.key)
    monkeypatch.setattr(keys_module, "CACHE_SECONDS", 0.0)
    keys._database = Database("postgresql://nobody@127.0.0.1:1/none", DatabaseSettings(connect_timeout=1))
    assert (await keys.find(made.key, outage=True)).user == new_user
    for key, outage in ((made.key, False), (made.key[:-1] + ("A" if made.key[-1] != "A" else "B"), True)):
        with pytest.raises(Unavailable):
            await keys.find(key, outage=outage)
    await keys._database.close()


async def test_a_key_that_is_revoked_while_it_is_looked_up_is_not_remembered(services, new_user, monkeypatch):
    made = await services.keys.create(LOCAL, KeyCreate(name="k", user_id=new_user))
    keys, statement = ApiKeys(services.database, services.directory), services.database.statement

    @asynccontextmanager
    async def revoked_at_the_end():
        async with statement() as tx:
            yield tx
        monkeypatch.undo()
        await keys.revoke(LOCAL, made.id)

    monkeypatch.setattr(keys._database, "statement", revoked_at_the_end)
    assert await keys.find(made.key)  # it was good when it was read
    assert await keys.find(made.key) is None


async def test_the_keys_of_a_user_that_was_erased_open_nothing_more_here(services, new_user):
    made = await services.keys.create(LOCAL, KeyCreate(name="k", user_id=new_user))
    assert await services.keys.find(made.key)
    owner = await services.directory.caller(new_user, None, owner=True)
    await services.memories.erase_user(owner)
    services.keys.forget_user(new_user)
    assert await services.keys.find(made.key) is None
