"""Random histories with crashes, wipes and lies of the index, against a model of what each reader may see.

After every step one reader searches and lists, and is shown nothing that the model forbids, no outdated text, and
everything that holds the words asked for. After every sync the index equals PostgreSQL, and a second sync does nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import ClassVar
from uuid import UUID, uuid4

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from openmemory.access.schemas import GrantCreate
from openmemory.errors import ConflictError
from openmemory.identity.caller import Caller
from openmemory.index.entries import IndexEntry
from openmemory.index.port import Payload, Point
from openmemory.memories.schemas import MemoryCreate, MemoryQuery, MemoryUpdate
from openmemory.memories.state import State
from openmemory.memories.state_machine import ALLOWED
from openmemory.search.schemas import Method, SearchQuery
from tests.faults.histories import live
from tests.faults.world import STEPS, Crash, World, opened

HISTORIES = int(os.environ.get("OPENMEMORY_TEST_HISTORIES", "8"))
"""Histories of the long run; asked for by number, they are new ones each time, and one that fails is made short."""

APPS = ("claude", "cursor", "codex")
NAMESPACES = ("default", "work")
FAULTS = ("crashes", "crashed syncs", "races", "overtaken repairs", "wipes", "lies", "inventions", "outages", "syncs")
THINGS = (("all", None), *(("app", app) for app in APPS), *(("namespace", name) for name in NAMESPACES))
WORDS = ("otter", "lemon", "violin", "glacier")
_numbers = count(1)


def _fact(word: str) -> str:
    """A text that no memory has had yet, with the word in it."""
    return f"{word} fact number {next(_numbers)}"


@dataclass
class Known:
    """A memory as the model has it."""

    id: UUID
    user: int
    app: str
    namespace: str
    text: str
    word: str
    state: State = State.ACTIVE
    revision: int = 1


@dataclass(frozen=True)
class Rule:
    """A grant as the model has it."""

    user: int
    app: str | None
    effect: str
    object_type: str
    object: str | UUID | None

    def speaks_of(self, memory: Known) -> bool:
        of = {"all": None, "memory": memory.id, "app": memory.app, "namespace": memory.namespace}
        return self.user == memory.user and of[self.object_type] == self.object


class Histories(RuleBasedStateMachine):
    """Two users, three apps each, and the owner's own view."""

    world: ClassVar[World]
    done: ClassVar[Counter[str]]
    memories = Bundle("memories")
    grants = Bundle("grants")

    @initialize(target=memories)
    def people(self):
        self.known: dict[UUID, Known] = {}
        self.rules: set[Rule] = set()
        self.paused: set[tuple[int, str]] = set()
        self.steps = 0
        self.callers: dict[tuple[int, str | None], Caller] = {}
        directory = self.world.services.directory
        for user in range(2):
            name = f"user-{user}-{uuid4().hex[:8]}"
            self.callers[user, None] = self.world.run(directory.caller(name, None, owner=True))
            for app in APPS:
                self.callers[user, app] = self.world.run(directory.caller(name, app))
        return multiple(*(self._add(n % 2, APPS[n % 3], NAMESPACES[n % 2], WORDS[n % 4]) for n in range(8)))

    # What people and apps do.

    @rule(
        target=memories,
        user=st.integers(0, 1),
        app=st.sampled_from(APPS),
        namespace=st.sampled_from(NAMESPACES),
        word=st.sampled_from(WORDS),
    )
    def add(self, user: int, app: str, namespace: str, word: str):
        return multiple() if (user, app) in self.paused else self._add(user, app, namespace, word)

    def _add(self, user: int, app: str, namespace: str, word: str) -> UUID:
        text = _fact(word)
        new = MemoryCreate(text=text, namespace=namespace)
        added = self.world.run(self.world.services.memories.add(self.callers[user, app], new))
        self.known[added.id] = Known(added.id, user, app, namespace, text, word)
        return added.id

    @rule(id_=memories, word=st.sampled_from(WORDS))
    def update(self, id_: UUID, word: str) -> None:
        memory = self.known[id_]
        if memory.state is State.DELETED:
            return
        text = _fact(word)
        owner = self.callers[memory.user, None]
        updated = self.world.run(self.world.services.memories.update(owner, id_, MemoryUpdate(text=text)))
        assert updated.memory.revision == memory.revision + 1
        self.known[id_] = replace(memory, text=text, word=word, revision=updated.memory.revision)

    @rule(id_=memories, wanted=st.sampled_from(State))
    def change_state(self, id_: UUID, wanted: State) -> None:
        memory = self.known[id_]
        change = self.world.services.memories.change_state(self.callers[memory.user, None], [id_], wanted)
        if wanted is not memory.state and wanted not in ALLOWED[memory.state]:
            with pytest.raises(ConflictError):
                self.world.run(change)
            return
        assert self.world.run(change) == (wanted is not memory.state)
        self.known[id_] = replace(memory, state=wanted)

    @rule(id_=consumes(memories))
    def erase(self, id_: UUID) -> None:
        memory = self.known.pop(id_)
        assert self.world.run(self.world.services.memories.erase(self.callers[memory.user, None], [id_])) == 1
        self.rules = {rule for rule in self.rules if rule.object != id_}

    @rule(
        target=grants,
        user=st.integers(0, 1),
        app=st.none() | st.sampled_from(APPS),
        effect=st.sampled_from(["allow", "deny"]),
        thing=st.sampled_from(THINGS),
    )
    def grant(self, user: int, app: str | None, effect: str, thing: tuple[str, str | None]):
        return self._grant(Rule(user, app, effect, *thing))

    @rule(target=grants, id_=memories, app=st.none() | st.sampled_from(APPS), effect=st.sampled_from(["allow", "deny"]))
    def grant_memory(self, id_: UUID, app: str | None, effect: str):
        return self._grant(Rule(self.known[id_].user, app, effect, "memory", id_))

    def _grant(self, made: Rule):
        new = GrantCreate(
            effect=made.effect,  # type: ignore[arg-type]
            app=made.app,
            object_type=made.object_type,  # type: ignore[arg-type]
            object=None if made.object is None else str(made.object),
        )
        grant = self.world.run(self.world.services.grants.create(self.callers[made.user, None], new))
        self.rules.add(made)
        return grant.id, made

    @rule(made=consumes(grants))
    def revoke(self, made: tuple[UUID, Rule]) -> None:
        id_, revoked = made
        if revoked not in self.rules:  # it went with its memory, or the same rule was made and revoked again
            return
        self.world.run(self.world.services.grants.revoke(self.callers[revoked.user, None], id_))
        self.rules.discard(revoked)

    @rule(user=st.integers(0, 1), app=st.sampled_from(APPS), active=st.booleans())
    def pause_app(self, user: int, app: str, active: bool) -> None:
        owner, id_ = self.callers[user, None], self.callers[user, app].app_id
        self.world.run(self.world.services.apps.set_active(owner, id_, active))
        (self.paused.discard if active else self.paused.add)((user, app))

    # What happens to the service and its index.

    @rule()
    def deliver(self) -> None:
        self.world.run(self.world.outbox_delivery.drain())

    @rule(step=st.sampled_from(STEPS))
    def deliver_and_die(self, step: str) -> None:
        self.world.run(self.world.mark([*self.known, uuid4()]))
        self.world.index.crash_at = step
        try:
            self.world.run(self.world.outbox_delivery.drain())
        except Crash:
            self.done["crashes"] += 1
        self.world.index.crash_at = None

    @rule(id_=memories, word=st.sampled_from(WORDS))
    def update_while_it_is_delivered(self, id_: UUID, word: str) -> None:
        memory = self.known[id_]
        if memory.state is not State.ACTIVE or self.world.index.away:
            return
        self.world.run(self.world.restart())
        self.world.run(self.world.mark([id_]))
        text = _fact(word)
        owner, change = self.callers[memory.user, None], MemoryUpdate(text=text)
        self.world.index.meanwhile = lambda: self.world.services.memories.update(owner, id_, change)
        self.world.run(self.world.outbox_delivery.breaker.ask_again())
        self.world.run(self.world.outbox_delivery.drain())
        assert self.world.index.meanwhile is None
        self.world.run(self.world.outbox_delivery.drain())  # the first one leaves what was written after its start
        self.known[id_] = replace(memory, text=text, word=word, revision=memory.revision + 1)
        assert self.world.run(self._entries(owner.user_id))[id_].revision == memory.revision + 1
        self.done["races"] += 1

    @rule(id_=memories, word=st.sampled_from(WORDS), erased=st.booleans())
    def change_and_deliver_while_it_is_repaired(self, id_: UUID, word: str, erased: bool) -> None:
        """What a sync has read is outdated when it writes it: the delivery of the newer state came first."""
        memory = self.known[id_]
        if memory.state is not State.ACTIVE:
            return
        self.world.run(self.world.sync())
        self.world.run(self.world.services.index.delete([id_]))
        text = _fact(word)
        owner = self.callers[memory.user, None]

        async def change() -> None:
            if erased:
                await self.world.services.memories.change_state(owner, [id_], State.ARCHIVED)
            else:
                await self.world.services.memories.update(owner, id_, MemoryUpdate(text=text))
            await self.world.outbox_delivery.drain()

        self.world.index.meanwhile = change
        self.world.run(self.world.sync())
        assert self.world.index.meanwhile is None
        self.known[id_] = (
            replace(memory, state=State.ARCHIVED)
            if erased
            else replace(memory, text=text, word=word, revision=memory.revision + 1)
        )
        entry = self.world.run(self._entries(owner.user_id)).get(id_)
        assert (entry is None) if erased else (entry is not None and entry.revision == memory.revision + 1)
        self.done["overtaken repairs"] += 1

    @rule(step=st.sampled_from(STEPS), user=st.integers(0, 1))
    def sync_and_die(self, step: str, user: int) -> None:
        self.wipe(user)
        self.invent(user, WORDS[0])
        self.world.index.crash_at = step
        try:
            self.world.run(self.world.sync())
        except Crash:
            self.done["crashed syncs"] += 1
        self.world.index.crash_at = None

    @rule()
    def start_again(self) -> None:
        self.world.run(self.world.restart())

    @rule(user=st.integers(0, 1))
    def wipe(self, user: int) -> None:
        self.world.run(self._wipe(self.callers[user, None].user_id))
        self.done["wipes"] += 1

    async def _wipe(self, user: UUID) -> None:
        index = self.world.services.index
        ids = [entry.id async for page in index.entries(user) for entry in page]
        await index.delete(ids)

    @rule(id_=memories, word=st.sampled_from(WORDS), stale=st.booleans())
    def lie_about(self, id_: UUID, word: str, stale: bool) -> None:
        """An entry of another revision and vector than the memory's, or of another user."""
        memory = self.known[id_]
        user = memory.user if stale else 1 - memory.user
        self.world.run(self._plant(id_, user, word, memory.revision - 1 if stale else memory.revision))
        self.done["lies"] += 1

    @rule(user=st.integers(0, 1), word=st.sampled_from(WORDS))
    def invent(self, user: int, word: str) -> None:
        """An entry of no memory at all."""
        self.world.run(self._plant(uuid4(), user, word, 1))
        self.done["inventions"] += 1

    async def _plant(self, id_: UUID, user: int, word: str, revision: int) -> None:
        owner, now = self.callers[user, None], datetime.now(UTC)
        point = Point(
            id=id_, vectors=(await self.world.services.embedder.query(word)).vector[np.newaxis],
            user=owner.user_id, app=owner.app_id,
            namespace="default", kind="memory", revision=revision, text_hash="0" * 32,
            document=Payload(text=word, user_name=owner.user, created_at=now, updated_at=now),
        )  # fmt: skip
        await self.world.services.index.upsert([point])

    @rule(away=st.booleans())
    def index_away(self, away: bool) -> None:
        self.world.index.away = away
        self.done["outages"] += away

    @rule()
    def sync(self) -> None:
        self.world.run(self.world.sync())
        for user in range(2):
            owner = self.callers[user, None].user_id
            expected = {
                memory.id: IndexEntry(memory.id, owner, memory.revision)
                for memory in self.known.values()
                if memory.user == user and memory.state is State.ACTIVE
            }
            assert self.world.run(self._entries(owner)) == expected
        again = self.world.run(self.world.sync())
        assert (again.memories_synced, again.deleted, again.embedded, again.errors) == (0, 0, 0, 0)
        self.done["syncs"] += 1

    async def _entries(self, user: UUID) -> dict[UUID, IndexEntry]:
        return {entry.id: entry async for page in self.world.services.index.entries(user) for entry in page}

    # What must hold at every moment.

    @invariant()
    def nobody_sees_what_they_may_not(self) -> None:
        readers = list(self.callers)
        user, app = readers[self.steps % len(readers)]
        word = WORDS[self.steps // len(readers) % len(WORDS)]
        self.steps += 1
        self.done["steps"] += 1
        may = {memory.id: memory for memory in self.known.values() if self._may(user, app, memory)}
        caller = self.callers[user, app]
        page = self.world.run(self.world.services.memories.list(caller, MemoryQuery(size=100)))
        assert {item.id: item.content for item in page.items} == {id_: memory.text for id_, memory in may.items()}
        assert page.total == len(may)
        answer = self.world.run(self.world.search.search(caller, SearchQuery(f"{word} fact", limit=100)))
        shown = {result.id: result.memory for result in answer.results}
        assert shown.items() <= {(id_, memory.text) for id_, memory in may.items()}
        assert {id_ for id_, memory in may.items() if memory.word == word} <= set(shown)
        if self.world.index.away:
            assert answer.search_method is Method.LEXICAL

    def _may(self, user: int, app: str | None, memory: Known) -> bool:
        if memory.user != user or memory.state is not State.ACTIVE:
            return False
        if app is None:
            return True
        if (user, app) in self.paused:
            return False
        rules = [rule for rule in self.rules if rule.user == user]
        for subject in (app, None):
            effects = {rule.effect for rule in rules if rule.app == subject and rule.speaks_of(memory)}
            if effects:
                return "deny" not in effects
        return not any(rule.app == app and rule.effect == "allow" for rule in rules)

    def teardown(self) -> None:
        if hasattr(self, "known"):
            self.world.index.away = False
            for _ in range(len(self.callers) * len(WORDS)):
                self.nobody_sees_what_they_may_not()
            self.sync()
        self.done["histories"] += 1


@pytest.fixture
def done(short_folder: Path):
    """The world of the histories, and a count of what happened in it."""
    with opened(short_folder / "histories") as world:
        Histories.world, Histories.done = world, Counter()
        yield Histories.done


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_random_histories_break_no_rule(done: Counter[str]) -> None:
    live(Histories, HISTORIES, 50, random="OPENMEMORY_TEST_HISTORIES" in os.environ)
    print(f"\n{', '.join(f'{number} {what}' for what, number in done.items())}; 0 violations")
    assert all(done[what] for what in FAULTS)
