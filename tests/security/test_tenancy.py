"""Nobody reads or changes what is not theirs, through whatever door, whatever they name.

Random users, apps, keys, rules and states; every door called as every principal with the ids of everybody. Each answer
is searched for whatever belongs to somebody else, lists are compared with a plain model, and after each change it is
looked whether anything changed that was not the caller's. `OPENMEMORY_TEST_ATTEMPTS` sets how many are made,
`OPENMEMORY_TEST_SEED` with which worlds they begin.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Uuid, bindparam, func, literal_column, true

from openmemory.access import directory
from openmemory.access.authentication import Authenticator
from openmemory.capture import visibility
from openmemory.config.settings import Settings
from openmemory.doors.mcp.server import TOOLS
from openmemory.doors.rest.http.credentials import COOKIE
from openmemory.doors.rest.http.origins import Origins
from openmemory.doors.server.application import create_app
from openmemory.doors.web import pages, sign_in
from openmemory.doors.web.page import FORM_COOKIE
from openmemory.errors import Forbidden, TooMany
from openmemory.identity.caller import Caller
from openmemory.identity.principal import LOCAL, Principal, Scope
from openmemory.memories import accesses
from openmemory.memories.listing import statements
from openmemory.memories.listing.criteria import ListCriteria
from openmemory.memories.models import Memory
from openmemory.projects.schemas import NewProject
from openmemory.search.answers import readback
from openmemory.search.sql import as_of
from openmemory.services import Services, open_services
from openmemory.sources import conversations
from tests.backup.archives import members
from tests.clusters import furnish
from tests.living import living
from tests.security.attempts import NO_APP, NOBODY, Attempt
from tests.security.page_attempts import PageAttempts
from tests.security.world import ID, TOKEN, Actor, Row, World, populate

UNLIMITED = {"saves": 0, "searches": 0, "requests": 0}
"""Wrong credentials are counted: everybody asks from one address, and the good ones must be let in all the same."""
PAGE = "http://localhost:3000"
"""An origin that may call by default, and that nobody has named."""
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


FORM = {"Content-Type": "application/x-www-form-urlencoded"}
FORM_VALUE = "f" * 64
COUNT = re.compile(r"(?:in the|there are) ([\d,]+) memories")
"""The number of memories in the note of a search."""

OPEN = ("/health/live", "/health/ready", "/.well-known/", "/ui/sign-in/")


class Leak(AssertionError):
    """Somebody saw or changed what is not theirs."""


@pytest.fixture(scope="module")
async def tenancy(short_folder: Path) -> AsyncIterator[tuple[Services, httpx.AsyncClient]]:
    settings = Settings.model_validate(
        {"data_dir": str(furnish(short_folder / "tenancy")), "access": {"require": "always"}, "rates": UNLIMITED}
    )
    async with open_services(settings) as services:
        app = create_app(services)
        transport = httpx.ASGITransport(app)
        async with (
            living(app.router.lifespan_context(app), 30),
            httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=HEADERS) as http,
        ):
            yield services, http


class Trial:
    """Makes attempts on a world and looks at what comes of them."""

    def __init__(self, world: World, http: httpx.AsyncClient, rng: random.Random) -> None:
        self.world = world
        self.http = http
        self.rng = rng
        self.attempts = PageAttempts(world, rng)
        self.tokens: dict[str, str] = {}
        self.done: Counter[str] = Counter()
        self.keys = [*world.actors, *world.keys.values()]
        self.said: defaultdict[str, set[str]] = defaultdict(set)
        self.statuses: Counter[int] = Counter()
        self.hidden_registrations = 0

    async def run(self, count: int) -> None:
        for made in range(count):
            if made % 30 == 0:
                await self.world.load()  # jobs change it too, and attempts may only read
            actor = self.rng.choice(self.world.actors)
            await self.attempt(actor, self.attempts.next(actor))

    async def attempt(self, actor: Actor, attempt: Attempt) -> None:
        """Make one attempt. An answer may show what could be read before it, or can be after it: undoing brings back.

        Raises:
            Leak: the answer holds what the actor may not see, or something changed that the actor may not change.
        """
        before = self.world.rows
        speaks = self._speaks(actor, attempt)
        self._note_question(actor, attempt, speaks)
        everybody = None if self._may_make(actor, attempt) else await self.world.everybody()
        if actor.key is not None and self.rng.random() < 0.05:
            await self._look_at_a_pages(actor, attempt)
        answer = await self._sent(actor, attempt)
        self.done[attempt.door] += 1
        if everybody is not None and (made := await self.world.everybody() - everybody):
            raise Leak(f"{actor.name} made {made}: {attempt}")
        if speaks is None and actor.user is not None:
            await self._look_at_its_like(answer, actor, attempt)
        self.statuses[int(answer.status_code)] += 1
        assert answer.status_code < 500, (attempt, answer.text)
        if attempt.manages is not None and answer.status_code < 400:
            self._look_at_the_key(actor, attempt, attempt.manages)
        readable = self._readable(actor, speaks)
        if attempt.app == NO_APP and not attempt.writes:
            await self.world.load()  # who may write has made the app by naming it
        if attempt.writes:
            rules, apps = self.world.rules, self.world.apps
            touchable = self._touchable(actor, speaks, before)
            await self.world.load()
            readable |= self._readable(actor, speaks)
        self._look_at(answer, actor, attempt, speaks, readable)
        if attempt.door == "projects":
            self._look_at_a_registration(answer, actor, attempt, speaks, before)
        if attempt.writes:
            # With a memory that is erased the rules about it go.
            gone = {f"memory:{id_}" for id_ in before.keys() - self.world.rows.keys()}
            rules = [rule for rule in rules if rule.key not in gone]
            self._look_at_changes(actor, attempt, speaks, before, touchable)
            whole = speaks is not None and speaks[1] is None and actor.namespaces is None
            if not (whole and Scope.WRITE in actor.scopes):
                made = {id_ for id_, about in self.world.apps.items() if about[0] != (speaks or ("",))[0]}
                if set(rules) != set(self.world.rules) or any(
                    apps.get(id_) != self.world.apps[id_] for id_ in made | (apps.keys() & self.world.apps.keys())
                ):
                    raise Leak(f"{actor.name} changed rules or apps: {attempt}")

    def _look_at_a_registration(
        self,
        answer: httpx.Response,
        actor: Actor,
        attempt: Attempt,
        speaks: tuple[str, str | None] | None,
        before: dict[str, Row],
    ) -> None:
        """Look whether the answer to a registration tells that a hidden one is there.

        Raises:
            Leak: it is refused as what is not found, or tells more than what was sent although none could be read.
        """
        assert attempt.body is not None
        if speaks is None or not actor.scopes >= {Scope.READ, Scope.WRITE}:
            return
        namespace = attempt.body["namespace"]
        rows = (row for row in before.values() if row.is_registration and row.user == speaks[0])
        there = [row for row in rows if row.namespace == namespace]
        if any(self.world.reaches(actor, *speaks, row) for row in there):
            return
        self.hidden_registrations += len(there)
        if there and answer.status_code == 404:
            raise Leak(f"{actor.name} was told of a registration: {attempt} {answer.text}")
        if answer.status_code == 200:
            told = {name: answer.json()[name] for name in ("name", "root", "repo", "head", "branch")}
            if told != dict.fromkeys(told) | {"name": attempt.body.get("name", namespace)}:
                raise Leak(f"{actor.name} was told of a registration: {attempt} {answer.text}")

    def _look_at_the_key(self, actor: Actor, attempt: Attempt, key: Actor) -> None:
        """Look whether an actor may have made, replaced or ended a key.

        Raises:
            Leak: it reaches further than the actor, or may do more.
        """
        more = not actor.administers and attempt.method == "POST" and not key.scopes <= actor.scopes
        if not actor.valid or not actor.manages(key) or more:
            raise Leak(f"{actor.name} managed a key of {key}: {attempt}")
        self.keys.append(key)

    async def _sent(self, actor: Actor, attempt: Attempt) -> httpx.Response:
        if attempt.form is not None:
            fields = {"token": await self._token_of(actor)} | attempt.form
            cookie = {"Cookie": f"{FORM_COOKIE}={FORM_VALUE}"}
            if attempt.archive is not None:
                return await self._uploaded(attempt, fields, actor.headers | cookie)
            headers = {**actor.headers, **FORM, **cookie}
            return await self.http.post(attempt.path, params=attempt.params, data=fields, headers=headers)
        if attempt.upload is not None:
            name, said = attempt.upload
            files = {"file": (name, said.encode())}
            return await self.http.post(attempt.path, data=attempt.body, files=files, headers=actor.headers)
        if attempt.archive is None:
            return await self.http.request(
                attempt.method, attempt.path, params=attempt.params, json=attempt.body, headers=actor.headers
            )
        return await self._uploaded(attempt, {"user_id": attempt.user or ""}, actor.headers)

    async def _uploaded(self, attempt: Attempt, fields: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
        assert attempt.archive is not None
        files = {"file": ("archive.zip", attempt.archive.zip())}
        form = httpx.Request("POST", "http://localhost", data=fields, files=files)
        headers = headers | {"Content-Type": form.headers["Content-Type"]}
        return await self.http.post(attempt.path, params=attempt.params, content=form.read(), headers=headers)

    async def _token_of(self, actor: Actor) -> str:
        """The token of the forms that a page shows to this actor."""
        if actor.name not in self.tokens:
            headers = {**actor.headers, "Cookie": f"{FORM_COOKIE}={FORM_VALUE}"}
            shown = await self.http.get("/ui/memories", headers=headers)
            found = re.search(r'name="token" value="(\w+)"', shown.text)
            self.tokens[actor.name] = found[1] if found else "none"
        return self.tokens[actor.name]

    def _may_make(self, actor: Actor, attempt: Attempt) -> bool:
        """Whether an actor makes users and apps: by writing, or a key for them."""
        administers = Scope.ADMIN in actor.scopes and attempt.door == "make key"
        return actor.valid and (Scope.WRITE in actor.scopes or administers)

    def _note_question(self, actor: Actor, attempt: Attempt, speaks: tuple[str, str | None] | None) -> None:
        """Keep in mind which namespaces a question is about to look through."""
        if attempt.asks is None:
            return
        token, named = attempt.asks
        visibility = named if actor.namespaces is None else set(named or actor.namespaces) & set(actor.namespaces)
        user = "" if speaks is None else speaks[0]
        self.world.queries[token] = (
            user,
            frozenset(visibility) or None if actor.namespaces is None else frozenset(visibility),
        )
        self.world.owner_of[token] = user

    async def _look_at_a_pages(self, actor: Actor, attempt: Attempt) -> None:
        """The same from a page that nobody has named, in a browser that is signed in with the actor's key.

        Raises:
            Leak: the sign-in counts.
        """
        assert actor.key is not None
        session = await self.world.services.browser_sessions.open(actor.key, LOCAL, 60)
        answer = await self.http.request(
            attempt.method, attempt.path, params=attempt.params, json=attempt.body,
            headers={"Origin": PAGE, "Cookie": f"{COOKIE}={session}"},
        )  # fmt: skip
        if not attempt.path.startswith(OPEN) and answer.status_code != 403:
            raise Leak(f"{actor.name} was signed in on a page that nobody has named: {attempt} {answer.status_code}")

    async def _look_at_its_like(self, answer: httpx.Response, actor: Actor, attempt: Attempt) -> None:
        """The same about a user whom nobody has.

        Raises:
            Leak: the answer tells that the other one is there.
        """
        if attempt.user in (None, NOBODY, actor.user) or attempt.archive is not None or answer.status_code == 429:
            return
        like = Attempt(**{
            name: json.loads(json.dumps(getattr(attempt, name)).replace(str(attempt.user), NOBODY))
            for name in ("door", "method", "path", "params", "body", "form", "upload")
        })  # fmt: skip
        other = await self._sent(actor, like)
        if attempt.path.startswith("/ui/"):  # a page links to itself, with the name that it was asked with
            other = httpx.Response(other.status_code, text=other.text.replace(NOBODY, str(attempt.user)))
        if (other.status_code, other.text) not in ((answer.status_code, answer.text), (429, other.text)):
            raise Leak(f"{actor.name} was told that {attempt.user} is there: {attempt} {answer.text} {other.text}")

    def _speaks(self, actor: Actor, attempt: Attempt) -> tuple[str, str | None] | None:
        """As whom the actor may ask what it asks: user and app (None: the user themself); None: not at all."""
        if not actor.valid:
            return None
        user = attempt.user or actor.user
        if user is None and actor.app is None and attempt.about is not None:
            user = self.world.owner_of.get(attempt.about)
        if user is None or (actor.user is not None and user != actor.user):
            return None
        if actor.app is not None:
            return (user, actor.app) if attempt.app in (None, actor.app) else None
        return user, (attempt.app or "openmemory") if attempt.as_app else None

    def _readable(self, actor: Actor, speaks: tuple[str, str | None] | None) -> set[str]:
        if speaks is None or Scope.READ not in actor.scopes:
            return set()
        return self.world.readable(actor, *speaks)

    def _look_at(
        self,
        answer: httpx.Response,
        actor: Actor,
        attempt: Attempt,
        speaks: tuple[str, str | None] | None,
        readable: set[str],
    ) -> None:
        sent = [attempt.body, attempt.form, None if attempt.archive is None else attempt.archive.tables]
        asked = f"{attempt.path} {json.dumps(attempt.params)} {json.dumps(sent)}"
        text = said_by(answer)
        told = {*TOKEN.findall(text), *ID.findall(text)}
        told -= {*TOKEN.findall(asked), *ID.findall(asked)}
        if speaks is not None:
            # Also the app that a credential names, which may be another user's name for an app too.
            self.said[speaks[0]] |= {*TOKEN.findall(asked), *ID.findall(asked), *TOKEN.findall(f"{speaks[1]}")}
        refused = (401,) if actor.key is None else (401, 429)
        if not actor.valid and answer.status_code not in refused and not attempt.path.startswith(OPEN):
            raise Leak(f"{actor.name} was let in: {attempt} {answer.status_code}")
        if actor.valid and answer.status_code in (401, 429):
            raise Leak(f"{actor.name} was shut out: {attempt} {answer.text}")
        for each in told & (self.world.owner_of.keys() | self.world.memory_of.keys()):
            if not self._may_be_told(each, actor, speaks, readable, attempt):
                raise Leak(f"{actor.name} was told {each}: {attempt} {answer.status_code} {_around(each, answer)}")
        counts = [int(count.replace(",", "")) for count in COUNT.findall(text)]
        memories_read = sum(self.world.rows[id_].thread is None for id_ in readable if id_ in self.world.rows)
        if max(counts, default=0) > memories_read:
            raise Leak(f"{actor.name} was told of {max(counts)} instead of {memories_read}: {attempt} {text}")
        if attempt.exact is not None and answer.status_code == 200 and '"isError":true' not in answer.text:
            if speaks is None:
                raise Leak(f"{actor.name} was given a list: {attempt}")
            states = attempt.states if speaks[1] is None else ("active",)
            memories = (self.world.rows[id_] for id_ in readable if self.world.rows[id_].thread is None)
            expected = {row.id for row in memories if row.state in states}
            found = attempt.exact(answer.json())
            if len(found) != len(set(found)) or set(found) != expected:
                raise Leak(f"{actor.name} was told {len(found)} instead of {len(expected)}: {attempt}")

    def _may_be_told(
        self, each: str, actor: Actor, speaks: tuple[str, str | None] | None, readable: set[str], attempt: Attempt
    ) -> bool:
        if actor.administers and attempt.path in ("/api/v1/audit", "/api/v1/keys", "/ui/settings/keys"):
            return True
        if actor.valid and attempt.path in ("/api/v1/keys", "/ui/settings/keys"):
            listed = [(key.user, key.app, *(key.namespaces or ())) for key in self.keys if actor.manages(key)]
            if any(name is not None and each in name for names in listed for name in names):
                return True
        if attempt.manages is not None and actor.valid and actor.manages(attempt.manages):
            key = attempt.manages
            names = (key.user, key.app, *(key.namespaces or ()))
            if any(name is not None and each in name for name in names):
                return True  # the key that it makes, replaces or ends names them
        if actor.app is not None and actor.valid and each in actor.app:
            return True  # what its own credential names
        if speaks is None:
            return False
        user, app = speaks
        if each in self.world.queries:
            # A log of accesses tells the user what was asked, as far as the credential reaches.
            by, looked_at = self.world.queries[each]
            reached = actor.namespaces is None or (looked_at is not None and looked_at <= set(actor.namespaces))
            return user == by and app is None and Scope.READ in actor.scopes and reached
        whole = app is None and actor.namespaces is None and Scope.READ in actor.scopes
        # A name may be anybody's: it is told where it stands at something that may be seen.
        around = {actor.app, app, user, self.world.app_id(user, app or "openmemory"), *(actor.namespaces or ())}
        for row in self.world.rows.values():
            if row.id in readable or (whole and row.user == user):
                around |= {row.app, *row.authors, row.namespace, row.thread, row.source, *row.categories}
                around.add(self.world.app_id(user, row.app))
                if attempt.door.endswith("history"):
                    around |= row.changers  # a history names the apps that changed the memory
        # An app has named the namespaces of its own captures, which it sees unless it is paused.
        active = app is None or self.world.is_active(user, app)
        for by, name, namespace in self.world.captures.values():
            if by == user and app is not None and (app, active) == (name, True):
                around.add(namespace)
            elif by == user and app is None and (actor.namespaces is None or namespace in actor.namespaces):
                around |= {name, self.world.app_id(user, name)}
        if attempt.door == "get/access-log" and app is None and attempt.about in readable:
            # It tells who has accessed a memory that may be read.
            around |= {told for id_, (by, name, _) in self.world.apps.items() if by == user for told in (id_, name)}
            around |= self.said[user]
        if whole and each in self.said[user]:
            return True  # as in a rule of theirs about a name that somebody else has too
        if any(name is not None and each in name for name in around):
            return True
        if self.world.owner_of.get(each) != user:
            return False
        if each in self.world.captures:
            # Its app has said it, and its user may see all within reach.
            _, by, namespace = self.world.captures[each]
            mine = app is None or (app == by and active)
            return mine and (actor.namespaces is None or namespace in actor.namespaces)
        if whole:
            return True  # their own, whatever it is
        if self.world.memory_of.get(each) in readable:
            return True
        # What is written is told by its id: a rule, an app, the memory that says already what was to be added.
        return bool(ID.fullmatch(each)) and attempt.writes and Scope.WRITE in actor.scopes

    def _touchable(self, actor: Actor, speaks: tuple[str, str | None] | None, rows: dict[str, Row]) -> set[str]:
        if speaks is None or Scope.WRITE not in actor.scopes:
            return set()
        return {row.id for row in rows.values() if self.world.reaches(actor, *speaks, row)}

    def _look_at_changes(
        self,
        actor: Actor,
        attempt: Attempt,
        speaks: tuple[str, str | None] | None,
        before: dict[str, Row],
        touchable: set[str],
    ) -> None:
        after = self.world.rows
        for id_, row in before.items():
            if (id_ not in after or after[id_].marks != row.marks) and id_ not in touchable:
                raise Leak(f"{actor.name} changed {row} to {after.get(id_)}: {attempt}")
        for id_ in after.keys() - before.keys():
            row = after[id_]
            fine = speaks is not None and row.user == speaks[0] and Scope.WRITE in actor.scopes
            fine = fine and (actor.namespaces is None or row.namespace in actor.namespaces)
            fine = fine and (speaks is None or speaks[1] is None or row.app == speaks[1])
            if not fine:
                raise Leak(f"{actor.name} stored a memory of {row.user}: {attempt}")


def _around(told: str, answer: httpx.Response) -> str:
    """The part of an answer that says it."""
    at = max(answer.text.find(told), 0)
    return answer.text[max(at - 300, 0) : at + 300]


def said_by(answer: httpx.Response) -> str:
    """What an answer says; of an archive, what is in it."""
    if answer.headers.get("content-type") != "application/zip":
        return answer.text
    unpacked = [
        gzip.decompress(data) if name.endswith(".gz") else data for name, data in members(answer.content).items()
    ]
    return b"\n".join(unpacked).decode()


async def trial_of(tenancy: tuple[Services, httpx.AsyncClient], seed: int) -> Trial:
    services, http = tenancy
    rng = random.Random(seed)
    return Trial(await populate(services, rng), http, rng)


async def test_every_operation_of_rest_and_every_tool_is_tried(tenancy):
    trial = await trial_of(tenancy, 0)
    schema = (await trial.http.get("/openapi.json", headers=trial.world.actors[0].headers)).json()
    operations = {
        f"{method.upper()} {path}" for path, methods in schema["paths"].items() for method in methods
    } | {f"tool {name}" for name in TOOLS}  # fmt: skip
    assert operations <= trial.attempts.doors


@pytest.mark.slow
async def test_every_page_and_every_form_is_tried(tenancy):
    trial = await trial_of(tenancy, 50)
    routes = [route for router in pages.ROUTERS if router is not sign_in.router for route in router.routes]
    shown = {f"{method} {route.path}" for route in routes for method in route.methods}
    # The first two only lead on. The stream never ends, and says what the page of the activity says.
    shown -= {"GET /ui", "GET /ui/", "GET /ui/activity/events"}
    assert shown - trial.attempts.doors == set()


@pytest.mark.slow
async def test_no_registration_of_a_project_tells_of_a_hidden_one(tenancy):
    trial = await trial_of(tenancy, 51)
    for user, namespaces in trial.world.namespaces.items():
        apps = [name for by, name, _ in trial.world.apps.values() if by == user and name != "openmemory"]
        for namespace in namespaces:
            app = await trial.world.services.directory.caller(user, trial.rng.choice(sorted(apps)))
            with suppress(Forbidden):  # the app is paused, or may not read what it would store
                await trial.world.services.projects.register(app, NewProject(namespace, root=f"/{app.app}"))
    await trial.world.load()
    for _ in range(150):
        actor = trial.rng.choice(trial.world.actors)
        await trial.attempt(actor, trial.attempts.to_door("POST /api/v1/projects", actor))
    assert trial.hidden_registrations > 3


@pytest.mark.slow
async def test_no_pack_names_a_hidden_side_of_a_link_or_a_conflict(tenancy):
    """Memories of the world are linked, share a thread and a tag, and contradict each other."""
    trial = await trial_of(tenancy, 46)
    trial.attempts.only("POST /api/v1/context", "tool mem_get_context", "tool mem_show", "GET /api/v1/links")
    await trial.run(80)


async def test_nothing_of_anybody_else_is_seen_or_changed(tenancy):
    """A few in every run; `make slow` tries more."""
    trial = await trial_of(tenancy, 1)
    await trial.run(350)
    assert trial.statuses[200] > 50
    assert trial.statuses[401] + trial.statuses[429] > 15
    assert trial.statuses[403] > 25
    assert trial.statuses[404] > 10


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_nothing_of_anybody_else_is_seen_or_changed_in_many_attempts(tenancy, capsys):
    left = int(os.environ.get("OPENMEMORY_TEST_ATTEMPTS", "1600"))
    first = seed = int(os.environ.get("OPENMEMORY_TEST_SEED", "100"))
    done, statuses = Counter[str](), Counter[int]()
    while left > 0:
        trial = await trial_of(tenancy, seed)
        await trial.run(min(2_500, left))
        left, seed = left - 2_500, seed + 1
        done += trial.done
        statuses += trial.statuses
    with capsys.disabled():
        print(f"\n{done.total()} attempts in {seed - first} worlds: {dict(statuses)}; {dict(done.most_common())}")


def _reads_of_the_user_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that asks for the user and forgets everything else."""

    def mine(_: ListCriteria) -> Any:
        return (Memory.user_id == bindparam("caller_user_id", type_=Uuid)) & (
            Memory.state == literal_column("'active'")
        )

    monkeypatch.setattr(ListCriteria, "readable", property(mine))
    for made in (statements.ids, statements.total, statements.total_and_ids, statements.records):
        _unkept(monkeypatch, statements, made)


