"""Reads and writes the one row of `configs` with the saved configuration, and finds the keys that are still needed."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert

from openmemory.database.engine import Tx
from openmemory.index.generations import registry
from openmemory.saved_settings import document
from openmemory.saved_settings.models import Config
from openmemory.saved_settings.providers import canonical
from openmemory.saved_settings.saved import SavedDocument, Section

KEY = "main"

_VALUE = select(Config.value).where(Config.key == KEY)


async def read_settings(tx: Tx) -> SavedDocument:
    """The saved configuration."""
    return SavedDocument.of(await tx.scalar(_VALUE))


async def locked(tx: Tx, *, make: bool = False) -> SavedDocument:
    """The saved configuration, with its row locked until the transaction ends. `make`: create a missing row."""
    if make:
        await tx.execute(insert(Config).values(key=KEY, value={}).on_conflict_do_nothing())
    return SavedDocument.of(await tx.scalar(_VALUE.with_for_update()))


async def write(tx: Tx, stored_settings: SavedDocument) -> None:
    """Updates the row, which must exist."""
    await tx.execute(
        update(Config).where(Config.key == KEY).values(value=stored_settings.value(), updated_at=func.now())
    )


async def still_needed(tx: Tx, former_keys: tuple[Mapping[str, str], ...]) -> tuple[Mapping[str, str], ...]:
    """The former keys whose provider and address still have vectors in a collection, the first of each."""
    places = {(one.embedder.get("provider"), one.embedder.get("base_url")) for one in await registry.everyone(tx)}
    needed_keys: dict[tuple[str, str], Mapping[str, str]] = {}
    for one in former_keys:
        place = one["provider"], one["base_url"]
        if place in places:
            needed_keys.setdefault(place, one)
    return tuple(needed_keys.values())


def former_key(section: Section) -> tuple[Mapping[str, str], ...]:
    """The key of a replaced embedder, with its provider and address."""
    key = section["config"].get("api_key")
    if not key:
        return ()
    place = {"provider": canonical(section["provider"]), "base_url": document.address_of(section)}
    return ({**place, "api_key": key},)
