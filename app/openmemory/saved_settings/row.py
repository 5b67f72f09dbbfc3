"""The one row of `configs` that holds what was saved, and the keys in it that are still needed."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert

from openmemory.database.engine import Tx
from openmemory.index.generations import registry
from openmemory.saved_settings import document
from openmemory.saved_settings.document import Section, Stored
from openmemory.saved_settings.models import Config
from openmemory.saved_settings.providers import canonical

KEY = "main"

_VALUE = select(Config.value).where(Config.key == KEY)


async def stored_now(tx: Tx) -> Stored:
    """What was saved."""
    return Stored.of(await tx.scalar(_VALUE))


async def locked(tx: Tx, *, make: bool = False) -> Stored:
    """What was saved, with its row locked until the transaction ends; `make`: there is one in any case."""
    if make:
        await tx.execute(insert(Config).values(key=KEY, value={}).on_conflict_do_nothing())
    return Stored.of(await tx.scalar(_VALUE.with_for_update()))


async def write(tx: Tx, stored: Stored) -> None:
    """Write the row, which is there."""
    await tx.execute(update(Config).where(Config.key == KEY).values(value=stored.value(), updated_at=func.now()))


async def still_needed(tx: Tx, kept: tuple[Mapping[str, str], ...]) -> tuple[Mapping[str, str], ...]:
    """Those of the kept keys whose model has vectors in a collection, the first of each place."""
    places = {(one.embedder.get("provider"), one.embedder.get("base_url")) for one in await registry.everyone(tx)}
    found: dict[tuple[str, str], Mapping[str, str]] = {}
    for one in kept:
        place = one["provider"], one["base_url"]
        if place in places:
            found.setdefault(place, one)
    return tuple(found.values())


def key_kept(section: Section) -> tuple[Mapping[str, str], ...]:
    """The key of an embedder that another one takes the place of, with the place that it was given for."""
    key = section["config"].get("api_key")
    if not key:
        return ()
    place = {"provider": canonical(section["provider"]), "base_url": document.address_of(section)}
    return ({**place, "api_key": key},)