def _believes_the_claimed_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Principal, "claimed_user", lambda self, user: user or self.user)


def _believes_the_claimed_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Principal, "claimed_app", lambda self, app: app or self.app)


def _forgets_the_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(self: Caller) -> dict[str, Any]:
        return {"caller_user_id": self.user_id, "caller_app_id": self.app_id, "caller_namespaces": None}

    monkeypatch.setattr(Caller, "parameters", property(everything))


def _takes_an_app_for_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    before = directory.Directory._caller

    def owner(self: Any, user: str, app: str, ids: Any, _: bool, principal: Principal) -> Any:
        return before(self, user, app, ids, True, principal)

    monkeypatch.setattr(directory.Directory, "_caller", owner)


def _ignores_scopes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Principal, "must", lambda *_: None)


def _takes_a_bounded_administrator_for_one_of_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Principal, "bounded", False)


def _reads_back_without_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def anything(*_: Any, **__: Any) -> Any:
        return Memory.state == "active"

    monkeypatch.setattr(as_of, "readable_by", anything)
    _unkept(monkeypatch, readback, readback._statement)


def _lists_the_conversations_of_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "readable_by", lambda _, rows, **__: rows.state == "active")


def _makes_whoever_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = directory.Directory._ensure_ids

    async def made(self: Any, user: str, app: str, found: Any, _: Principal) -> Any:
        return await before(self, user, app, found, LOCAL)

    monkeypatch.setattr(directory.Directory, "_ensure_ids", made)


def _shows_a_paused_app_what_it_has_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visibility, "is_not_paused", true)


def _tells_every_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accesses, "was_visible", lambda _: true())


def _takes_a_search_for_one_of_its_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    before = readback.access_log.inserted

    def narrow(rows: Any, metadata: Any, looked_at: Any = None) -> Any:
        if looked_at is not None:
            looked_at = func.array_append(literal_column("'{}'::text[]"), rows.c.namespace)
        return before(rows, metadata, looked_at)

    monkeypatch.setattr(readback.access_log, "inserted", narrow)
    _unkept(monkeypatch, readback, readback._statement)


def _shuts_out_whoever_shares_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Authenticator.principal

    async def principal(self: Authenticator, given: Any) -> Principal:
        if given.credentials and self._shut_out:
            raise TooMany("Too many wrong credentials from this address.", retry_after=1)
        return await before(self, given)

    monkeypatch.setattr(Authenticator, "principal", principal)


def _believes_every_page_that_may_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Origins, "_is_named", lambda self, origin: origin.decode() in self._pages)


def _unkept(monkeypatch: pytest.MonkeyPatch, module: Any, make: Any) -> None:
    """Has a statement made anew each time: none that was made before the leak is used, and none of it afterwards."""
    monkeypatch.setattr(module, make.__name__, make.__wrapped__)


LISTS = ("GET /api/v1/memories", "POST /api/v1/memories/filter", "tool list_memories")
SEARCHES = ("POST /api/v1/memories/search", "tool search_memory")
ASKED = ("POST /api/v1/memories/search", "GET /api/v1/memories/{memory_id}/access-log")

PLANTED = {
    _takes_a_bounded_administrator_for_one_of_everybody: ("GET /api/v1/keys", "GET /api/v1/audit"),
    _tells_every_question: ASKED,
    _takes_a_search_for_one_of_its_namespaces: ASKED,
    _reads_of_the_user_alone: LISTS,
    _believes_the_claimed_user: LISTS,
    _believes_the_claimed_app: SEARCHES,
    _forgets_the_namespaces: LISTS,
    _takes_an_app_for_its_user: LISTS,
    _ignores_scopes: LISTS,
    _reads_back_without_rules: SEARCHES,
    _lists_the_conversations_of_everybody: ("GET /api/v1/threads", "tool list_threads"),
    _shows_a_paused_app_what_it_has_said: ("GET /api/v1/captures", "GET /api/v1/captures/{capture_id}"),
    _shuts_out_whoever_shares_an_address: LISTS,
    _believes_every_page_that_may_call: LISTS,
    _makes_whoever_is_named: LISTS,
}
"""The leaks, and the operations through which they show. These only read, so that all leaks share a world. What is
asked while a leak is there is logged, so those that show in a log come first."""


@pytest.fixture(scope="module")
async def trial(tenancy: tuple[Services, httpx.AsyncClient]) -> Trial:
    """The trial of all planted leaks. To make a world takes longer than to find a leak in it."""
    return await trial_of(tenancy, 2)


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTED)
async def test_a_planted_leak_is_found(trial: Trial, plant: Callable[[pytest.MonkeyPatch], None], monkeypatch):
    trial.attempts.only(*PLANTED[plant])
    await trial.run(30)  # nothing is found before it is planted
    plant(monkeypatch)
    with pytest.raises(Leak):
        await trial.run(3_000)
